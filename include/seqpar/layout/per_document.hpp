// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packed documents, each dealt by itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Document d is bounds[d] … bounds[d+1]−1, dealt by deal_d = deal.resized(its length); a rank's rows are its share of
/// document 0, then of document 1, …
///
///   global(r, i) = bounds[d] + deal_d(r, i − Σ_{e<d} deal_e.count_of(r))
///
/// A view: the bounds (0 first, ascending, tokens last) stay the caller's. Every question but place_of's document walks
/// over the documents; runs are the way to ask for many rows. Source: TransformerEngine thd, ring-flash-attention.
template <resizable_layout Deal>
struct per_document {
  table_view<index_t> bounds;
  Deal deal;  ///< the tokens that it was made with do not matter

  constexpr index_t token_count() const { return bounds.empty() ? 0 : bounds.back(); }
  constexpr int rank_count() const { return deal.rank_count(); }
  constexpr index_t document_count() const { return bounds.empty() ? 0 : static_cast<index_t>(bounds.size()) - 1; }

  constexpr index_t count_of(int rank) const { return rows_before(rank, document_count()); }
  constexpr index_t global_of(int rank, index_t local) const {
    index_t document = 0;
    for (; document + 1 < document_count(); ++document) {
      const index_t rows = deal_of(document).count_of(rank);
      if (local < rows) break;
      local -= rows;
    }
    return begin_of(document) + deal_of(document).global_of(rank, local);
  }
  constexpr place place_of(index_t global) const {
    const index_t document = document_of(global);
    const place inside = deal_of(document).place_of(global - begin_of(document));
    return {inside.rank, rows_before(inside.rank, document) + inside.local};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    detail::run_joiner join(f);
    for (index_t d = 0; d < document_count(); ++d)
      seqpar::for_each_run(deal_of(d), rank, [&](run r) { join(run{begin_of(d) + r.first, r.count, r.step}); });
    join.finish();
  }

  /// The number of the document that holds a position (empty documents hold none), and all its positions.
  constexpr index_t document_of(index_t global) const {
    return static_cast<index_t>(std::upper_bound(bounds.begin(), bounds.end(), global) - bounds.begin()) - 1;
  }
  constexpr interval document_at(index_t global) const {
    const index_t document = document_of(global);
    return {begin_of(document), begin_of(document + 1)};
  }

  constexpr flaw problem() const {
    if (bounds.empty() || bounds.front() != 0) return "per_document: bounds must begin with 0";
    if (!bounds.ascends()) return "per_document: bounds must ascend";
    if (const flaw wrong = problem_of(deal.resized(0))) return wrong;
    return detail::problem_of_sizes(token_count(), rank_count());
  }
  friend constexpr bool operator==(const per_document& a, const per_document& b) {
    return a.bounds == b.bounds && a.deal.resized(0) == b.deal.resized(0);
  }

 private:
  constexpr index_t begin_of(index_t document) const { return bounds[static_cast<std::size_t>(document)]; }
  constexpr Deal deal_of(index_t document) const { return deal.resized(begin_of(document + 1) - begin_of(document)); }
  constexpr index_t rows_before(int rank, index_t document) const {
    index_t rows = 0;
    for (index_t d = 0; d < document; ++d) rows += deal_of(d).count_of(rank);
    return rows;
  }
};
template <class Bounds, class Deal>
per_document(const Bounds&, Deal) -> per_document<Deal>;

}  // namespace v0_1
}  // namespace seqpar
