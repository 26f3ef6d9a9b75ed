// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rank r owns the r-th piece from the front and the r-th from the back, of 2P pieces.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// global(r, i) = begin(r) + i in the front piece, then begin(2P−1−r) + i − size(r) in the back piece. Causal work is
/// the same on every rank when 2P divides the tokens. Source: ring-flash-attention, Llama 3, TransformerEngine.
struct zigzag {
  extent tokens;
  extent ranks;
  extent granule = 1;  ///< tokens never cut apart: a frame, a block
  uneven rule = uneven::first_get_more;

  SEQPAR_HD constexpr index_t token_count() const { return tokens; }
  SEQPAR_HD constexpr int rank_count() const { return static_cast<int>(ranks); }
  SEQPAR_HD constexpr index_t count_of(int rank) const { return cut().size_of(rank) + cut().size_of(back(rank)); }
  SEQPAR_HD constexpr index_t global_of(int rank, index_t local) const {
    const index_t front_rows = cut().size_of(rank);
    return local < front_rows ? cut().begin_of(rank) + local : cut().begin_of(back(rank)) + local - front_rows;
  }
  SEQPAR_HD constexpr place place_of(index_t global) const {
    const index_t piece = cut().piece_of(global), row = global - cut().begin_of(piece);
    if (piece < ranks) return {static_cast<int>(piece), row};
    return {static_cast<int>(back(piece)), cut().size_of(back(piece)) + row};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    detail::run_joiner join(f);
    join(run{cut().begin_of(rank), cut().size_of(rank), 1});
    join(run{cut().begin_of(back(rank)), cut().size_of(back(rank)), 1});
    join.finish();
  }

  SEQPAR_HD constexpr zigzag resized(index_t n) const { return {n, ranks, granule, rule}; }
  constexpr flaw problem() const { return detail::problem_of_sizes(tokens, ranks, granule); }
  friend constexpr bool operator==(const zigzag&, const zigzag&) = default;

 private:
  SEQPAR_HD constexpr pieces cut() const { return {tokens, 2 * ranks, granule, rule}; }
  SEQPAR_HD constexpr index_t back(index_t piece) const { return 2 * ranks - 1 - piece; }
};

}  // namespace v0_1
}  // namespace seqpar
