// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The laws that every layout must keep, run on a value: each row, or samples of 2^40.
#pragma once

#include <cstdint>

#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The laws by name; what the functions below return when one is broken.
struct layout_law {
  static constexpr const char* counts = "the counts of the ranks add up to token_count";
  static constexpr const char* inside = "global_of stays inside 0 ... token_count-1";
  static constexpr const char* one_owner = "no two rows hold one position";
  static constexpr const char* place = "place_of inverts global_of";
  static constexpr const char* global = "global_of inverts place_of";
  static constexpr const char* runs = "the runs of a rank spell global_of in order";
  static constexpr const char* documents = "documents hold their positions and follow one another";
  static constexpr const char* resized =
      "resized(n) has n tokens and as many ranks, and resized(token_count) is itself";
};

namespace detail {

template <sequence_layout L>
constexpr bool is_row(const L& layout, place p) {
  return 0 <= p.rank && p.rank < layout.rank_count() && 0 <= p.local && p.local < layout.count_of(p.rank);
}

template <sequence_layout L>
constexpr const char* broken_law_of_row(const L& layout, index_t tokens, place row) {
  const index_t global = layout.global_of(row.rank, row.local);
  if (global < 0 || global >= tokens) return layout_law::inside;
  const place found = layout.place_of(global);
  if (found == row) return nullptr;
  const bool twice = is_row(layout, found) && layout.global_of(found.rank, found.local) == global;
  return twice ? layout_law::one_owner : layout_law::place;
}

template <sequence_layout L>
constexpr const char* broken_law_of_position(const L& layout, index_t global) {
  const place p = layout.place_of(global);
  return is_row(layout, p) && layout.global_of(p.rank, p.local) == global ? nullptr : layout_law::global;
}

/// Sizes: the value's own problem, the counts, and what resized gives.
template <sequence_layout L>
constexpr const char* broken_law_of_sizes(const L& layout) {
  if (const flaw wrong = problem_of(layout)) return wrong;
  index_t sum = 0;
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    if (layout.count_of(rank) < 0) return layout_law::counts;
    sum += layout.count_of(rank);
  }
  if (layout.rank_count() < 1 || sum != layout.token_count()) return layout_law::counts;
  if constexpr (resizable_layout<L>) {
    const L other = layout.resized(sum + 1);
    if (other.token_count() != sum + 1 || other.rank_count() != layout.rank_count() || !(layout.resized(sum) == layout))
      return layout_law::resized;
  }
  return nullptr;
}

}  // namespace detail

/// Do the runs of every rank spell global_of? Looks at every row of runs of up to `rows` rows, and at that many rows,
/// evenly spread, of longer ones; costs O(runs · rows).
template <sequence_layout L>
constexpr const char* broken_run_law(const L& layout, index_t rows = 3) {
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    const index_t count = layout.count_of(rank);
    index_t begin = 0;
    bool sound = true;
    for_each_run(layout, rank, [&](run r) {
      sound = sound && r.count >= 0 && r.count <= count - begin && (r.count < 2 || r.step != 0);
      if (!sound || r.count == 0) return;
      const index_t looks = r.count < rows ? r.count : rows, gaps = looks > 1 ? looks - 1 : 1;
      for (index_t k = 0; k < looks; ++k) {
        const index_t last = r.count - 1, i = last / gaps * k + last % gaps * k / gaps;
        sound = sound && layout.global_of(rank, begin + i) == r.at(i);
      }
      begin += r.count;
    });
    if (!sound || begin != count) return layout_law::runs;
  }
  return nullptr;
}

/// Do the documents follow one another over all positions? Looks at each.
template <sequence_layout L>
constexpr const char* broken_document_law(const L& layout) {
  interval d;
  for (index_t g = 0; g < layout.token_count(); ++g) {
    const interval before = d;
    d = document_at(layout, g);
    if (!d.contains(g) || !(g == d.lo ? g == before.hi : d == before)) return layout_law::documents;
  }
  return d.hi == layout.token_count() ? nullptr : layout_law::documents;
}

/// nullptr, or the first law that the layout breaks, or its own problem(). Looks at every row of every rank; that
/// global_of inverts place_of follows by counting. The same in a constant expression.
template <sequence_layout L>
constexpr const char* broken_layout_law(const L& layout) {
  if (const char* law = detail::broken_law_of_sizes(layout)) return law;
  const index_t tokens = layout.token_count();
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    const index_t count = layout.count_of(rank);
    for (index_t i = 0; i < count; ++i)
      if (const char* law = detail::broken_law_of_row(layout, tokens, {rank, i})) return law;
  }
  if (const char* law = broken_run_law(layout, tokens)) return law;
  return broken_document_law(layout);
}

/// The same for layouts too long to look at whole: the first and last row of every rank, and `samples` rows and
/// positions chosen by `seed`. Documents are not looked at. Runs are looked at in layouts of up to 2^20 tokens, and in
/// resized(2^20) of longer ones that have it; since there may be too many, those of others are left to broken_run_law.
template <sequence_layout L>
constexpr const char* broken_layout_law_sampled(const L& layout, std::uint64_t seed, index_t samples) {
  if (const char* law = detail::broken_law_of_sizes(layout)) return law;
  const index_t tokens = layout.token_count();
  if (tokens == 0) return nullptr;
  const auto below = [&seed](index_t n) {  // splitmix64
    std::uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<index_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(n));
  };
  const auto row_law = [&](int rank, index_t i) { return detail::broken_law_of_row(layout, tokens, {rank, i}); };
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    const index_t count = layout.count_of(rank);
    if (count == 0) continue;
    if (const char* law = row_law(rank, 0)) return law;
    if (const char* law = row_law(rank, count - 1)) return law;
  }
  for (const index_t global : {index_t{0}, tokens - 1})
    if (const char* law = detail::broken_law_of_position(layout, global)) return law;
  for (index_t s = 0; s < samples; ++s) {
    const int rank = static_cast<int>(below(layout.rank_count()));
    const index_t count = layout.count_of(rank);
    if (count > 0)
      if (const char* law = row_law(rank, below(count))) return law;
    if (const char* law = detail::broken_law_of_position(layout, below(tokens))) return law;
  }
  if constexpr (has_runs<L>) {
    constexpr index_t most = index_t{1} << 20;
    if (tokens <= most) return broken_run_law(layout);
    if constexpr (resizable_layout<L>) return broken_run_law(layout.resized(most));
  }
  return nullptr;
}

}  // namespace v0_1
}  // namespace seqpar
