// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every mask that shows a query one ascending interval of keys shares: covers and reach from two queries only.
#pragma once

#include <concepts>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

SEQPAR_HD constexpr index_t lesser(index_t a, index_t b) {
  return a < b ? a : b;
}
SEQPAR_HD constexpr index_t greater(index_t a, index_t b) {
  return a > b ? a : b;
}

/// A mask with band(q) = [lo, hi), exactly the keys of q, where neither lo nor hi descends as q grows. An empty band
/// keeps its ends (hi ≤ lo): normalising it to [0, 0) would break the order that everything below rests on.
template <class M>
concept banded = requires(const M& mask, index_t q) {
  { mask.band(q) } -> std::same_as<interval>;
};

/// O(1): the first and the last query bound all between them.
template <banded M>
constexpr cover band_covers(const M& mask, interval q, interval k) {
  const interval first = mask.band(q.lo), last = mask.band(q.hi - 1);
  if (last.lo <= k.lo && k.hi <= first.hi) return cover::all;
  if (last.hi <= k.lo || k.hi <= first.lo) return cover::none;
  return cover::some;
}

/// Appends x to pieces that come in ascending order of lo; `open` is the last one, not yet handed to f.
template <class F>
constexpr void append_piece(interval& open, interval x, F& f) {
  if (!open.empty() && x.lo <= open.hi) {
    open.hi = greater(open.hi, x.hi);
  } else {
    if (!open.empty()) f(open);
    open = x;
  }
}

/// Exact. Where the bands of the first and the last query of a span touch, their hull is the answer, and where the last
/// ends before the first begins, nothing is; else the span is halved, and the next one may be twice as long: a few
/// steps for every piece.
template <banded M, class F>
constexpr void band_reach(const M& mask, interval q, F&& f) {
  interval open{};
  for (index_t i = q.lo, n = q.size(); i < q.hi; i += n, n = n < q.hi - i - n ? 2 * n : q.hi - i) {
    const interval first = mask.band(i);
    interval last = mask.band(i + n - 1);
    while (last.hi > first.lo && (first.empty() || last.empty() || last.lo > first.hi)) {
      n = (n + 1) / 2;
      last = mask.band(i + n - 1);
    }
    if (last.hi > first.lo) append_piece(open, {first.lo, last.hi}, f);
  }
  if (!open.empty()) f(open);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
