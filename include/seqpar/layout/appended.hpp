// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A key/value cache: a prefill dealt by any layout, and behind it tokens that come one by one and are dealt in turn.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/layout/pieces.hpp>
#include <seqpar/layout/striped.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The first n = prefill.token_count() tokens lie as `prefill` says. Token t ≥ n goes to rank ⌊(t − n)/g⌋ mod P with
/// g = granule, behind what that rank holds, so rows never move while the cache grows:
///
///   global(r, i) = prefill(r, i)                                      for i < prefill.count_of(r)
///                  n + (⌊j/g⌋·P + r)·g + j mod g                      else, with j = i − prefill.count_of(r)
///
/// granule 1 is round robin. place_of answers for tokens to come as well. Source: Helix parallelism, decode context
/// parallelism of vLLM.
template <sequence_layout Prefill>
struct appended {
  Prefill prefill;
  extent added = 0;    ///< tokens behind the prefill
  extent granule = 1;  ///< tokens that one rank takes before it is the next one's turn

  constexpr index_t token_count() const { return prefill.token_count() + added; }
  constexpr int rank_count() const { return static_cast<int>(prefill.rank_count()); }
  constexpr index_t count_of(int rank) const { return prefill.count_of(rank) + tail().count_of(rank); }
  constexpr index_t global_of(int rank, index_t local) const {
    const index_t before = prefill.count_of(rank);
    return local < before ? prefill.global_of(rank, local)
                          : prefill.token_count() + tail().global_of(rank, local - before);
  }
  constexpr place place_of(index_t global) const {
    const index_t before = prefill.token_count();
    if (global < before) return prefill.place_of(global);
    const place behind = tail().place_of(global - before);
    return {behind.rank, prefill.count_of(behind.rank) + behind.local};
  }
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    detail::run_joiner join(f);
    seqpar::for_each_run(prefill, rank, [&](run r) { join(r); });
    tail().for_each_run(rank, [&](run r) { join({prefill.token_count() + r.first, r.count, r.step}); });
    join.finish();
  }

  /// Tokens behind the prefill go on with its last document.
  constexpr interval document_at(index_t global) const requires has_documents<Prefill> {
    const index_t before = prefill.token_count();
    if (before == 0) return {0, token_count()};
    const interval d = prefill.document_at(global < before ? global : before - 1);
    return {d.lo, d.hi < before ? d.hi : token_count()};
  }

  /// The cache with `by` more tokens.
  constexpr appended grown(index_t by) const { return {prefill, added + by, granule}; }
  /// The most rows that any rank holds once there are `tokens` tokens: what every rank's cache needs room for.
  constexpr index_t rows_for(index_t tokens) const {
    const appended then = grown(tokens - token_count());
    index_t most = 0;
    for (int rank = 0; rank < rank_count(); ++rank)
      if (const index_t rows = then.count_of(rank); rows > most) most = rows;
    return most;
  }

  /// The same prefill with more or fewer tokens behind it; where n is less than the prefill, less of that.
  constexpr appended resized(index_t n) const requires resizable_layout<Prefill> {
    if (n < prefill.token_count()) return {prefill.resized(n), 0, granule};
    return {prefill, n - prefill.token_count(), granule};
  }
  constexpr flaw problem() const {
    if (const flaw wrong = problem_of(prefill)) return wrong;
    if (const flaw wrong = detail::problem_of_sizes(added, prefill.rank_count(), granule)) return wrong;
    return added > unbounded - prefill.token_count() ? "layout: more than 2^62 tokens; give fewer" : nullptr;
  }
  friend bool operator==(const appended&, const appended&) = default;  // constexpr where the prefill's is

 private:
  constexpr striped tail() const { return {added, prefill.rank_count(), granule}; }
};
template <class Prefill>
appended(Prefill) -> appended<Prefill>;
template <class Prefill, class Added>
appended(Prefill, Added) -> appended<Prefill>;
template <class Prefill, class Added, class Granule>
appended(Prefill, Added, Granule) -> appended<Prefill>;

}  // namespace v0_1
}  // namespace seqpar
