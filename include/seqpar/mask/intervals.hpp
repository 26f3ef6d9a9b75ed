// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The keys of one query as a short list of intervals: how combinations find out whether two intervals are enough.
#pragma once

#include <concepts>
#include <optional>

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// At most N intervals, ascending, neither empty, touching nor overlapping.
template <int N>
struct interval_list {
  interval items[static_cast<unsigned>(N)]{};
  int count = 0;

  /// Adds an interval that starts no earlier than the last one.
  constexpr void add(interval x) {
    if (x.empty()) return;
    if (count > 0 && x.lo <= items[count - 1].hi) {
      items[count - 1].hi = detail::greater(items[count - 1].hi, x.hi);
    } else if (count < N) {
      items[count++] = x;
    }
  }
  /// The two intervals, if there are no more.
  constexpr std::optional<interval_pair> pair() const {
    if (count > 2) return std::nullopt;
    if constexpr (N == 1)
      return interval_pair{items[0], {}};
    else
      return interval_pair{items[0], items[1]};
  }
};

/// Union.
template <int A, int B>
constexpr interval_list<A + B> operator|(const interval_list<A>& a, const interval_list<B>& b) {
  interval_list<A + B> c;
  for (int i = 0, j = 0; i < a.count || j < b.count;)
    c.add(j == b.count || (i < a.count && a.items[i].lo <= b.items[j].lo) ? a.items[i++] : b.items[j++]);
  return c;
}

/// Intersection: sweeping two lists, each step ends one interval, so A + B − 1 pieces are the most.
template <int A, int B>
constexpr interval_list<A + B - 1> operator&(const interval_list<A>& a, const interval_list<B>& b) {
  interval_list<A + B - 1> c;
  for (int i = 0, j = 0; i < a.count && j < b.count;) {
    c.add(intersection(a.items[i], b.items[j]));
    if (a.items[i].hi < b.items[j].hi)
      ++i;
    else
      ++j;
  }
  return c;
}

namespace detail {
template <class M>
concept has_key_list = requires(const M& mask, index_t q) {
  mask.key_list(q);
};
}  // namespace detail

/// A mask whose keys are known as intervals, be they two or more.
template <class M>
concept listed_mask = attention_mask<M> &&(interval_mask<M> || detail::has_key_list<M>);

/// The most intervals that one query of M needs: M::max_intervals where declared, else 2.
template <listed_mask M>
inline constexpr int max_intervals_of = [] {
  if constexpr (requires { M::max_intervals; })
    return int{M::max_intervals};
  else
    return 2;
}();

/// The keys that q may see, unclipped, as a list.
template <listed_mask M>
constexpr auto key_list(const M& mask, index_t q) {
  if constexpr (detail::has_key_list<M>) {
    return mask.key_list(q);
  } else {
    const interval_pair said = mask.key_intervals(q), keys = make_intervals(said.first, said.second);
    interval_list<max_intervals_of<M>> list;
    list.add(keys.first);
    list.add(keys.second);
    return list;
  }
}

/// The keys of q where they fit in two intervals; nullopt where they do not or the mask knows no intervals. A plan may
/// use intervals if every query answers.
template <attention_mask M>
constexpr std::optional<interval_pair> try_key_intervals(const M& mask, index_t q) {
  if constexpr (interval_mask<M>) {
    const interval_pair said = mask.key_intervals(q);
    return make_intervals(said.first, said.second);
  } else if constexpr (listed_mask<M>) {
    return key_list(mask, q).pair();
  } else if constexpr (requires { mask.try_key_intervals(q); }) {
    return mask.try_key_intervals(q);
  } else {
    return std::nullopt;
  }
}

namespace detail {
/// The union of list_of(q) over the queries of a span; pieces that touch are handed on as one where they are near.
template <class ListOf, class F>
constexpr void list_reach(interval q, ListOf&& list_of, F&& f) {
  auto open = list_of(q.lo);
  constexpr int slots = static_cast<int>(sizeof(open.items) / sizeof(interval));
  int oldest = 0;
  for (index_t i = q.lo + 1; i < q.hi; ++i) {
    const auto keys = list_of(i);
    for (int n = 0; n < keys.count; ++n) {
      const interval x = keys.items[n];
      int s = 0;
      while (s < slots && (open.items[s].empty() || x.hi < open.items[s].lo || open.items[s].hi < x.lo)) ++s;
      if (s < slots) {
        open.items[s] = {lesser(open.items[s].lo, x.lo), greater(open.items[s].hi, x.hi)};
      } else {
        if (!open.items[oldest].empty()) f(open.items[oldest]);
        open.items[oldest] = x;
        oldest = (oldest + 1) % slots;
      }
    }
  }
  for (const interval& x : open.items)
    if (!x.empty()) f(x);
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
