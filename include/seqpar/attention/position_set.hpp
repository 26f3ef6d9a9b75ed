// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sets of positions, and the rows of a block that lie in one.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <seqpar/detail/sort_by.hpp>
#include <seqpar/exchange/holding.hpp>
#include <seqpar/layout/detail/runs.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Intervals of one size at even distances, more than their size: first, first + step, …, `count` of them.
struct comb {
  interval first;
  index_t step, count;
  constexpr comb(interval tooth, index_t apart, index_t teeth) : first(tooth), step(apart), count(teeth) {}
  constexpr interval tooth(index_t i) const { return {first.lo + i * step, first.hi + i * step}; }
  constexpr index_t end() const { return first.hi + (count - 1) * step; }
};

/// A set of positions as ascending intervals that do not touch. Where there are many, those that repeat evenly, as they
/// do where a layout deals in turns, are kept together.
class position_set {
 public:
  template <class = when_used>
  void add(interval i) {
    if (sorted_ && (parts_.empty() ? combs_.empty() : i.lo > parts_.back().hi)) {
      if (!i.empty()) parts_.push_back(i);
    } else {
      insert(i);
    }
  }
  /// As one where it lies behind all others. Not inlined: it is rare where intervals are added in a loop that matters.
  template <class = when_used>
  [[gnu::noinline]] void add(const comb& c) {
    if (sorted_ && c.count > 1) {
      fold();
      if (combs_.empty() || c.first.lo > combs_.back().end()) return combs_.push_back(c);
    }
    for (index_t i = 0; i < c.count; ++i) add(c.tooth(i));
  }
  template <class = when_used>
  void add(const position_set& other) {
    for (const comb& c : other.combs_) add(c);
    for (interval i : other.parts_) add(i);
  }
  template <class = when_used>
  const std::vector<interval>& parts() {
    if (!sorted_) normalise();
    if (!combs_.empty()) unfold();
    return parts_;
  }
  /// The same as combs, none between the teeth of another.
  template <class = when_used>
  const std::vector<comb>& combs() {
    if (!sorted_) normalise();
    fold();
    return combs_;
  }
  /// As they are kept: combs, and intervals behind them.
  struct list {
    std::vector<comb> combs;
    std::vector<interval> parts;
    index_t size() const {
      index_t n = 0;
      for (const comb& c : combs) n += c.count * c.first.size();
      for (interval i : parts) n += i.size();
      return n;
    }
    std::vector<interval> one_by_one() const {
      std::vector<interval> all;
      for (const comb& c : combs)
        for (index_t i = 0; i < c.count; ++i) all.push_back(c.tooth(i));
      all.insert(all.end(), parts.begin(), parts.end());
      return all;
    }
  };
  template <class = when_used>
  list listed() {
    if (!sorted_) normalise();
    return {combs_, parts_};
  }
  /// To be called now and then while many are added in order: keeps together what repeats so far.
  template <class = when_used>
  void pack() {
    if (sorted_) fold();
  }
  template <class = when_used>
  void clear() {
    combs_.clear();
    parts_.clear();
    sorted_ = true;
  }

 private:
  template <class = when_used>
  void insert(interval i) {
    if (i.empty()) return;
    if (parts_.empty()) unfold_last();
    interval& last = parts_.back();
    if (i.lo >= last.lo && i.lo <= last.hi) {
      last.hi = std::max(last.hi, i.hi);
      return;
    }
    sorted_ = sorted_ && i.lo > last.hi;
    parts_.push_back(i);
    if (!sorted_ && parts_.size() >= limit_) normalise();
  }
  template <class = when_used>
  void unfold_last() {
    if (combs_.empty()) return;
    comb& c = combs_.back();
    parts_.push_back(c.tooth(--c.count));
    if (c.count == 0) combs_.pop_back();
  }
  template <class = when_used>
  void normalise() {
    unfold();
    sort_by(parts_, [](interval i) { return i.lo; });
    std::size_t n = 0;
    for (interval i : parts_) {
      if (n > 0 && i.lo <= parts_[n - 1].hi)
        parts_[n - 1].hi = std::max(parts_[n - 1].hi, i.hi);
      else
        parts_[n++] = i;
    }
    parts_.resize(n);
    limit_ = 2 * n + 1024;
    sorted_ = true;
  }
  template <class = when_used>
  void fold() {
    for (interval i : parts_) {
      if (!combs_.empty() && combs_.back().first.size() == i.size()) {
        comb& c = combs_.back();
        if (c.count == 1) c.step = i.lo - c.first.lo;
        if (c.tooth(c.count) == i) {
          ++c.count;
          continue;
        }
      }
      combs_.push_back({i, i.size() + 1, 1});
    }
    parts_.clear();
  }
  template <class = when_used>
  void unfold() {
    std::vector<interval> all;
    for (const comb& c : combs_)
      for (index_t i = 0; i < c.count; ++i) all.push_back(c.tooth(i));
    parts_.insert(parts_.begin(), all.begin(), all.end());
    combs_.clear();
  }

  std::vector<comb> combs_;
  std::vector<interval> parts_;  ///< behind the combs, unless not sorted
  std::size_t limit_ = 1024;
  bool sorted_ = true;
};

/// The rows of a block whose positions are in the set, in the block's order.
template <class = when_used>
std::vector<run> rows_in(const std::vector<run>& block, position_set& set) {
  std::vector<run> rows, found;
  const auto keep = [&](run r) { rows.push_back(r); };
  run_joiner join(keep);
  const std::vector<comb>& combs = set.combs();
  for (const run& r : block) {
    if (r.count == 0) continue;
    const index_t step = r.step < 0 ? -r.step : r.step;
    const interval span = span_of(r);
    const auto add = [&](interval i) {  // rows span.lo + j · step that lie in i
      i = intersection(i, span);
      const index_t first = (i.lo - span.lo + step - 1) / step, end = (i.hi - span.lo + step - 1) / step;
      if (!i.empty() && first < end) found.push_back({span.lo + first * step, end - first, step});
    };
    found.clear();
    auto c =
        std::upper_bound(combs.begin(), combs.end(), span.lo, [](index_t x, const comb& a) { return x < a.end(); });
    for (; c != combs.end() && c->first.lo < span.hi; ++c) {
      if (step % c->step == 0) {  // the run passes all teeth at the same place
        if (floor_mod(span.lo - c->first.lo, c->step) < c->first.size()) add({c->first.lo, c->end()});
        continue;
      }
      index_t tooth = std::max<index_t>(0, (span.lo - c->first.lo) / c->step);
      for (; tooth < c->count && c->tooth(tooth).lo < span.hi; ++tooth) add(c->tooth(tooth));
    }
    if (r.step < 0)
      for (std::size_t i = found.size(); i-- > 0;)
        join({found[i].at(found[i].count - 1), found[i].count, -found[i].step});
    else
      for (const run& f : found) join(f);
  }
  join.finish();
  return rows;
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
