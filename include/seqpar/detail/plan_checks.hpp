// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every plan checks of the layouts and members it is given.
#pragma once

#include <algorithm>
#include <string>

#include <seqpar/error.hpp>
#include <seqpar/exchange/ownership.hpp>
#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Made of a table of runs, which may say anything; other families are bijections by their rule, and the laws' matter.
template <class L>
concept tabled_layout = requires(const L& layout) {
  layout.runs;
  layout.offsets;
};

/// Has every token one owner? Exact for tables; for rules a few rows of every rank are tried.
template <class L>
failure check_owners(const char* where, const char* name, const L& layout) {
  const index_t tokens = layout.token_count();
  index_t rows = 0;
  for (int r = 0; r < layout.rank_count(); ++r) {
    const index_t n = layout.count_of(r);
    rows += n;
    for (index_t i = 0; i < n; i = i < n - 1 ? std::min(i + 1 + n / 3, n - 1) : n) {
      const index_t g = layout.global_of(r, i);
      const place p = g < 0 || g >= tokens ? place{-1, -1} : layout.place_of(g);
      if (p == place{r, i}) continue;
      const std::string row = std::string(name) + ": row " + std::to_string(g);
      if (p.rank >= 0 && p.rank != r)
        return invalid(where, row + " has two owners (ranks " + std::to_string(std::min(r, p.rank)) + " and " +
                                  std::to_string(std::max(r, p.rank)) + "); let every row be held by exactly one rank");
      return invalid(where, row + " is at local row " + std::to_string(i) + " of rank " + std::to_string(r) +
                                ", but place_of says otherwise; run the layout through layout/laws.hpp");
    }
  }
  if (rows != tokens)
    return invalid(where, std::string(name) + " gives " + std::to_string(rows) + " rows to the ranks, of " +
                              std::to_string(tokens) + " tokens; let every token have one owner");
  if constexpr (tabled_layout<L>)
    return ownership(layout.rank_count(), [&](int r) { return holding_of(layout, r); })
        .two_owners((std::string(where) + ": " + name).c_str());
  return {};
}

template <class L>
failure check_layout(const char* where, const char* name, const L& layout, int ranks) {
  if (const char* what = problem_of(layout)) return invalid(where, std::string(name) + ": " + what);
  if (layout.rank_count() != ranks)
    return invalid(where, std::string(name) + " is dealt over " + std::to_string(layout.rank_count()) +
                              " ranks, the mesh has " + std::to_string(ranks) + "; give both the same number");
  return check_owners(where, name, layout);
}

inline failure check_root(const char* where, int root, int ranks) {
  if (root >= 0 && root < ranks) return {};
  return invalid(where, "root " + std::to_string(root) + " is not one of " + std::to_string(ranks) + " members");
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
