// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block kernel of the host, vectorised: queries lie across the lanes, so softmax never sums across a vector.
#pragma once

#include <cmath>
#include <limits>

#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/host_tile.hpp>
#include <seqpar/kernel/micro_gemm.hpp>
#include <seqpar/memory.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Any dims ≥ 1; multiples of the lanes are the fast ones, and fp32 keys and values are then read where they lie.
/// Tiles of scores are held transposed, [key][query]: the products are K·Qᵀ and Pᵀ-strided·V, and maximum, exponential
/// and sum run down the keys. Determinism: sums run in the order of the tables, whatever the blocking.
template <int Bytes>
struct basic_host_fast {
  static constexpr index_t query_tile_rows = host_tile<Bytes>::queries;
  static constexpr index_t key_tile_rows = host_tile<Bytes>::keys;

  static index_t workspace_bytes(index_t qk_dim, index_t v_dim) {
    carver forward, backward;
    forward_space(forward, qk_dim, v_dim);
    backward_space(backward, qk_dim, v_dim);
    return (std::max)(forward.bytes(), backward.bytes());
  }

  /// Per query tile and key tile: S = K·(scale·Q)ᵀ; m, P = exp(S − m), Σ; acc = acc·exp(m_old − m) + P·V.
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask) const {
    const index_t qk_dim = call.q.dim(), v_dim = call.segments.empty() ? call.out.dim() : call.segments[0].v.dim();
    const index_t acc_row = tile::padded(v_dim);
    carver walk(region{call.workspace, 0});
    const forward_space at(walk, qk_dim, v_dim);
    for (index_t b = 0; b < call.q.batch(); ++b)
      for (index_t h = 0; h < call.q.heads(); ++h)
        for (std::size_t t = 0; t < call.queries.tiles.size(); ++t) {
          const query_tile queries = call.queries.tiles[t];
          const index_t kv = call.heads.kv_of(h);
          tile::transpose(call.q, b, queries, h, call.scale, at.q_columns);
          begin_state(call, b, h, queries, v_dim, at);
          masker<Bytes, Mask> masking(call.queries, queries, mask);
          for (const kv_segment<T>& segment : call.segments)
            for_each_tile(segment.table, t, [&](key_tile keys, cover kind) {
              if (kind == cover::some) keys = masking.trimmed(segment.table, keys);
              if (keys.rows == 0) return;
              const auto k = tile::elements(segment.k, b, keys, kv, at.keys);
              gemm::template multiply<into::set>(keys.rows, queries.rows, qk_dim, k.pointer, k.row, 1, at.q_columns,
                                                 query_tile_rows, at.scores, query_tile_rows);
              if (kind == cover::some) masking.apply(segment.table, keys, at.scores);
              const bool* absent = kind == cover::some ? masking.absent() : nullptr;
              const auto v = tile::vectors_of(segment.v, b, keys, kv, absent, at.values);
              bool grew = false;
              tile::for_columns(queries.rows,
                                [&](index_t i, auto w) { grew = raise_max<w>(i, keys.rows, at) || grew; });
              if (grew)
                for (index_t i = 0; i < queries.rows; ++i) tile::scale_row(at.acc + i * acc_row, acc_row, at.shrink[i]);
              tile::for_columns(queries.rows, [&](index_t i, auto w) { exponentiate<w>(i, keys.rows, at); });
              gemm::template multiply<into::add>(queries.rows, v_dim, keys.rows, at.scores, 1, query_tile_rows,
                                                 v.pointer, v.row, at.acc, acc_row);
            });
          end_state(call, b, h, queries, v_dim, at);
        }
  }

  /// Per query tile and key tile: P = exp(S − lse), dP = V·dOᵀ, dS = P∘(dP − delta);
  /// dV += P·dO, dK += dS·(scale·Q), dQ += scale·dSᵀ·K.
  template <class T, class Mask>
  void backward(const backward_call<T>& call, const Mask& mask) const {
    const index_t qk_dim = call.q.dim(), v_dim = call.dout.dim();
    const index_t qk_row = tile::padded(qk_dim), v_row = tile::padded(v_dim);
    carver walk(region{call.workspace, 0});
    const backward_space at(walk, qk_dim, v_dim);
    for (index_t b = 0; b < call.q.batch(); ++b)
      for (index_t h = 0; h < call.q.heads(); ++h)
        for (std::size_t t = 0; t < call.queries.tiles.size(); ++t) {
          const query_tile queries = call.queries.tiles[t];
          const index_t kv = call.heads.kv_of(h);
          // A row that saw nothing adds nothing, whatever its q, dout and delta hold: zeros, and exp(s − ∞) = 0.
          bool dead[std::size_t{query_tile_rows}];
          for (index_t i = 0; i < query_tile_rows; ++i) {
            const float lse = i < queries.rows ? call.lse.at(b, h, queries.row + i) : -infinity;
            dead[i] = lse == -infinity;
            at.lse[i] = dead[i] ? infinity : lse;
            at.delta[i] = dead[i] ? 0 : call.delta.at(b, h, queries.row + i);
          }
          tile::copy(call.q, b, queries.row, queries.rows, h, call.scale, dead, at.q_rows);
          tile::copy(call.dout, b, queries.row, queries.rows, h, 1, dead, at.dout_rows);
          tile::transpose(at.q_rows, qk_row, queries.rows, qk_dim, at.q_columns);
          tile::transpose(at.dout_rows, v_row, queries.rows, v_dim, at.dout_columns);
          std::fill(at.dq, at.dq + query_tile_rows * qk_row, 0.0f);
          masker<Bytes, Mask> masking(call.queries, queries, mask);
          for (const kv_segment<T>& segment : call.segments)
            for_each_tile(segment.table, t, [&](key_tile keys, cover kind) {
              if (kind == cover::some) keys = masking.trimmed(segment.table, keys);
              if (keys.rows == 0) return;
              const auto k = tile::elements(segment.k, b, keys, kv, at.keys);
              gemm::template multiply<into::set>(keys.rows, queries.rows, qk_dim, k.pointer, k.row, 1, at.q_columns,
                                                 query_tile_rows, at.scores, query_tile_rows);
              if (kind == cover::some) masking.apply(segment.table, keys, at.scores);
              const bool* absent = kind == cover::some ? masking.absent() : nullptr;
              const auto v = tile::elements(segment.v, b, keys, kv, at.values);
              gemm::template multiply<into::set>(keys.rows, queries.rows, v_dim, v.pointer, v.row, 1, at.dout_columns,
                                                 query_tile_rows, at.dscores, query_tile_rows);
              tile::for_columns(queries.rows, [&](index_t i, auto w) { score_gradient<w>(i, keys.rows, at); });
              add_product(keys.rows, v_dim, queries.rows, at.scores, at.dout_rows, v_row, segment.dv, b, keys.row, kv,
                          at.rest);
              add_product(keys.rows, qk_dim, queries.rows, at.dscores, at.q_rows, qk_row, segment.dk, b, keys.row, kv,
                          at.rest);
              const auto k_rows = tile::vectors_of(segment.k, b, keys, kv, absent, at.keys);
              gemm::template multiply<into::add>(queries.rows, qk_dim, keys.rows, at.dscores, 1, query_tile_rows,
                                                 k_rows.pointer, k_rows.row, at.dq, qk_row);
            });
          for (index_t i = 0; i < queries.rows; ++i) {
            float* dq = call.dq.row(b, queries.row + i, h);
            for (index_t d = 0; d < qk_dim; ++d) dq[d] += call.scale * at.dq[i * qk_row + d];
          }
        }
  }

 private:
  using V = vectors<Bytes>;
  using tile = host_tile<Bytes>;
  using gemm = micro_gemm<Bytes>;
  using into = typename gemm::into;
  using floats = typename V::floats;
  static constexpr float infinity = std::numeric_limits<float>::infinity();

  struct forward_space {
    float *q_columns, *scores, *acc, *keys, *values, *max, *sum, *shrink;
    forward_space(carver& walk, index_t qk_dim, index_t v_dim)
        : q_columns(walk.take<float>(qk_dim * query_tile_rows)),
          scores(walk.take<float>(key_tile_rows * query_tile_rows)),
          acc(walk.take<float>(query_tile_rows * tile::padded(v_dim))),
          keys(walk.take<float>(key_tile_rows * tile::padded(qk_dim))),
          values(walk.take<float>(key_tile_rows * tile::padded(v_dim))),
          max{walk.take<float>(query_tile_rows)},
          sum(walk.take<float>(query_tile_rows)),
          shrink(walk.take<float>(query_tile_rows)) {}
  };

  struct backward_space {
    float *q_columns, *dout_columns, *q_rows, *dout_rows, *scores, *dscores, *keys, *values, *dq, *rest, *lse, *delta;
    backward_space(carver& walk, index_t qk_dim, index_t v_dim)
        : q_columns(walk.take<float>(qk_dim * query_tile_rows)),
          dout_columns(walk.take<float>(v_dim * query_tile_rows)),
          q_rows(walk.take<float>(query_tile_rows * tile::padded(qk_dim))),
          dout_rows(walk.take<float>(query_tile_rows * tile::padded(v_dim))),
          scores(walk.take<float>(key_tile_rows * query_tile_rows)),
          dscores(walk.take<float>(key_tile_rows * query_tile_rows)),
          keys(walk.take<float>(key_tile_rows * tile::padded(qk_dim))),
          values(walk.take<float>(key_tile_rows * tile::padded(v_dim))),
          dq(walk.take<float>(query_tile_rows * tile::padded(qk_dim))),
          rest(walk.take<float>(key_tile_rows * tile::padded(std::max(qk_dim, v_dim)))),
          lse(walk.take<float>(query_tile_rows)),
          delta(walk.take<float>(query_tile_rows)) {}
  };

  template <class Call>
  static void begin_state(const Call& call, index_t b, index_t h, query_tile queries, index_t v_dim,
                          const forward_space& at) {
    const index_t row = tile::padded(v_dim);
    std::fill(at.acc, at.acc + query_tile_rows * row, 0.0f);
    std::fill(at.max, at.max + query_tile_rows, -infinity);
    std::fill(at.sum, at.sum + query_tile_rows, 0.0f);
    if (call.in == state_in::none) return;
    const index_t place = (b * call.q.heads() + h) * call.q.tokens() + queries.row;
    std::copy_n(call.state.max + place, queries.rows, at.max);
    std::copy_n(call.state.sum + place, queries.rows, at.sum);
    for (index_t i = 0; i < queries.rows; ++i)
      std::copy_n(call.state.acc + (place + i) * v_dim, v_dim, at.acc + i * row);
  }

  template <class T, class Out>
  static void end_state(const forward_call<T, Out>& call, index_t b, index_t h, query_tile queries, index_t v_dim,
                        const forward_space& at) {
    const index_t row = tile::padded(v_dim);
    if (call.out_kind == state_out::carry) {
      const index_t place = (b * call.q.heads() + h) * call.q.tokens() + queries.row;
      std::copy_n(at.max, queries.rows, call.state.max + place);
      std::copy_n(at.sum, queries.rows, call.state.sum + place);
      for (index_t i = 0; i < queries.rows; ++i)
        std::copy_n(at.acc + i * row, v_dim, call.state.acc + (place + i) * v_dim);
      return;
    }
    for (index_t i = 0; i < queries.rows; ++i) {
      const float sum = at.sum[i];
      const float* acc = at.acc + i * row;
      Out* out = call.out.row(b, queries.row + i, h);
      for (index_t d = 0; d < v_dim; ++d) out[d] = Out(sum == 0 ? 0.0f : acc[d] / sum);
      call.lse.at(b, h, queries.row + i) = at.max[i] + std::log(sum);  // nothing seen: −∞ + −∞
    }
  }

  /// For Width vectors of queries from `first` on: max ← the larger of max and the scores, sum ← sum·shrink with
  /// shrink = exp(max_old − max). Did any grow? Not inlined: were sum·shrink fused with the addition of the first
  /// exponential, sum would be rounded otherwise than acc, and V = 1 would no longer give exactly 1.
  template <int Width>
  [[gnu::noinline]] static bool raise_max(index_t first, index_t keys, const forward_space& at) {
    floats max[std::size_t{Width}];
    bool grew = false;
    const float* s = at.scores + first;
#pragma GCC unroll 4
    for (int w = 0; w < Width; ++w) max[w] = V::load(at.max + first + w * V::lanes);
    for (index_t j = 0; j < keys; ++j, s += query_tile_rows)
#pragma GCC unroll 4
      for (int w = 0; w < Width; ++w) {
        const floats x = V::load(s + w * V::lanes);
        max[w] = x > max[w] ? x : max[w];
      }
    for (int w = 0; w < Width; ++w) {
      const index_t i = first + w * V::lanes;
      const floats old = V::load(at.max + i);
      const floats shrink = old == max[w] ? V::splat(1) : V::exp(old - max[w]);
      grew = grew || V::any(old != max[w]);
      V::store(at.max + i, max[w]);
      V::store(at.sum + i, V::load(at.sum + i) * shrink);
      V::store(at.shrink + i, shrink);
    }
    return grew;
  }

  /// scores ← exp(scores − max), sum += each, key by key, as the product with V adds them.
  template <int Width>
  [[gnu::noinline]] static void exponentiate(index_t first, index_t keys, const forward_space& at) {
    floats max[std::size_t{Width}], sum[std::size_t{Width}];
    float* s = at.scores + first;
#pragma GCC unroll 4
    for (int w = 0; w < Width; ++w) {
      const floats m = V::load(at.max + first + w * V::lanes);
      max[w] = m == V::splat(-infinity) ? floats{} : m;  // nothing seen yet: exp(−∞ − 0) = 0, not NaN
      sum[w] = V::load(at.sum + first + w * V::lanes);
    }
    for (index_t j = 0; j < keys; ++j, s += query_tile_rows)
#pragma GCC unroll 4
      for (int w = 0; w < Width; ++w) {
        const floats p = V::exp(V::load(s + w * V::lanes) - max[w]);
        V::store(s + w * V::lanes, p);
        sum[w] += p;
      }
#pragma GCC unroll 4
    for (int w = 0; w < Width; ++w) V::store(at.sum + first + w * V::lanes, sum[w]);
  }

  /// scores ← P = exp(scores − lse), dscores ← P∘(dscores − delta); 0 where P is 0, even if dscores is NaN there.
  template <int Width>
  static void score_gradient(index_t first, index_t keys, const backward_space& at) {
    floats lse[std::size_t{Width}], delta[std::size_t{Width}];
    float *s = at.scores + first, *ds = at.dscores + first;
#pragma GCC unroll 4
    for (int w = 0; w < Width; ++w) {
      lse[w] = V::load(at.lse + first + w * V::lanes);
      delta[w] = V::load(at.delta + first + w * V::lanes);
    }
    for (index_t j = 0; j < keys; ++j, s += query_tile_rows, ds += query_tile_rows)
#pragma GCC unroll 4
      for (int w = 0; w < Width; ++w) {
        const floats p = V::exp(V::load(s + w * V::lanes) - lse[w]);
        const floats d = p * (V::load(ds + w * V::lanes) - delta[w]);
        V::store(s + w * V::lanes, p);
        V::store(ds + w * V::lanes, p == floats{} ? floats{} : d);
      }
  }

  /// gradient rows += A·B with A = [key][query]. Rows of whole vectors are added to in place; others by way of `rest`,
  /// so that nothing past a row's end is touched.
  static void add_product(index_t keys, index_t dim, index_t queries, const float* a, const float* b, index_t b_row,
                          const rows_view<float>& gradient, index_t batch, index_t first, index_t head, float* rest) {
    float* rows = gradient.row(batch, first, head);
    if (dim % V::lanes == 0) {
      gemm::template multiply<into::add>(keys, dim, queries, a, query_tile_rows, 1, b, b_row, rows, gradient.stride[1]);
      return;
    }
    gemm::template multiply<into::set>(keys, dim, queries, a, query_tile_rows, 1, b, b_row, rest, b_row);
    for (index_t j = 0; j < keys; ++j)
      for (index_t d = 0; d < dim; ++d) rows[j * gradient.stride[1] + d] += rest[j * b_row + d];
  }
};

/// The host's fast kernel for the processor that this file is compiled for.
using host_fast = basic_host_fast<native_vector_bytes>;

}  // namespace v0_1
}  // namespace seqpar
