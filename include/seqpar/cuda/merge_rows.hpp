// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls over parts of the keys leave, made into one state: a kernel body.
#pragma once

#include <cmath>

#include <seqpar/cuda/arguments.hpp>
#include <seqpar/cuda/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// What merge_rows does to the states of its rows.
///   start   m = −∞, sum = 0, acc = 0
///   merge   with M = max(m, l), l = part_max:  acc ← e^(m−M)·acc + e^(l−M)·part, sum ← e^(m−M)·sum + e^(l−M)·part_sum,
///           m ← M
///   finish  out = acc / sum, lse = m + log sum; 0 and −∞ where nothing was seen
enum class merging : std::uint8_t { start, merge, finish };

/// States of `count` rows. A part is another state, or a result: then part_max is its lse, and part_sum null stands for
/// ones. With sum null the rows are results, too: merge then leaves out and lse in acc and max. A part whose maximum is
/// −∞ is not read. fp32; one warp for each row; deterministic.
template <class T, class Out>
struct merge_rows {
  static constexpr int threads = 256, blocks_per_sm = 4, shared_bytes = 0;
  struct params {
    rows<float> acc;
    numbers<float> max, sum;
    index_t batch, heads, count;
    int dim;
    merging what;
    rows<const T> part{};
    numbers<const float> part_max{}, part_sum{};
    rows<Out> out{};
    numbers<float> lse{};
    static params of(const state_rows& s, merging what) {
      return {rows<float>::of(s.acc),
              numbers<float>::of(s.max),
              numbers<float>::of(s.sum),
              s.acc.batch(),
              s.acc.heads(),
              s.acc.tokens(),
              static_cast<int>(s.acc.dim()),
              what};
    }
    SEQPAR_HD index_t work() const { return (batch * heads * count + threads / 32 - 1) / (threads / 32); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    constexpr float to_base_2 = 1.44269504088896340736f, none = -HUGE_VALF;
    for (index_t w = hw.block(), n = p.work(); w < n; w += hw.blocks()) {
      const index_t at = w * (threads / 32) + hw.warp();
      if (at >= p.batch * p.heads * p.count) continue;
      const index_t i = at % p.count, h = at / p.count % p.heads, b = at / p.count / p.heads;
      float *acc = p.acc.at(b, i, h), *max = &p.max.at(b, h, i), *sum = p.sum.pointer ? &p.sum.at(b, h, i) : nullptr;
      if (p.what == merging::start) {
        for (int d = hw.lane(); d < p.dim; d += 32) acc[d] = 0;
        if (hw.lane() == 0) {
          *max = none;
          *sum = 0;
        }
      } else if (p.what == merging::merge) {
        const float l = p.part_max.at(b, h, i), m = *max, s = sum ? *sum : 1;
        hw.sync_warp();  // all lanes have read the state
        if (l == none) continue;
        const float top = m > l ? m : l;
        float keep = hw.exp2((m - top) * to_base_2), add = hw.exp2((l - top) * to_base_2);
        const float all = keep * s + (p.part_sum.pointer ? add * p.part_sum.at(b, h, i) : add);
        if (!sum) {
          keep /= all;
          add /= all;
        }
        const T* part = p.part.at(b, i, h);
        for (int d = hw.lane(); d < p.dim; d += 32) acc[d] = keep * acc[d] + add * hw.widen(part[d]);
        if (hw.lane() == 0) {
          *max = sum ? top : top + ::logf(all);
          if (sum) *sum = all;
        }
      } else {
        const float s = *sum;
        Out* out = p.out.at(b, i, h);
        for (int d = hw.lane(); d < p.dim; d += 32) out[d] = hw.template narrow<Out>(s == 0 ? 0 : acc[d] / s);
        if (hw.lane() == 0) p.lse.at(b, h, i) = *max + ::logf(s);  // nothing seen: −∞ + −∞
      }
    }
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
