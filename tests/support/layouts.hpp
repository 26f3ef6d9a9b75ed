// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts and orders of a caller's own, right and wrong.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/contiguous.hpp>

namespace seqpar::test {

/// Contiguous, but row 1 of rank 1 claims position 1, which is rank 0's.
struct claims_twice {
  index_t tokens;
  int ranks;
  index_t each() const { return tokens / ranks; }
  index_t token_count() const { return tokens; }
  int rank_count() const { return ranks; }
  index_t count_of(int) const { return each(); }
  index_t global_of(int rank, index_t local) const { return rank == 1 && local == 1 ? 1 : rank * each() + local; }
  place place_of(index_t g) const { return {static_cast<int>(g / each()), g % each()}; }
  claims_twice resized(index_t n) const { return {n, ranks}; }
  friend bool operator==(const claims_twice&, const claims_twice&) = default;
};
/// Contiguous; its runs are pieces of five rows of which the last comes first, so that they spell other rows than
/// global_of.
struct runs_backwards : contiguous {
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const index_t n = count_of(rank), first = global_of(rank, 0);
    for (index_t i = (n - 1) / 5 * 5; i >= 0; i -= 5) f(run{first + i, n - i < 5 ? n - i : 5, 1});
  }
  friend constexpr bool operator==(const runs_backwards&, const runs_backwards&) = default;
};
/// No bijection: 5 and 6 both become 6.
struct merges_two {
  index_t from(index_t i) const { return i == 5 ? 6 : i; }
  index_t to(index_t i) const { return i; }
  friend bool operator==(const merges_two&, const merges_two&) = default;
};
/// Two positions change places.
struct swapped {
  index_t a, b;
  constexpr index_t from(index_t i) const { return i == a ? b : i == b ? a : i; }
  constexpr index_t to(index_t i) const { return from(i); }
  friend constexpr bool operator==(swapped, swapped) = default;
};

}  // namespace seqpar::test
