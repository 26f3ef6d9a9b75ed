// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any runs for any rank, from the caller's table.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Rank r owns runs[offsets[r]] … runs[offsets[r+1]−1], end to end: two-stage sharding, a solver's output.
///
///   global(r, i) = the i-th position that they spell
///
/// A view: both tables stay the caller's. Every question but for_each_run searches the table. That each position has
/// exactly one owner is checked by broken_layout_law and where data moves, not by problem().
struct segments {
  table_view<run> runs;
  table_view<index_t> offsets;  ///< ranks + 1 entries, 0 first, ascending, runs.size() last

  constexpr index_t token_count() const { return rows_in(runs); }
  constexpr int rank_count() const { return static_cast<int>(offsets.size()) - 1; }
  constexpr index_t count_of(int rank) const { return rows_in(runs_of(rank)); }
  constexpr index_t global_of(int rank, index_t local) const {
    for (const run& r : runs_of(rank)) {
      if (local < r.count) return r.at(local);
      local -= r.count;
    }
    return -1;
  }
  /// {−1, −1} where the table has no owner.
  constexpr place place_of(index_t global) const {
    for (int rank = 0; rank < rank_count(); ++rank) {
      index_t before = 0;
      for (const run& r : runs_of(rank)) {
        const index_t i = (global - r.first) / r.step;
        if (i >= 0 && i < r.count && r.at(i) == global) return {rank, before + i};
        before += r.count;
      }
    }
    return {-1, -1};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    for (const run& r : runs_of(rank)) f(r);
  }

  constexpr flaw problem() const {
    if (offsets.size() < 2) return "segments: offsets must have one entry more than there are ranks";
    if (offsets.size() > std::size_t{(std::numeric_limits<int>::max)()})
      return "segments: more ranks than an int holds";
    if (offsets.front() != 0 || offsets.back() != static_cast<index_t>(runs.size()) || !offsets.ascends())
      return "segments: offsets must ascend from 0 to the number of runs";
    for (const run& r : runs)
      if (r.count < 0 || r.step == 0) return "segments: a run needs count >= 0 and step other than 0";
    const index_t tokens = token_count();
    const auto inside = [&](index_t p) { return 0 <= p && p < tokens; };
    for (const run& r : runs)
      if (r.count > 0 && !(inside(r.first) && inside(r.at(r.count - 1))))
        return "segments: a run leaves 0 ... tokens-1, where tokens is the sum of all counts";
    return nullptr;
  }
  friend constexpr bool operator==(const segments&, const segments&) = default;

 private:
  constexpr table_view<run> runs_of(int rank) const {
    const index_t begin = offsets[static_cast<std::size_t>(rank)], end = offsets[static_cast<std::size_t>(rank) + 1];
    return {runs.data() + begin, static_cast<std::size_t>(end - begin)};
  }
  static constexpr index_t rows_in(table_view<run> list) {
    index_t rows = 0;
    for (const run& r : list) rows += r.count;
    return rows;
  }
};

}  // namespace v0_1
}  // namespace seqpar
