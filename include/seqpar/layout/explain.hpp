// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Why a type is not a layout: one static_assert per requirement, with the signature in its text.
#pragma once

#include <concepts>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// static_assert(explain_layout<L>()) compiles exactly when L is a sequence_layout, and names what is missing.
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
  return sequence_layout<L>;
}

}  // namespace v0_1
}  // namespace seqpar
