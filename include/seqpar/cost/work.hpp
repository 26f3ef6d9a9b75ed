// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many (query, key) pairs each member of a ring attends to, against whose keys.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/cost/needs.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {

/// Runs of several owners, found by position.
class owned_runs {
 public:
  void add(const run& r, int owner) {
    if (r.count > 0) list_.push_back({ascending(r), owner});
  }
  void finish() {
    std::sort(list_.begin(), list_.end(), [](const one& a, const one& b) { return a.rows.first < b.rows.first; });
    index_t reach = -1;
    for (one& x : list_) x.reach = reach = std::max(reach, x.rows.last);
  }
  /// f(run, owner) for the runs that begin before `hull` ends and do not end before it begins.
  template <class F>
  void for_each_near(interval hull, F&& f) const {
    auto x = std::partition_point(list_.begin(), list_.end(), [&](const one& o) { return o.reach < hull.lo; });
    for (; x != list_.end() && x->rows.first < hull.hi; ++x) f(x->rows, x->owner);
  }

 private:
  struct one {
    ladder rows;
    int owner;
    index_t reach = 0;  ///< the furthest row of this run and those before it
  };
  std::vector<one> list_;
};

/// How many keys of an ascending block `count` queries see, `step` apart.
inline index_t pairs_with(const ladder& block, const moving_interval& seen, index_t step, index_t count) {
  return sum_rows_below(block, seen.at.hi, seen.hi_moves ? step : 0, count) -
         sum_rows_below(block, seen.at.lo, seen.lo_moves ? step : 0, count);
}

/// Of each ring member where queries travel: (query, key) pairs with its keys, and of its own queries with joint keys.
/// Steps: pieces of the mask × runs of keys that a piece meets.
inline std::vector<index_t> pairs_at_keys(const needs& n, const mask_pieces& pieces) {
  std::vector<index_t> pairs(static_cast<std::size_t>(n.ring_size()));
  owned_runs keys;
  for (int r = 0; r < n.ring_size(); ++r)
    for (const run& x : n.keys(r)) keys.add(x, r);
  keys.finish();
  for (const mask_pieces::piece& p : pieces.pieces())
    for (index_t k = 0; k < p.count; ++k) {
      const moving_interval& seen = pieces.keys_of(p)[k];
      const index_t count = p.queries.size();
      keys.for_each_near({seen.at.lo, seen.after(count - 1).hi}, [&](const detail::ladder& block, int owner) {
        pairs[static_cast<std::size_t>(owner)] += pairs_with(block, seen, 1, count);
      });
    }
  const run joint{n.joint_keys().lo, n.joint_keys().size(), 1};
  for (int r = 0; joint.count > 0 && r < n.ring_size(); ++r)
    for (const run& x : n.queries(r))
      pieces.for_each_part(x, [&](const moving_interval& seen, index_t step, index_t count) {
        pairs[static_cast<std::size_t>(r)] += pairs_with(joint, seen, step, count);
      });
  return pairs;
}

}  // namespace detail

/// pairs(w, o) = |{ (q, k) : q a query of ring member w, k a key of o, q may see k }|: the work of hop w − o of the
/// ring, in pairs for each query head. Joint keys are column `joint`.
///
/// Steps: pieces of the mask × runs of a ring member's queries × runs of keys that a piece meets.
class work {
 public:
  static constexpr int joint = -1;

  work(const needs& n, const mask_pieces& pieces) : ring_(n.ring_size()) {
    n.check_pieces("work", pieces);
    pairs_.resize(static_cast<std::size_t>(ring_) * static_cast<std::size_t>(ring_ + 1));
    detail::owned_runs keys;
    for (int o = 0; o < ring_; ++o)
      for (const run& r : n.keys(o)) keys.add(r, o);
    keys.finish();
    for (int w = 0; w < ring_; ++w) {
      index_t& rest = at(w, joint) = n.pairs(w);
      for (const run& r : n.queries(w))
        pieces.for_each_part(r, [&](const moving_interval& seen, index_t step, index_t count) {
          keys.for_each_near({seen.at.lo, seen.after((count - 1) * step).hi},
                             [&](const detail::ladder& block, int owner) {
                               const index_t all = detail::pairs_with(block, seen, step, count);
                               at(w, owner) += all;
                               rest -= all;
                             });
        });
    }
  }

  index_t pairs(int w, int o) const { return const_cast<work*>(this)->at(w, o); }
  index_t pairs(int w) const {
    index_t sum = 0;
    for (int o = joint; o < ring_; ++o) sum += pairs(w, o);
    return sum;
  }
  index_t total() const {
    index_t sum = 0;
    for (int w = 0; w < ring_; ++w) sum += pairs(w);
    return sum;
  }
  /// Over the ring, all rounds together; every all-to-all index has as many, for its own heads.
  spread over_ring() const {
    std::vector<index_t> all;
    for (int w = 0; w < ring_; ++w) all.push_back(pairs(w));
    return detail::spread_of(all);
  }
  /// Of hop `s` (0: the own block, and joint keys) of `direct`.
  spread over_ring(int s) const {
    std::vector<index_t> all;
    for (int w = 0; w < ring_; ++w) all.push_back(pairs(w, (w - s + ring_) % ring_) + (s == 0 ? pairs(w, joint) : 0));
    return detail::spread_of(all);
  }
  /// Σ over hops of the most that one member has to do: a ring whose members wait for each other in every round.
  double in_step() const {
    double sum = 0;
    for (int s = 0; s < ring_; ++s) sum += over_ring(s).most;
    return sum;
  }

 private:
  index_t& at(int w, int o) {
    const auto size = static_cast<std::size_t>(ring_ + 1);
    return pairs_[static_cast<std::size_t>(w) * size + static_cast<std::size_t>(o + 1)];
  }

  int ring_;
  std::vector<index_t> pairs_;
};

}  // namespace v0_1
}  // namespace seqpar
