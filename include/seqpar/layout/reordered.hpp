// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Another numbering of the tokens first, then any layout of the new numbers.
#pragma once

#include <concepts>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A bijection of 0 … n−1, cheaply copied: from(new position) → global, to(global) → new position, each undoing the
/// other. A Hilbert curve, a tile-major order, a permutation table.
template <class O>
concept token_order = std::copyable<O> && std::equality_comparable<O> && requires(const O& order, index_t i) {
  { order.from(i) } -> std::convertible_to<index_t>;
  { order.to(i) } -> std::convertible_to<index_t>;
};

/// global(r, i) = order.from(deal(r, i)). Runs are found row by row. Documents are the deal's where the order keeps the
/// tokens of each together in their place; for other orders, give labels and positions bounds.
template <token_order Order, sequence_layout Deal>
struct reordered {
  Order order;
  Deal deal;  ///< of the new positions

  constexpr index_t token_count() const { return deal.token_count(); }
  constexpr int rank_count() const { return deal.rank_count(); }
  constexpr index_t count_of(int rank) const { return deal.count_of(rank); }
  constexpr index_t global_of(int rank, index_t local) const { return order.from(deal.global_of(rank, local)); }
  constexpr place place_of(index_t global) const { return deal.place_of(order.to(global)); }

  constexpr interval document_at(index_t global) const requires has_documents<Deal> {
    return deal.document_at(order.to(global));
  }
  constexpr flaw problem() const { return problem_of(deal); }
  friend constexpr bool operator==(const reordered&, const reordered&) = default;
};
template <class Order, class Deal>
reordered(Order, Deal) -> reordered<Order, Deal>;

}  // namespace v0_1
}  // namespace seqpar
