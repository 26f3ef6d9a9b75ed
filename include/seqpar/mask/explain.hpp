// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Why a type is not a mask, one sentence per requirement.
#pragma once

#include <concepts>
#include <span>

#include <seqpar/mask/concept.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
struct keep_table {
  constexpr std::span<const index_t> operator()(std::span<const index_t> table) const { return table; }
};

/// Optional members under the right name with another signature would be passed over in silence; these tell.
template <class M>
concept intervals_fit = interval_mask<M> || !requires(M & mask, index_t q) {
  mask.key_intervals(q);
};
template <class M>
concept covers_fit = has_covers<M> || !requires(M & mask, interval span) {
  mask.covers(span, span);
};
template <class M>
concept reach_fits = has_reach<M> || !requires {
  &M::template reach<ignore_interval>;
};
template <class M>
concept bound_fits = !requires(M & mask, index_t n) {
  mask.bound(n, n);
}
|| requires(const M& mask, index_t n) {
  { mask.bound(n, n) } -> attention_mask;
};
template <class M>
concept rebound_fits = !requires(M & mask, keep_table keep) {
  mask.rebound(keep);
}
|| requires(const M& mask, keep_table keep) {
  { mask.rebound(keep) } -> attention_mask;
};
template <class M>
concept misfit_fits = !requires(M & mask, padded_length n) {
  mask.misfit(n, n);
}
|| requires(const M& mask, padded_length n) {
  { mask.misfit(n, n) } -> std::convertible_to<std::string>;
};
template <class M>
concept problem_fits = !requires(M & mask) {
  mask.problem();
}
|| requires(const M& mask) {
  { mask.problem() } -> std::convertible_to<const char*>;
};
/// What reach is called with here: it names what f is given other than an interval.
struct only_intervals {
  constexpr void operator()(interval) const {}
  template <class... Others>
  constexpr void operator()(const Others&...) const {
    static_assert(sizeof...(Others) > 1000000, "[seqpar] reach calls f(seqpar::interval{lo, hi})");
  }
};
/// Instantiates the body of reach; never called.
template <class M>
constexpr void give_reach(const M& mask) {
  only_intervals f;
  mask.reach(interval{}, f);
}
template <class M>
concept allows_fits = requires(const M& mask, index_t q, index_t k) {
  { mask.allows(q, k) } -> std::convertible_to<bool>;
};
}  // namespace detail

/// static_assert(explain_mask<my_mask>()): true, or an error that names what is missing or does not fit.
template <class M>
constexpr bool explain_mask() {
  static_assert(std::copyable<M>, "[seqpar] a mask is a copyable value: give it copy construction and copy assignment");
  static_assert(detail::allows_fits<M>, "[seqpar] a mask needs: constexpr bool allows(index_t q, index_t k) const");
  static_assert(detail::intervals_fit<M>,
                "[seqpar] key_intervals is: constexpr interval_pair key_intervals(index_t q) const");
  static_assert(detail::covers_fit<M>, "[seqpar] covers is: constexpr cover covers(interval q, interval k) const");
  static_assert(detail::reach_fits<M>,
                "[seqpar] reach is: template <class F> constexpr void reach(interval q, F&& f) const");
  if constexpr (has_reach<M>) (void)detail::give_reach<M>;
  static_assert(detail::bound_fits<M>,
                "[seqpar] bound is: constexpr M bound(index_t q_tokens, index_t k_tokens) const");
  static_assert(detail::rebound_fits<M>,
                "[seqpar] rebound is: template <class Keep> constexpr M rebound(Keep&& keep) const; "
                "keep takes and returns std::span<const index_t>");
  static_assert(detail::problem_fits<M>,
                "[seqpar] problem is: constexpr const char* problem() const, or one that returns seqpar::flaw");
  static_assert(detail::misfit_fits<M>,
                "[seqpar] misfit is: std::string misfit(padded_length q, padded_length k) const");
  return true;
}

}  // namespace v0_1
}  // namespace seqpar
