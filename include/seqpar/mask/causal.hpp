// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nobody sees the future.
#pragma once

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Where the diagonal lies when there are more keys than queries, or fewer.
enum class alignment {
  bottom_right,  ///< the last query sees the last key: queries are the newest tokens (the default)
  top_left       ///< the first query sees the first key only
};

namespace detail {
/// How far the diagonal moves to the right for the given lengths.
SEQPAR_HD constexpr index_t diagonal_offset(alignment align, index_t q_tokens, index_t k_tokens) {
  return align == alignment::bottom_right ? k_tokens - q_tokens : 0;
}
}  // namespace detail

/// allows(q, k) = k ≤ q + offset, where bound() sets offset = k_tokens − q_tokens (bottom_right) or 0 (top_left).
struct causal {
  alignment align = alignment::bottom_right;
  index_t offset = 0;  ///< set by bound(); 0 before, as for equal lengths

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const { return k <= q + offset; }
  SEQPAR_HD constexpr interval band(index_t q) const { return {0, q + offset + 1}; }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    detail::band_reach(*this, q, f);
  }
  constexpr causal bound(index_t q_tokens, index_t k_tokens) const {
    return {align, detail::diagonal_offset(align, q_tokens, k_tokens)};
  }
  friend constexpr bool operator==(causal, causal) = default;
};

}  // namespace v0_1
}  // namespace seqpar
