// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Does every wanted row have an owner, and only one? Asked for holdings that do not come from a layout.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/exchange/route.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// The holdings of all ranks, searched as one: an index for each range of columns that occurs.
class ownership {
 public:
  template <class = when_used>
  ownership(int ranks, function_ref<holding(int)> holds) {
    for (int r = 0; r < ranks; ++r) holdings_.push_back(holds(r));
    std::vector<holding> by_columns;
    for (const holding& h : holdings_) {
      auto same = by_columns.begin();
      while (same != by_columns.end() && same->columns != h.columns) ++same;
      if (same == by_columns.end()) {
        by_columns.push_back(h);
        continue;
      }
      for (const row_piece& p : h.pieces) same->pieces.push_back(p);
    }
    for (const holding& h : by_columns) index_.push_back({h.columns, holding_index(h)});
  }

  int ranks() const { return static_cast<int>(holdings_.size()); }
  const holding& of(int rank) const { return holdings_[static_cast<std::size_t>(rank)]; }

  /// How many entries of `want` are held, each counted as often as it is.
  template <class = when_used>
  index_t entries_of(const holding& want) const {
    index_t n = 0;
    for (const auto& [columns, index] : index_)
      if (const interval both = intersection(columns, want.columns); !both.empty())
        n += both.size() * index.common_rows(want);
    return n;
  }

  /// Is no entry held twice?
  template <class = when_used>
  bool disjoint() const {
    return crowded_rank() < 0;
  }

  /// The same, in words.
  template <class = when_used>
  failure two_owners(const char* where) const {
    const int a = crowded_rank();
    if (a < 0) return {};
    const holding& first = of(a);
    for (std::size_t i = 0; i < first.pieces.size(); ++i)
      for (int b = 0; b < ranks(); ++b) {
        const holding& second = of(b);
        if (intersection(first.columns, second.columns).empty()) continue;
        for (std::size_t j = 0; j < second.pieces.size(); ++j) {
          if (b == a && i == j) continue;
          const common_run o = intersect(first.pieces[i].rows, second.pieces[j].rows);
          if (o.count == 0) continue;
          return invalid(where, "row " + std::to_string(first.pieces[i].rows.at(o.a_first)) +
                                    " has two owners (ranks " + std::to_string(a) + " and " + std::to_string(b) +
                                    "); let every row be held by exactly one rank");
        }
      }
    return {};
  }

 private:
  /// The lowest rank that holds an entry which is held twice; −1: there is none.
  template <class = when_used>
  int crowded_rank() const {
    for (int r = 0; r < ranks(); ++r)
      if (entries_of(of(r)) != of(r).entries()) return r;
    return -1;
  }

  std::vector<holding> holdings_;
  std::vector<std::pair<interval, holding_index>> index_;
};

/// What is wrong with the holding of `rank` by itself; a row of memory has `columns` columns.
template <class = when_used>
failure check_holding(const char* where, const holding& h, int rank, index_t columns) {
  const auto fail = [&](const char* what) { return invalid(where, "rank " + std::to_string(rank) + what); };
  if (h.columns.lo < 0 || h.columns.hi < h.columns.lo || h.columns.hi > columns)
    return fail(" has or wants columns that a row does not have; stay inside options.columns");
  holding places{{}, {0, 1}};
  for (const row_piece& p : h.pieces) {
    if (p.rows.count < 0 || p.rows.step == 0)
      return fail(" has or wants a run of rows with a negative count or step 0; give count >= 0 and another step");
    if (p.rows.count == 0) continue;
    if (p.place < 0 || p.place + (p.rows.count - 1) * p.place_step < 0 || (p.rows.count > 1 && p.place_step == 0))
      return fail(" has or wants rows at a negative place or with place_step 0; give every row a place of its own");
    places.append({p.place, p.rows.count, p.place_step}, 0);
  }
  if (!ownership(1, [&](int) { return places; }).disjoint())
    return fail(" has or wants several rows at one place; give every row a place of its own");
  return {};
}

/// In one buffer, a place that holds an owned row may be wanted for that row only: another would overwrite it.
template <class = when_used>
failure check_in_place(const char* where, const holding& owned, const holding& wanted, int rank) {
  const auto by_place = [](const holding& h) {
    holding places;
    for (const row_piece& p : h.pieces)
      if (p.rows.count > 0) places.pieces.push_back({{p.place, p.rows.count, p.place_step}, p.rows.first, p.rows.step});
    return places;
  };
  bool same = true;
  holding_index(by_place(owned))
      .for_each_common(
          by_place(wanted), [&](index_t has, index_t has_step, index_t want, index_t want_step, index_t n) {
            same = same && has == want && (n == 1 || has_step == want_step) && owned.columns == wanted.columns;
          });
  if (same) return {};
  return invalid(where, "rank " + std::to_string(rank) +
                            " wants other rows or columns at places where it owns rows, which they would overwrite in "
                            "one buffer; use placement::apart or other places");
}

/// Two owners of one row, or a wanted row without one; the same answer on every rank.
template <class = when_used>
failure check_ownership(const char* where, const ownership& holds, const ownership& wants) {
  if (failure f = holds.two_owners(where)) return f;
  for (int r = 0; r < wants.ranks(); ++r) {
    const holding& w = wants.of(r);
    if (const index_t missing = w.entries() - holds.entries_of(w); missing > 0)
      return invalid(where, "rank " + std::to_string(r) + " wants " + std::to_string(missing) +
                                " entries that no rank owns; let every wanted row have an owner");
  }
  return {};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
