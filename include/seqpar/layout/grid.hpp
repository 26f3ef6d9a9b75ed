// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Frames of height × width tokens, cut into tiles over a grid of ranks.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A number of ranks as h × w.
struct grid_split {
  index_t h, w;
  friend constexpr bool operator==(grid_split, grid_split) = default;
};

/// The factor pair h ≤ w of `ranks` with the least difference: LongCat-Video's rule, which does not see the shape.
SEQPAR_HD constexpr grid_split near_square(index_t ranks) {
  grid_split best{1, ranks};
  for (index_t h = 1; h <= ranks / h; ++h)
    if (ranks % h == 0) best = {h, ranks / h};
  return best;
}

/// Of all factor pairs, those that divide the shape before others, then the one whose largest tile has the smallest
/// perimeter, then the smaller h. Where none divides, the tiles are uneven.
SEQPAR_HD constexpr grid_split best_split(index_t height, index_t width, index_t ranks) {
  grid_split best{1, ranks};
  index_t least = -1;
  bool best_divides = false;
  for (index_t h = 1; h <= ranks; ++h) {
    if (ranks % h != 0) continue;
    const index_t w = ranks / h;
    const bool divides = height % h == 0 && width % w == 0;
    const index_t half_perimeter = (height + h - 1) / h + (width + w - 1) / w;
    if (least >= 0 && (divides != best_divides ? best_divides : half_perimeter >= least)) continue;
    best = {h, w};
    least = half_perimeter;
    best_divides = divides;
  }
  return best;
}

/// Tokens are numbered t, h, w (w fastest). Rank a·split_w + b owns tile (a, b) of every frame, in t, h, w order:
///
///   global(a·split_w + b, (t·hs + y)·ws + x) = (t·H + h0(a) + y)·W + w0(b) + x, tile hs × ws at (h0, w0)
///
/// Frames are never split; height and width are cut by `rule`. Source: LongCat-Video's context parallel.
struct grid {
  extent frames, height, width;
  extent split_h, split_w;
  uneven rule = uneven::first_get_more;

  SEQPAR_HD constexpr index_t token_count() const { return frames * height * width; }
  SEQPAR_HD constexpr int rank_count() const { return static_cast<int>(split_h * split_w); }
  SEQPAR_HD constexpr index_t count_of(int rank) const { return frames * h_span(rank).size() * w_span(rank).size(); }
  SEQPAR_HD constexpr index_t global_of(int rank, index_t local) const {
    const interval h = h_span(rank), w = w_span(rank);
    const index_t x = local % w.size(), y = local / w.size() % h.size(), t = local / w.size() / h.size();
    return (t * height + h.lo + y) * width + w.lo + x;
  }
  SEQPAR_HD constexpr place place_of(index_t global) const {
    const index_t x = global % width, y = global / width % height, t = global / width / height;
    const int rank = static_cast<int>(h_cut().piece_of(y) * split_w + w_cut().piece_of(x));
    const interval h = h_span(rank), w = w_span(rank);
    return {rank, (t * h.size() + y - h.lo) * w.size() + x - w.lo};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const interval h = h_span(rank), w = w_span(rank);
    if (count_of(rank) == 0) return;
    detail::run_joiner join(f);
    if (w.size() == width)  // whole rows: one piece a frame
      for (index_t t = 0; t < frames; ++t) join(run{(t * height + h.lo) * width, h.size() * width, 1});
    else
      for (index_t t = 0; t < frames; ++t)
        for (index_t y = h.lo; y < h.hi; ++y) join(run{(t * height + y) * width + w.lo, w.size(), 1});
    join.finish();
  }

  /// The rows and the columns of a rank's tile.
  SEQPAR_HD constexpr interval h_span(int rank) const {
    const index_t a = rank / split_w;
    return {h_cut().begin_of(a), h_cut().begin_of(a + 1)};
  }
  SEQPAR_HD constexpr interval w_span(int rank) const {
    const index_t b = rank % split_w;
    return {w_cut().begin_of(b), w_cut().begin_of(b + 1)};
  }

  constexpr flaw problem() const {
    for (index_t n : {frames, height, width})
      if (n < 0) return {"grid: frames, height or width is negative; give 0 or more", n};
    for (index_t n : {split_h, split_w})
      if (n < 1) return {"grid: split_h or split_w is below 1; give 1 or more", n};
    if (height > 0 && width > unbounded / height) return "grid: more than 2^62 tokens; give fewer";
    if (height * width > 0 && frames > unbounded / (height * width)) return "grid: more than 2^62 tokens; give fewer";
    if (split_w > unbounded / split_h) return "grid: more ranks than an int holds; give fewer";
    return detail::problem_of_sizes(token_count(), split_h * split_w);
  }
  friend constexpr bool operator==(const grid&, const grid&) = default;

 private:
  SEQPAR_HD constexpr pieces h_cut() const { return {height, split_h, 1, rule}; }
  SEQPAR_HD constexpr pieces w_cut() const { return {width, split_w, 1, rule}; }
};

}  // namespace v0_1
}  // namespace seqpar
