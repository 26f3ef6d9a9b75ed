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

template <banded M, class F>
constexpr void band_pieces(const M& mask, interval q, interval first, interval last, interval& open, F& f) {
  if (last.hi <= first.lo) return;
  if (!first.empty() && !last.empty() && last.lo <= first.hi) return append_piece(open, {first.lo, last.hi}, f);
  const index_t middle = q.lo + q.size() / 2;  // a span of one query has ended above
  band_pieces(mask, {q.lo, middle}, first, mask.band(middle - 1), open, f);
  band_pieces(mask, {middle, q.hi}, mask.band(middle), last, open, f);
}

/// Exact. Where the bands of the first and last query touch, their hull is the answer; else the span is halved: about
/// span / band width steps.
template <banded M, class F>
constexpr void band_reach(const M& mask, interval q, F&& f) {
  interval open{};
  band_pieces(mask, q, mask.band(q.lo), mask.band(q.hi - 1), open, f);
  if (!open.empty()) f(open);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
