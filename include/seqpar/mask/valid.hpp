// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Only the first positions are real, the rest is padding.
#pragma once

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// allows(q, k) = q < queries ∧ k < keys
struct valid {
  index_t queries = unbounded;
  extent keys;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const { return q < queries && k < keys; }
  /// A padded query's band is empty at the upper end, so that the lower end still ascends.
  SEQPAR_HD constexpr interval band(index_t q) const { return {q < queries ? index_t{0} : index_t{keys}, keys}; }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    if (q.lo < queries && keys > 0) f(interval{0, keys});
  }
  constexpr void tell_padding(padded_length& q, padded_length& k) const {
    q.real = detail::lesser(q.real, queries);
    k.real = detail::lesser(k.real, keys);
  }
  constexpr flaw problem() const {
    for (index_t n : {index_t{queries}, index_t{keys}})
      if (n < 0) return {"valid: queries and keys count tokens; give 0 or more", n};
    return {};
  }
  friend constexpr bool operator==(valid, valid) = default;
};

}  // namespace v0_1
}  // namespace seqpar
