// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the layout tests share: the positions of every rank, as vectors.
#pragma once

#include <numeric>
#include <vector>

#include <seqpar/layout/concept.hpp>

namespace layout_test {

using seqpar::index_t;
using shard = std::vector<index_t>;

template <seqpar::sequence_layout L>
shard rows_of(const L& layout, int rank) {
  shard rows;
  for (index_t i = 0; i < layout.count_of(rank); ++i) rows.push_back(layout.global_of(rank, i));
  return rows;
}

template <seqpar::sequence_layout L>
std::vector<shard> shards_of(const L& layout) {
  std::vector<shard> all;
  for (int rank = 0; rank < layout.rank_count(); ++rank) all.push_back(rows_of(layout, rank));
  return all;
}

template <seqpar::sequence_layout L>
std::vector<index_t> counts_of(const L& layout) {
  std::vector<index_t> counts;
  for (int rank = 0; rank < layout.rank_count(); ++rank) counts.push_back(layout.count_of(rank));
  return counts;
}

/// first, first + 1, …, last.
inline shard from_to(index_t first, index_t last) {
  shard rows(static_cast<std::size_t>(last - first + 1));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

template <class... Shards>
shard joined(const Shards&... shards) {
  shard all;
  (all.insert(all.end(), shards.begin(), shards.end()), ...);
  return all;
}

/// How many runs a layout gives for a rank, and how many would do.
template <seqpar::sequence_layout L>
index_t runs_of(const L& layout, int rank) {
  index_t runs = 0;
  seqpar::for_each_run(layout, rank, [&](seqpar::run) { ++runs; });
  return runs;
}

/// The greedy cut of a list into affine runs, which no cut beats.
inline index_t fewest_runs(const shard& rows) {
  index_t runs = 0;
  for (std::size_t i = 0; i < rows.size(); ++runs) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end] - rows[end - 1] == rows[i + 1] - rows[i]) ++end;
    i = end;
  }
  return runs;
}

/// How many (query, key) pairs each rank attends to when its own tokens are the queries.
template <seqpar::sequence_layout L, class Allows>
std::vector<index_t> pairs_of(const L& layout, Allows allows) {
  std::vector<index_t> pairs;
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    index_t n = 0;
    for (const index_t q : rows_of(layout, rank))
      for (index_t k = 0; k < layout.token_count(); ++k) n += allows(q, k) ? 1 : 0;
    pairs.push_back(n);
  }
  return pairs;
}

/// The order of the other axis: position i holds row n−1−i.
struct backwards {
  index_t tokens;
  constexpr index_t from(index_t i) const { return tokens - 1 - i; }
  constexpr index_t to(index_t i) const { return tokens - 1 - i; }
  friend constexpr bool operator==(backwards, backwards) = default;
};

}  // namespace layout_test
