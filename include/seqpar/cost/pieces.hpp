// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask as few pieces in which every query sees the same intervals of keys, or ones that move along with it: what
// costs are counted from, without walking tokens.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <seqpar/attention/rounds.hpp>
#include <seqpar/cost/steady.hpp>
#include <seqpar/error.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Σ over i < n of ⌊(a·i + b) / m⌋ for a, b ≥ 0, m > 0: Euclid's algorithm on the triangle under a line.
constexpr index_t floor_sum(index_t n, index_t m, index_t a, index_t b) {
  index_t sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const index_t top = a * n + b;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
  return sum;
}

/// ⌊x / m⌋ for many x ≥ 0 by one m > 0, sooner where m is a power of two, as the steps of ranks in turns often are.
struct divisor {
  std::uint64_t m;
  int shift;
  constexpr divisor(index_t by)
      : m(static_cast<std::uint64_t>(by)), shift((m & (m - 1)) == 0 ? std::countr_zero(m) : -1) {}
  friend constexpr index_t operator/(index_t x, const divisor& by) {
    const auto u = static_cast<std::uint64_t>(x);
    return static_cast<index_t>(by.shift >= 0 ? u >> by.shift : u / by.m);
  }
};

/// The same rows from the least position up.
constexpr run ascending(run r) {
  if (r.count == 1) r.step = 1;
  return r.step < 0 ? run{r.at(r.count - 1), r.count, -r.step} : r;
}

/// An ascending run that is asked often.
struct ladder : run {
  index_t last;
  divisor by_step;
  constexpr ladder(const run& r) : run(r), last(at(count - 1)), by_step(step) {}
};

/// How many rows lie below x.
constexpr index_t rows_below(const ladder& r, index_t x) {
  if (x <= r.first) return 0;
  if (x > r.last) return r.count;
  return (x - r.first + r.step - 1) / r.by_step;
}

/// Σ over i < n of rows_below(r, x + i·step), step ≥ 0.
constexpr index_t sum_rows_below(const ladder& r, index_t x, index_t step, index_t n) {
  if (step == 0 || n == 1) return n * rows_below(r, x);
  if (step == 1) {
    const auto upto = [&](index_t last) {  // Σ over x ≤ last: each row lies below last − row of them
      const index_t rows = rows_below(r, last);
      return rows * (last - r.first) - rows * (rows - 1) / 2 * r.step;
    };
    return upto(x + n - 1) - upto(x - 1);
  }
  const auto first_above = [&](index_t bound) {  // the first i with x + i·step > bound
    return x > bound ? 0 : std::min(n, (bound - x) / step + 1);
  };
  const index_t some = first_above(r.first), all = first_above(r.last);
  return floor_sum(all - some, r.step, step, x + some * step - r.first + r.step - 1) + (n - all) * r.count;
}

/// The union of two sets of ascending intervals that do not touch.
inline std::vector<interval> merged(const std::vector<interval>& a, const std::vector<interval>& b) {
  std::vector<interval> both;
  for (auto x = a.begin(), y = b.begin(); x != a.end() || y != b.end();) {
    const interval next = y == b.end() || (x != a.end() && x->lo < y->lo) ? *x++ : *y++;
    if (!both.empty() && next.lo <= both.back().hi)
      both.back().hi = std::max(both.back().hi, next.hi);
    else
      both.push_back(next);
  }
  return both;
}

/// How many rows of an ascending run lie in a comb: Σ ⌊y/t⌋ − ⌊(y − size)/t⌋ over their distances y from its begin.
constexpr index_t rows_among(const ladder& r, const comb& c) {
  const index_t begin = rows_below(r, c.first.lo), n = rows_below(r, c.end()) - begin;
  if (n == 0 || c.count == 1) return n;
  const index_t behind = r.at(begin) - c.first.lo + c.step;  // one step more, for sums of what is not negative
  return floor_sum(n, c.step, r.step, behind) - floor_sum(n, c.step, r.step, behind - c.first.size());
}

