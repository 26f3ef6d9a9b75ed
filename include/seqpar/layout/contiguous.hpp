// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rank r owns the r-th of P consecutive pieces.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// global(r, i) = begin(r) + i. A neighbour's tokens are the next rank's; causal work is unbalanced (r-th of P: 2r+1).
/// Source: Ring Attention, DeepSpeed-Ulysses.
struct contiguous {
  extent tokens;
  extent ranks;
  extent granule = 1;  ///< tokens never cut apart: a frame, a block
  uneven rule = uneven::first_get_more;

  SEQPAR_HD constexpr index_t token_count() const { return tokens; }
  SEQPAR_HD constexpr int rank_count() const { return static_cast<int>(ranks); }
  SEQPAR_HD constexpr index_t count_of(int rank) const { return cut().size_of(rank); }
  SEQPAR_HD constexpr index_t global_of(int rank, index_t local) const { return cut().begin_of(rank) + local; }
  SEQPAR_HD constexpr place place_of(index_t global) const {
    const index_t rank = cut().piece_of(global);
    return {static_cast<int>(rank), global - cut().begin_of(rank)};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    if (count_of(rank) > 0) f(run{cut().begin_of(rank), count_of(rank), 1});
  }

  SEQPAR_HD constexpr contiguous resized(index_t n) const { return {n, ranks, granule, rule}; }
  constexpr flaw problem() const { return detail::problem_of_sizes(tokens, ranks, granule); }
  friend constexpr bool operator==(const contiguous&, const contiguous&) = default;

 private:
  SEQPAR_HD constexpr pieces cut() const { return {tokens, ranks, granule, rule}; }
};

}  // namespace v0_1
}  // namespace seqpar
