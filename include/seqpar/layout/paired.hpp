// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clean and noisy copies of the same tokens, on the same rank.
#pragma once

#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Inner deals m tokens; this deals 2m: globally [all clean ; all noisy], on each rank [its clean ; its noisy].
///
///   global(r, i) = inner(r, i) for i < c, else m + inner(r, i − c), with c = inner.count_of(r)
///
/// Inner contiguous is LongLive-2.0's balanced SP, which balances tokens and loss; inner zigzag with .granule = block
/// balances attention too. clang 14 wants paired{zigzag{…}} or paired<zigzag>{.inner = …}.
template <sequence_layout Inner>
struct paired {
  Inner inner;

  constexpr index_t token_count() const { return 2 * inner.token_count(); }
  constexpr int rank_count() const { return inner.rank_count(); }
  constexpr index_t count_of(int rank) const { return 2 * inner.count_of(rank); }
  constexpr index_t global_of(int rank, index_t local) const {
    const index_t clean = inner.count_of(rank);
    return local < clean ? inner.global_of(rank, local) : inner.token_count() + inner.global_of(rank, local - clean);
  }
  constexpr place place_of(index_t global) const {
    const place clean = inner.place_of(global - before_copy_of(global));
    return is_noisy(global) ? place{clean.rank, inner.count_of(clean.rank) + clean.local} : clean;
  }
  /// A run never crosses from clean to noisy: what a mask allows differs there.
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const auto shifted = [&](index_t by) {
      seqpar::for_each_run(inner, rank, [&](run r) { f(run{r.first + by, r.count, r.step}); });
    };
    shifted(0);
    shifted(inner.token_count());
  }

  constexpr bool is_noisy(index_t global) const { return global >= inner.token_count(); }
  /// The copies are documents apart, and inner's documents in each.
  constexpr interval document_at(index_t global) const {
    const index_t before = before_copy_of(global);
    const interval inside = seqpar::document_at(inner, global - before);
    return {before + inside.lo, before + inside.hi};
  }
  constexpr flaw problem() const {
    if (const flaw wrong = problem_of(inner)) return wrong;
    return inner.token_count() > unbounded / 2 ? "paired: more than 2^61 tokens a copy; give fewer" : nullptr;
  }
  friend constexpr bool operator==(const paired&, const paired&) = default;

 private:
  constexpr index_t before_copy_of(index_t global) const { return is_noisy(global) ? index_t{inner.token_count()} : 0; }
};
template <class Inner>
paired(Inner) -> paired<Inner>;

}  // namespace v0_1
}  // namespace seqpar