/// How many rows of a block have positions in a set: of ascending intervals that do not touch.
inline index_t rows_among(const std::vector<run>& block, const std::vector<interval>& set) {
  index_t rows = 0;
  for (const run& any : block) {
    if (any.count == 0) continue;
    const ladder r = ascending(any);
    auto p = std::upper_bound(set.begin(), set.end(), r.first, [](index_t x, interval i) { return x < i.hi; });
    for (index_t upto = 0; p != set.end() && p->lo <= r.last; ++p) {
      const bool next = p->lo <= r.at(upto) && upto > 0;  // the row behind the last interval is the first of this one
      rows -= next ? upto : rows_below(r, p->lo);
      rows += upto = rows_below(r, p->hi);
    }
  }
  return rows;
}
inline index_t rows_among(const std::vector<run>& block, const position_set::list& set) {
  index_t rows = rows_among(block, set.parts);
  for (const run& any : set.combs.empty() ? std::vector<run>() : block)
    if (any.count > 0) {
      const ladder r = ascending(any);
      auto c = std::upper_bound(set.combs.begin(), set.combs.end(), r.first,
                                [](index_t x, const comb& some) { return x < some.end(); });
      for (; c != set.combs.end() && c->first.lo <= r.last; ++c) rows += rows_among(r, *c);
    }
  return rows;
}

}  // namespace detail

/// The keys of a query: [lo, hi) at the first query of a piece; each end stays or moves by one per query.
struct moving_interval {
  interval at;
  bool lo_moves = false, hi_moves = false;
  constexpr interval after(index_t queries) const {
    return {at.lo + (lo_moves ? queries : 0), at.hi + (hi_moves ? queries : 0)};
  }
  friend constexpr bool operator==(const moving_interval&, const moving_interval&) = default;
};

/// All queries of a mask in pieces, clipped to the keys that there are. Made once, asked by every candidate layout.
///
/// Steps: one per piece for the shipped masks and all their combinations, and for masks with a member steady_until(q);
/// one per query for others that know intervals; one per (query, key) for bare functors, of which up to 2^31 are asked.
/// Fails (error): more than 2^31 − 1 positions; a bare functor with too many pairs.
class mask_pieces {
 public:
  struct piece {
    interval queries;
    index_t first;  ///< of its intervals
    index_t count;
  };

  /// `mask` is asked as a plan would ask it: bound to these lengths.
  template <attention_mask M>
  mask_pieces(const M& mask, index_t q_tokens, index_t k_tokens) : k_tokens_(k_tokens) {
    constexpr index_t most = index_t{1} << 31;
    if (q_tokens >= most || k_tokens >= most)
      raise(detail::invalid("mask_pieces", {q_tokens, " queries and ", k_tokens,
                                            " keys are more than 2^31 - 1 positions; split the sequence"}));
    if (const char* what = problem_of(mask)) raise(detail::invalid("mask_pieces", std::string("the mask: ") + what));
    if (std::string what = misfit_of(mask, {q_tokens, q_tokens}, {k_tokens, k_tokens}); !what.empty())
      raise(detail::invalid("mask_pieces", "the mask: " + what));
    const auto whole = bound(mask, q_tokens, k_tokens);
    for (index_t q = 0; q < q_tokens;) q = add_piece(whole, q, q_tokens, most);
  }

  index_t q_tokens() const { return pieces_.empty() ? 0 : pieces_.back().queries.hi; }
  index_t k_tokens() const { return k_tokens_; }
  const std::vector<piece>& pieces() const { return pieces_; }
  const moving_interval* keys_of(const piece& p) const { return keys_.data() + p.first; }

  /// f(keys at the first one, step, n) for each interval of n queries of an ascending run that lie in one piece,
  /// `step` apart.
  template <class F>
  void for_each_part(const run& queries, F&& f) const {
    if (queries.count == 0) return;
    const detail::ladder r = detail::ascending(queries);
    auto p =
        std::partition_point(pieces_.begin(), pieces_.end(), [&](const piece& x) { return x.queries.hi <= r.first; });
    for (index_t i = 0; p != pieces_.end() && i < r.count; ++p) {
      const index_t end = detail::rows_below(r, p->queries.hi);
      for (index_t k = 0; k < p->count && end > i; ++k) {
        moving_interval keys = keys_of(*p)[k];
        keys.at = keys.after(r.at(i) - p->queries.lo);
        f(keys, r.step, end - i);
      }
      i = end;
    }
  }

  /// How many keys the queries of these runs see, each query for itself.
  index_t pairs(const std::vector<run>& queries) const {
    index_t sum = 0;
    for (const run& r : queries)
      for_each_part(r, [&](const moving_interval& keys, index_t step, index_t n) {
        sum += n * (keys.at.size() + keys.after((n - 1) * step).size()) / 2;
      });
    return sum;
  }

