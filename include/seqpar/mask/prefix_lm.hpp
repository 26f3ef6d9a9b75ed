// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A prefix that everybody sees, then causal.
#pragma once

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// allows(q, k) = k < prefix ∨ k ≤ q. For unequal lengths say any_of{first_keys{.count = prefix}, causal{}}.
struct prefix_lm {
  extent prefix;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const { return k < prefix || k <= q; }
  SEQPAR_HD constexpr interval band(index_t q) const { return {0, detail::greater(prefix, q + 1)}; }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    detail::band_reach(*this, q, f);
  }
  constexpr flaw problem() const {
    if (prefix < 0) return {"prefix_lm: prefix counts keys; give 0 or more", prefix};
    return {};
  }
  friend constexpr bool operator==(prefix_lm, prefix_lm) = default;
};

}  // namespace v0_1
}  // namespace seqpar
