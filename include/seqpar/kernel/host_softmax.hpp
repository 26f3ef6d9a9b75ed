// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Softmax down a tile of scores, forward and backward: all that the fast host kernel does beside its products.
#pragma once

#include <limits>

#include <seqpar/kernel/host_tile.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Scores lie [key][query], a row of host_tile::queries per key; each function walks `keys` of them, a few vectors of
/// queries at a time.
template <int Bytes>
struct host_softmax {
  using V = vectors<Bytes>;
  using tile = host_tile<Bytes>;
  using floats = typename V::floats;
  static constexpr float infinity = std::numeric_limits<float>::infinity();

  /// Per query: the online state, and what its older part shrank by in the last step.
  struct state {
    float *max, *sum, *shrink;
  };
  struct loss {
    float *lse, *scaled_delta;
  };

  /// max ← the larger of max and the scores, sum ← sum·shrink with shrink = exp(max_old − max). Did any grow? Not
  /// inlined: were sum·shrink fused with the addition of the first exponential, sum would be rounded otherwise than
  /// acc, and V = 1 would no longer give exactly 1.
  [[gnu::noinline]] static bool raise_max(index_t queries, index_t keys, const float* scores, const state& at) {
    bool grew = false;
    tile::for_columns(queries, [&](index_t first, auto vectors) {
      constexpr int width = vectors;
      floats max[std::size_t{width}];
      const float* s = scores + first;
#pragma GCC unroll 4
      for (int w = 0; w < width; ++w) max[w] = V::load(at.max + first + w * V::lanes);
      for (index_t j = 0; j < keys; ++j, s += tile::queries)
#pragma GCC unroll 4
        for (int w = 0; w < width; ++w) {
          const floats x = V::load(s + w * V::lanes);
          max[w] = x > max[w] ? x : max[w];
        }
      for (int w = 0; w < width; ++w) {
        const index_t i = first + w * V::lanes;
        const floats old = V::load(at.max + i);
        const floats shrink = old == max[w] ? V::splat(1) : V::exp(old - max[w]);
        grew = grew || V::any(old != max[w]);
        V::store(at.max + i, max[w]);
        V::store(at.sum + i, V::load(at.sum + i) * shrink);
        V::store(at.shrink + i, shrink);
      }
    });
    return grew;
  }

  /// scores ← exp(scores − max), sum += each, key by key, as the product with V adds them.
  [[gnu::noinline]] static void exponentiate(index_t queries, index_t keys, float* scores, const state& at) {
    tile::for_columns(queries, [&](index_t first, auto vectors) {
      constexpr int width = vectors;
      floats max[std::size_t{width}], sum[std::size_t{width}];
      float* s = scores + first;
#pragma GCC unroll 4
      for (int w = 0; w < width; ++w) {
        const floats m = V::load(at.max + first + w * V::lanes);
        max[w] = m == V::splat(-infinity) ? floats{} : m;  // nothing seen yet: exp(−∞ − 0) = 0, not NaN
        sum[w] = V::load(at.sum + first + w * V::lanes);
      }
      for (index_t j = 0; j < keys; ++j, s += tile::queries)
#pragma GCC unroll 4
        for (int w = 0; w < width; ++w) {
          const floats p = V::exp(V::load(s + w * V::lanes) - max[w]);
          V::store(s + w * V::lanes, p);
          sum[w] += p;
        }
#pragma GCC unroll 4
      for (int w = 0; w < width; ++w) V::store(at.sum + first + w * V::lanes, sum[w]);
    });
  }

  /// scores ← P = exp(scores − lse), dscores ← P∘(scale·dscores − scale·delta); 0 where P is 0, even if dscores is NaN
  /// there.
  [[gnu::noinline]] static void gradient(index_t queries, index_t keys, float* scores, float* dscores, float scale,
                                         const loss& at) {
    tile::for_columns(queries, [&](index_t first, auto vectors) {
      constexpr int width = vectors;
      floats lse[std::size_t{width}], delta[std::size_t{width}];
      float *s = scores + first, *ds = dscores + first;
#pragma GCC unroll 4
      for (int w = 0; w < width; ++w) {
        lse[w] = V::load(at.lse + first + w * V::lanes);
        delta[w] = V::load(at.scaled_delta + first + w * V::lanes);
      }
      for (index_t j = 0; j < keys; ++j, s += tile::queries, ds += tile::queries)
#pragma GCC unroll 4
        for (int w = 0; w < width; ++w) {
          const floats p = V::exp(V::load(s + w * V::lanes) - lse[w]);
          const floats d = p * (scale * V::load(ds + w * V::lanes) - delta[w]);
          V::store(s + w * V::lanes, p);
          V::store(ds + w * V::lanes, p == floats{} ? floats{} : d);
        }
    });
  }
};

}  // namespace v0_1
}  // namespace seqpar
