// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A query sees the keys beside it.
#pragma once

#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// allows(q, k) = q + offset − left ≤ k ≤ q + offset + right, offset as for causal. `left` and `right` count the keys
/// beside the diagonal: {.left = 3, .right = 0} shows four keys, {.left = unbounded, .right = 0} is causal.
struct window {
  extent left, right;
  alignment align = alignment::bottom_right;
  index_t offset = 0;  ///< set by bound(); 0 before, as for equal lengths

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const {
    const interval keys = band(q);
    return keys.contains(k);
  }
  SEQPAR_HD constexpr interval band(index_t q) const {
    const index_t centre = q + offset, before = detail::lesser(left, unbounded);
    const index_t after = detail::lesser(right, unbounded - 1);  // sizes beyond unbounded would overflow
    return {detail::greater(0, centre - before), centre + after + 1};
  }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  /// Neighbouring queries' bands always touch, so the hull is exact and O(1).
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    const interval hull{band(q.lo).lo, band(q.hi - 1).hi};
    if (!hull.empty()) f(hull);
  }
  constexpr window bound(index_t q_tokens, index_t k_tokens) const {
    return {left, right, align, detail::diagonal_offset(align, q_tokens, k_tokens)};
  }
  constexpr flaw problem() const {
    for (index_t n : {left, right})
      if (n < 0) return {"window: left and right count keys; give 0 or more", n};
    return {};
  }
  friend constexpr bool operator==(window, window) = default;
};

}  // namespace v0_1
}  // namespace seqpar
