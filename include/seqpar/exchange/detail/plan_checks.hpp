// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every plan checks of the layouts and members it is given.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include <seqpar/error.hpp>
#include <seqpar/exchange/ownership.hpp>
#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Is the product of sizes ≥ 0 above 2^62?
inline bool exceeds_64_bits(std::initializer_list<index_t> sizes) {
  long double product = 1;
  for (index_t n : sizes) product *= static_cast<long double>(n);
  return product > 0x1p62L;
}

/// A bijection by its rule, whatever its members say. Families that contain another layout are so if that one is.
template <class L>
inline constexpr bool deals_once = false;
template <>
inline constexpr bool deals_once<contiguous> = true;
template <>
inline constexpr bool deals_once<zigzag> = true;
template <>
inline constexpr bool deals_once<striped> = true;
template <>
inline constexpr bool deals_once<grid> = true;
template <class Inner>
inline constexpr bool deals_once<paired<Inner>> = deals_once<Inner>;
template <class Outer, class Inner>
inline constexpr bool deals_once<nested<Outer, Inner>> = deals_once<Outer>&& deals_once<Inner>;
template <class L>
inline constexpr bool deals_once<per_document<L>> = deals_once<L>;
template <class L>
inline constexpr bool deals_once<appended<L>> = deals_once<L>;

/// Do the runs spell global_of? Of layouts of the user's making some rows of every run are compared; those of
/// `segments` are the table itself.
template <class L>
constexpr bool runs_are_right(const L& layout) {
  if constexpr (has_runs<L> && !deals_once<L> && !std::same_as<L, segments>)
    return broken_run_law(layout) == nullptr;
  else
    return true;
}

/// Has every token one owner? A few rows of every rank are tried, and for layouts of the user's making all runs.
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
      const std::string row = sentence({name, ": row ", g});
      if (p.rank >= 0 && p.rank != r)
        return invalid(where, {row, " has two owners (ranks ", std::min(r, p.rank), " and ", std::max(r, p.rank),
                               "); let every row be held by exactly one rank"});
      return invalid(where, {row, " is at local row ", i, " of rank ", r,
                             ", but place_of says otherwise; try broken_layout_law (layout/laws.hpp) on it"});
    }
  }
  if (rows != tokens)
    return invalid(
        where, {name, " gives ", rows, " rows to the ranks, of ", tokens, " tokens; let every token have one owner"});
  if (!runs_are_right(layout))
    return invalid(where, {name,
                           ": the runs of a rank do not spell global_of(rank, 0), global_of(rank, 1), ...; mend "
                           "for_each_run, or leave it out"});
  if constexpr (!deals_once<L>)
    return ownership(layout.rank_count(), [&](int r) { return holding_of(layout, r); })
        .two_owners(sentence({where, ": ", name}).c_str());
  return {};
}

template <class L>
failure check_layout(const char* where, const char* name, const L& layout, int ranks) {
  if (const flaw what = problem_of(layout)) return invalid(where, {name, ": ", what});
  if (layout.rank_count() != ranks)
    return invalid(where, {name, " is dealt over ", layout.rank_count(), " ranks, the mesh has ", ranks,
                           "; give both the same number"});
  return check_owners(where, name, layout);
}

inline failure check_root(const char* where, int root, int ranks) {
  if (root >= 0 && root < ranks) return {};
  return invalid(where, {"root ", root, " is not one of ", ranks, " members"});
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
