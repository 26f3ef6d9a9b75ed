// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Why a type is not a layout: one static_assert per requirement, with the signature in its text.
#pragma once

#include <concepts>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// Optional members under the right name with another signature would be passed over in silence; these tell.
template <class L>
concept documents_fit = has_documents<L> || !requires(L & layout, index_t global) {
  layout.document_at(global);
};
template <class L>
concept runs_fit = has_runs<L> || !requires {
  &L::template for_each_run<ignore_run>;
};
template <class L>
concept copies_fit = has_copies<L> || !requires(L & layout, index_t global) {
  layout.is_noisy(global);
};

/// What for_each_run is called with here: it names what f is given other than a run.
struct only_runs {
  constexpr void operator()(run) const {}
  template <class... Others>
  constexpr void operator()(const Others&...) const {
    static_assert(sizeof...(Others) > 1000000, "[seqpar] for_each_run calls f(seqpar::run{first, count, step})");
  }
};
/// Instantiates the body of for_each_run; never called.
template <class L>
constexpr void give_runs(const L& layout) {
  only_runs f;
  layout.for_each_run(0, f);
}
}  // namespace detail

/// static_assert(explain_layout<L>()) compiles when L is a sequence_layout, and else names what is missing; also
/// where an optional member has another signature.
template <class L>
constexpr bool explain_layout() {
  static_assert(std::copyable<L>, "[seqpar] a layout must be a value: copyable and movable, without const members");
  static_assert(std::equality_comparable<L>,
                "[seqpar] a layout needs: friend constexpr bool operator==(const L&, const L&) = default;");
  static_assert(
      requires(const L& layout) {
        { layout.token_count() } -> std::convertible_to<index_t>;
      },
      "[seqpar] a layout needs: constexpr index_t token_count() const;");
  static_assert(
      requires(const L& layout) {
        { layout.rank_count() } -> std::convertible_to<int>;
      },
      "[seqpar] a layout needs: constexpr int rank_count() const;");
  static_assert(
      requires(const L& layout, int rank) {
        { layout.count_of(rank) } -> std::convertible_to<index_t>;
      },
      "[seqpar] a layout needs: constexpr index_t count_of(int rank) const;");
  static_assert(
      requires(const L& layout, int rank, index_t local) {
        { layout.global_of(rank, local) } -> std::convertible_to<index_t>;
      },
      "[seqpar] a layout needs: constexpr index_t global_of(int rank, index_t local) const;");
  static_assert(
      requires(const L& layout, index_t global) {
        { layout.place_of(global) } -> std::same_as<place>;
      },
      "[seqpar] a layout needs: constexpr seqpar::place place_of(index_t global) const;");
  static_assert(detail::runs_fit<L>,
                "[seqpar] for_each_run is: template <class F> constexpr void for_each_run(int rank, F&& f) const");
  if constexpr (has_runs<L>) (void)detail::give_runs<L>;
  static_assert(detail::documents_fit<L>,
                "[seqpar] document_at is: constexpr seqpar::interval document_at(index_t global) const");
  static_assert(detail::copies_fit<L>, "[seqpar] is_noisy is: constexpr bool is_noisy(index_t global) const");
  return sequence_layout<L>;
}

}  // namespace v0_1
}  // namespace seqpar
