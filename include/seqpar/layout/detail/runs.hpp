// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs joined to as few as possible, and runs seen through another layout.
#pragma once

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

/// f(run) for affine pieces of layout.global_of(rank, rows.at(i)), i = 0, 1, …
/// `layout_runs` is how many runs the layout has for that rank: the shorter of the two ways is taken.
template <sequence_layout L, class F>
constexpr void for_each_run_through(const L& layout, int rank, run rows, index_t layout_runs, F&& f) {
  if (rows.step < 1 || rows.count <= layout_runs) {
    for (index_t i = 0; i < rows.count; ++i) f(run{layout.global_of(rank, rows.at(i)), 1, 1});
    return;
  }
  index_t begin = 0;  // the layout's rows [begin, end) are the run at hand
  seqpar::for_each_run(layout, rank, [&](run outer) {
    const index_t end = begin + outer.count;
    // The i with begin ≤ rows.first + i·step < end.
    const index_t lo = begin <= rows.first ? 0 : (begin - rows.first + rows.step - 1) / rows.step;
    const index_t to = end <= rows.first ? 0 : (end - rows.first + rows.step - 1) / rows.step;
    const index_t hi = to < rows.count ? to : rows.count;
    if (lo < hi) f(run{outer.at(rows.at(lo) - begin), hi - lo, outer.step * rows.step});
    begin = end;
  });
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
