// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Granules are dealt to the ranks in turn, like cards.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// global(r, i) = (⌊i/g⌋·P + r)·g + i mod g, with g = granule. Causal work differs by at most one granule a row.
/// There is no uneven rule: the first ranks get one more. Source: Striped Attention.
struct striped {
  extent tokens;
  extent ranks;
  extent granule = 1;  ///< tokens never cut apart: a frame, a block

  SEQPAR_HD constexpr index_t token_count() const { return tokens; }
  SEQPAR_HD constexpr int rank_count() const { return static_cast<int>(ranks); }
  SEQPAR_HD constexpr index_t count_of(int rank) const {
    const index_t units = tokens / granule, partial = tokens % granule;
    const index_t whole = units / ranks + (rank < units % ranks ? 1 : 0);
    return whole * granule + (rank == units % ranks ? partial : 0);
  }
  SEQPAR_HD constexpr index_t global_of(int rank, index_t local) const {
    return (local / granule * ranks + rank) * granule + local % granule;
  }
  SEQPAR_HD constexpr place place_of(index_t global) const {
    const index_t unit = global / granule;
    return {static_cast<int>(unit % ranks), unit / ranks * granule + global % granule};
  }
  /// One run when the granule is 1 or there is one rank, else one a granule.
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const index_t count = count_of(rank);
    if (count == 0) return;
    if (granule == 1 || ranks == 1 || count <= granule) {
      f(run{global_of(rank, 0), count, granule == 1 && count > 1 ? index_t{ranks} : 1});
      return;
    }
    for (index_t i = 0; i < count; i += granule)
      f(run{global_of(rank, i), count - i < granule ? count - i : index_t{granule}, 1});
  }

  SEQPAR_HD constexpr striped resized(index_t n) const { return {n, ranks, granule}; }
  constexpr flaw problem() const { return detail::problem_of_sizes(tokens, ranks, granule); }
  friend constexpr bool operator==(const striped&, const striped&) = default;
};

}  // namespace v0_1
}  // namespace seqpar
