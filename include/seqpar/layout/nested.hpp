// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two levels for a mesh: outer deals over the ring, inner deals each group's rows over the all-to-all members.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// global((r, u), i) = outer(r, inner_r(u, i)), where inner_r = inner.resized(outer.count_of(r)); the tokens that the
/// inner was made with do not matter. The union over u is the outer's share of r, so any pair is right for any mask.
///
///   inside = axis::all_to_all: rank = r·U + u        inside = axis::ring: rank = u·R + r        (as in mesh)
///
/// nested<zigzag, contiguous> is USP's zigzag, and LoongTrain's for even U.
template <sequence_layout Outer, resizable_layout Inner>
struct nested {
  Outer outer;                     ///< over the R ring groups
  Inner inner;                     ///< over the U members of a group
  axis inside = axis::all_to_all;  ///< whose members are neighbours in rank order

  constexpr int ring_of(int rank) const {
    return inside == axis::all_to_all ? rank / inner.rank_count() : rank % outer.rank_count();
  }
  constexpr int all_to_all_of(int rank) const {
    return inside == axis::all_to_all ? rank % inner.rank_count() : rank / outer.rank_count();
  }
  constexpr int rank_at(int ring, int all_to_all) const {
    return inside == axis::all_to_all ? ring * inner.rank_count() + all_to_all : all_to_all * outer.rank_count() + ring;
  }

  constexpr index_t token_count() const { return outer.token_count(); }
  constexpr int rank_count() const { return outer.rank_count() * inner.rank_count(); }
  constexpr index_t count_of(int rank) const { return inner_of(ring_of(rank)).count_of(all_to_all_of(rank)); }
  constexpr index_t global_of(int rank, index_t local) const {
    const int ring = ring_of(rank);
    return outer.global_of(ring, inner_of(ring).global_of(all_to_all_of(rank), local));
  }
  constexpr place place_of(index_t global) const {
    const place group = outer.place_of(global);
    const place member = inner_of(group.rank).place_of(group.local);
    return {rank_at(group.rank, member.rank), member.local};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const int ring = ring_of(rank);
    const detail::runs_by_row group(outer, ring);
    detail::run_joiner join(f);
    seqpar::for_each_run(inner_of(ring), all_to_all_of(rank), [&](run rows) { group.for_each_piece(rows, join); });
    join.finish();
  }

  constexpr interval document_at(index_t global) const requires has_documents<Outer> {
    return outer.document_at(global);
  }
  constexpr bool is_noisy(index_t global) const requires has_copies<Outer> { return outer.is_noisy(global); }
  constexpr nested resized(index_t n) const requires resizable_layout<Outer> {
    return {outer.resized(n), inner, inside};
  }
  constexpr flaw problem() const {
    if (const flaw wrong = problem_of(outer)) return wrong;
    if (const flaw wrong = problem_of(inner.resized(0))) return wrong;
    return detail::problem_of_sizes(token_count(), index_t{outer.rank_count()} * inner.rank_count());
  }
  friend constexpr bool operator==(const nested& a, const nested& b) {
    return a.outer == b.outer && a.inner.resized(0) == b.inner.resized(0) && a.inside == b.inside;
  }

 private:
  constexpr Inner inner_of(int ring) const { return inner.resized(outer.count_of(ring)); }
};
template <class Outer, class Inner>
nested(Outer, Inner) -> nested<Outer, Inner>;
template <class Outer, class Inner>
nested(Outer, Inner, axis) -> nested<Outer, Inner>;

}  // namespace v0_1
}  // namespace seqpar
