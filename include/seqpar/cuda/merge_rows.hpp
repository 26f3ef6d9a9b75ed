// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of calls over parts of the keys, made into one state: a kernel body.
#pragma once

#include <cmath>

#include <seqpar/cuda/arguments.hpp>
#include <seqpar/cuda/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// What merge_rows does to the states of its rows.
///   start   m = −∞, sum = 0, acc = 0
///   merge   with M = max(m, l), l = part_lse:  acc ← e^(m−M)·acc + e^(l−M)·part, sum ← e^(m−M)·sum + e^(l−M), m ← M
///   finish  out = acc / sum, lse = m + log sum; 0 and −∞ where nothing was seen
enum class merging : std::uint8_t { start, merge, finish };

/// States of all query rows of a call (state_view), worked on for `count` of them from `first`. `part` and `part_lse`
/// begin with row `first`; a part whose lse is −∞ is not read. fp32; one warp for each row; deterministic.
template <class T, class Out>
struct merge_rows {
  static constexpr int threads = 256, blocks_per_sm = 4, shared_bytes = 0;
  struct params {
    state_view state;
    index_t batch, heads, all_rows;
    int dim;
    merging what;
    index_t first = 0, count = 0;
    rows<const T> part{};
    numbers<const float> part_lse{};
    rows<Out> out{};
    numbers<float> lse{};
    SEQPAR_HD index_t work() const { return (batch * heads * count + threads / 32 - 1) / (threads / 32); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    constexpr float log2_of_e = 1.44269504088896340736f, none = -HUGE_VALF;
    for (index_t w = hw.block(), n = p.work(); w < n; w += hw.blocks()) {
      const index_t at = w * (threads / 32) + hw.warp();
      if (at >= p.batch * p.heads * p.count) continue;
      const index_t i = at % p.count, h = at / p.count % p.heads, b = at / p.count / p.heads;
      const index_t place = (b * p.heads + h) * p.all_rows + p.first + i;
      float *acc = p.state.acc + place * p.dim, *max = p.state.max + place, *sum = p.state.sum + place;
      if (p.what == merging::start) {
        for (int d = hw.lane(); d < p.dim; d += 32) acc[d] = 0;
        if (hw.lane() == 0) {
          *max = none;
          *sum = 0;
        }
      } else if (p.what == merging::merge) {
        const float l = p.part_lse.at(b, h, i), m = *max, s = *sum;
        hw.sync_warp();  // all lanes have read the state
        if (l == none) continue;
        const float top = m > l ? m : l, keep = hw.exp2((m - top) * log2_of_e), add = hw.exp2((l - top) * log2_of_e);
        const T* part = p.part.at(b, i, h);
        for (int d = hw.lane(); d < p.dim; d += 32) acc[d] = keep * acc[d] + add * hw.widen(part[d]);
        if (hw.lane() == 0) {
          *max = top;
          *sum = keep * s + add;
        }
      } else {
        const float s = *sum;
        Out* out = p.out.at(b, p.first + i, h);
        for (int d = hw.lane(); d < p.dim; d += 32) out[d] = hw.template narrow<Out>(s == 0 ? 0 : acc[d] / s);
        if (hw.lane() == 0) p.lse.at(b, h, p.first + i) = *max + ::logf(s);  // nothing seen: −∞ + −∞
      }
    }
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
