// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everybody sees the first keys: attention sinks, registers, a prompt.
#pragma once

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// allows(q, k) = k < count
struct first_keys {
  extent count;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t, index_t k) const { return k < count; }
  SEQPAR_HD constexpr interval band(index_t) const { return {0, count}; }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    detail::band_reach(*this, q, f);
  }
  constexpr flaw problem() const {
    if (count < 0) return {"first_keys: count counts keys; give 0 or more", count};
    return {};
  }
  friend constexpr bool operator==(first_keys, first_keys) = default;
};

}  // namespace v0_1
}  // namespace seqpar