  /// The keys that some of them see; `seen` becomes pairs(queries).
  detail::position_set reach(const std::vector<run>& queries, index_t& seen) const {
    detail::position_set set;
    index_t sum = 0;
    for (const run& r : queries)
      for_each_part(r, [&](const moving_interval& keys, index_t step, index_t n) {
        const interval last = keys.after((n - 1) * step);
        if (keys.lo_moves && keys.hi_moves && keys.at.size() < step)
          set.add(detail::comb{keys.at, step, n});
        else
          set.add({keys.at.lo, last.hi});
        sum += n * (keys.at.size() + last.size()) / 2;
      });
    seen = sum;
    return set;
  }
  detail::position_set reach(const std::vector<run>& queries) const {
    index_t seen = 0;
    return reach(queries, seen);
  }

 private:
  template <class M>
  index_t add_piece(const M& mask, index_t q, index_t q_tokens, index_t most) {
    if constexpr (detail::steady<M>::known && listed_mask<M>) {
      const auto now = key_list(mask, q);
      index_t end = std::min(q_tokens, detail::steady<M>::until(mask, q));
      auto next = now;
      if (end > q + 1) {
        next = key_list(mask, q + 1);
        detail::moving_ends<static_cast<std::size_t>(2 * max_intervals_of<M> + 2)> ends;
        ends.add(0, 0);
        ends.add(k_tokens_, k_tokens_);
        ends.add(now, next);
        end = ends.until(q, end);
      }
      const std::size_t before = keys_.size();
      for (int i = 0; i < now.count; ++i)
        add_keys(now.items[i], now.items[i].lo != next.items[i].lo, now.items[i].hi != next.items[i].hi);
      return close({q, end}, before);
    } else {
      const std::size_t before = keys_.size();
      if (const auto keys = try_key_intervals(mask, q)) {
        add_keys(keys->first);
        add_keys(keys->second);
      } else {
        if (k_tokens_ > 0 && q_tokens > most / k_tokens_)
          raise(detail::invalid("mask_pieces", "this mask knows no intervals, and asking all of " +
                                                   std::to_string(q_tokens) + " x " + std::to_string(k_tokens_) +
                                                   " pairs takes too long; give it key_intervals"));
        index_t lo = 0;
        for (index_t k = 0; k <= k_tokens_; ++k)
          if (k == k_tokens_ || !mask.allows(q, k)) {
            add_keys({lo, k});
            lo = k + 1;
          }
      }
      return close({q, q + 1}, before);
    }
  }

  /// Clipped. An end beyond the clip stays there; where that changes is the end of the piece.
  void add_keys(interval keys, bool lo_moves = false, bool hi_moves = false) {
    const interval inside{std::max<index_t>(0, keys.lo), std::min(k_tokens_, keys.hi)};
    if (!inside.empty()) keys_.push_back({inside, lo_moves && keys.lo >= 0, hi_moves && keys.hi <= k_tokens_});
  }

  /// The keys from `before` on are those of `queries`; joins the last piece where that goes on in the same way.
  index_t close(interval queries, std::size_t before) {
    const index_t count = static_cast<index_t>(keys_.size() - before);
    const bool goes_on = !pieces_.empty() && pieces_.back().count == count && joins(pieces_.back(), queries, before);
    if (goes_on) {
      pieces_.back().queries.hi = queries.hi;
      keys_.resize(before);
    } else {
      pieces_.push_back({queries, static_cast<index_t>(before), count});
    }
    return queries.hi;
  }
  bool joins(const piece& last, interval queries, std::size_t before) {
    moving_interval* was = keys_.data() + last.first;
    const moving_interval* is = keys_.data() + before;
    const index_t apart = queries.lo - last.queries.lo;
    const bool one = last.queries.size() == 1;  // where its ends go shows only now
    for (index_t k = 0; k < last.count; ++k) {
      const index_t lo = is[k].at.lo - was[k].at.lo, hi = is[k].at.hi - was[k].at.hi;
      const auto fits = [&](index_t moved, bool moves) {
        return one ? moved == 0 || moved == 1 : moved == moves * apart;
      };
      if (!fits(lo, was[k].lo_moves) || !fits(hi, was[k].hi_moves)) return false;
      const bool goes[2] = {one ? lo == 1 : was[k].lo_moves, one ? hi == 1 : was[k].hi_moves};
      if (queries.size() > 1 && (goes[0] != is[k].lo_moves || goes[1] != is[k].hi_moves)) return false;
    }
    for (index_t k = 0; one && k < last.count; ++k) {
      was[k].lo_moves = is[k].at.lo != was[k].at.lo;
      was[k].hi_moves = is[k].at.hi != was[k].at.hi;
    }
    return true;
  }

  index_t k_tokens_;
  std::vector<piece> pieces_;
  std::vector<moving_interval> keys_;
};

}  // namespace v0_1
}  // namespace seqpar
