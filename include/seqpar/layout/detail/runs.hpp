// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs joined to as few as possible, and runs cut by others.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Passes runs on to f, joined where they continue one another; a run of one row gets step 1. Call finish() at the end.
template <class F>
class run_joiner {
 public:
  constexpr explicit run_joiner(F& f) : f_(f) {}

  constexpr void operator()(run next) {
    if (next.count <= 0) return;
    const index_t step = held_.count == 1 ? next.first - held_.first : held_.step;
    const bool continues = held_.count > 0 && step != 0 && next.first == held_.first + held_.count * step &&
                           (next.count == 1 || next.step == step);
    if (continues) {
      held_ = {held_.first, held_.count + next.count, step};
    } else {
      finish();
      held_ = {next.first, next.count, next.count == 1 ? 1 : next.step};
    }
  }

  constexpr void finish() {
    if (held_.count > 0) f_(held_);
    held_ = {0, 0, 1};
  }

 private:
  F& f_;
  run held_{0, 0, 1};
};

/// A layout as planning reads it, whatever its type: the runs of every rank, joined.
struct layout_rows {
  template <class L>
  requires(!std::same_as<L, layout_rows> && sequence_layout<L>) layout_rows(const L& layout)
      : tokens(layout.token_count()), of_rank(static_cast<std::size_t>(layout.rank_count())) {
    int rank = 0;
    for (std::vector<run>& list : of_rank) {
      const auto keep = [&](run r) { list.push_back(r); };
      run_joiner joined(keep);
      seqpar::for_each_run(layout, rank++, joined);
      joined.finish();
    }
  }
  const std::vector<run>& of(int rank) const { return of_rank[static_cast<std::size_t>(rank)]; }

  index_t tokens;
  std::vector<std::vector<run>> of_rank;
};

/// The runs of one rank of a layout, written down to be found by their rows: a cut of them takes as many steps as it
/// has pieces (rows, where it goes down), times the logarithm of the runs, however long global_of would search.
class runs_by_row {
 public:
  template <sequence_layout L>
  constexpr runs_by_row(const L& layout, int rank) {
    seqpar::for_each_run(layout, rank, [&](run r) {
      if (r.count > 0) entries_.push_back({r, rows() + r.count});
    });
  }

  /// f(run) for affine pieces of the layout's global_of(rank, cut.at(i)), i = 0, 1, …; ends at a row that is not there.
  template <class F>
  constexpr void for_each_piece(run cut, F&& f) const {
    for (index_t i = 0; i < cut.count;) {
      const index_t row = cut.at(i);
      if (row < 0 || row >= rows()) return;
      const entry& e = *std::upper_bound(entries_.begin(), entries_.end(), row,
                                         [](index_t x, const entry& any) { return x < any.end; });
      const index_t begin = e.end - e.rows.count;
      const index_t more = cut.step > 0 ? (e.end - 1 - row) / cut.step : 0;
      const index_t count = std::min(cut.count - i, more + 1);
      f(run{e.rows.at(row - begin), count, e.rows.step * cut.step});
      i += count;
    }
  }

 private:
  struct entry {
    run rows;
    index_t end;  ///< of its rows, counted through the rank
  };
  constexpr index_t rows() const { return entries_.empty() ? 0 : entries_.back().end; }
  std::vector<entry> entries_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
