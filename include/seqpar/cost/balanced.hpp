// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout made for a mask: the same tokens and the same work on every rank, keys near their queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <seqpar/cost/dealt.hpp>
#include <seqpar/cost/pieces.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/pieces.hpp>
#include <seqpar/layout/zigzag.hpp>

namespace seqpar {
inline namespace v0_1 {

struct balance_options {
  extent tokens;
  extent ranks;
  extent granule;                 ///< tokens that are dealt together
  table_view<double> costs = {};  ///< of each granule, ≥ 0; empty: the pairs that its queries see
  double tolerance = .02;         ///< how far above the mean the fullest rank may be
};

namespace detail {

/// A set of granules, as ascending intervals that do not touch: asked often, added to seldom.
class granule_set {
 public:
  void add(interval i) {
    const auto first =
        std::lower_bound(parts_.begin(), parts_.end(), i.lo, [](const part& p, index_t x) { return p.at.hi < x; });
    const auto last = std::upper_bound(first, parts_.end(), i.hi, [](index_t x, const part& p) { return x < p.at.lo; });
    if (first != last) i = {std::min(i.lo, first->at.lo), std::max(i.hi, std::prev(last)->at.hi)};
    auto p = first == last ? parts_.insert(first, part{}) : parts_.erase(first, std::prev(last));
    p->at = i;
    for (index_t before = p == parts_.begin() ? 0 : std::prev(p)->end(); p != parts_.end(); before = (p++)->end())
      p->before = before;
  }
  index_t size() const { return parts_.empty() ? 0 : parts_.back().end(); }
  /// How many of an interval are not in it.
  index_t missing(interval i) const { return i.size() - (below(i.hi) - below(i.lo)); }

 private:
  struct part {
    interval at;
    index_t before = 0;  ///< members below it
    index_t end() const { return before + at.size(); }
  };
  index_t below(index_t x) const {
    const auto p =
        std::lower_bound(parts_.begin(), parts_.end(), x, [](const part& a, index_t b) { return a.at.lo < b; });
    return p == parts_.begin() ? 0 : std::prev(p)->before + std::min(x, std::prev(p)->at.hi) - std::prev(p)->at.lo;
  }
  std::vector<part> parts_;
};

/// Two ways to deal granules: in consecutive pieces, and in pieces from both ends. From each, granules change places
/// between the fullest rank and some below the mean until all are near it: first the exchange that brings the fewest
/// new keys for the work it moves. Of the two deals the one with fewer keys from elsewhere is taken.
class granule_dealer {
 public:
  granule_dealer(std::vector<double> costs, std::vector<std::vector<interval>> keys, int ranks, double tolerance)
      : costs_(std::move(costs)),
        keys_(std::move(keys)),
        ranks_(ranks),
        most_(std::accumulate(costs_.begin(), costs_.end(), 0.) / ranks * (1 + tolerance)),
        cut_{static_cast<index_t>(costs_.size()), ranks} {}

  std::vector<int> deal() const {
    deal_of a = in_pieces(contiguous{.tokens = cut_.tokens, .ranks = ranks_});
    deal_of b = in_pieces(zigzag{.tokens = cut_.tokens, .ranks = ranks_});
    const bool a_fits = fullest(a) <= most_, b_fits = fullest(b) <= most_;
    const bool take_a = a_fits != b_fits ? a_fits
                        : a_fits         ? keys_from_elsewhere(a) < keys_from_elsewhere(b)
                                         : fullest(a) < fullest(b);
    return std::move(take_a ? a.owner : b.owner);
  }

 private:
  struct deal_of {
    std::vector<int> owner;
    std::vector<double> load;
    std::vector<granule_set> at_hand;  ///< keys that a rank has or gets
  };
  static std::size_t at(int r) { return static_cast<std::size_t>(r); }
  static interval itself(std::size_t g) { return {static_cast<index_t>(g), static_cast<index_t>(g) + 1}; }
  static double fullest(const deal_of& d) { return *std::max_element(d.load.begin(), d.load.end()); }

  deal_of nothing() const {
    return {std::vector<int>(costs_.size(), -1), std::vector<double>(at(ranks_)), std::vector<granule_set>(at(ranks_))};
  }
  void give(deal_of& d, std::size_t g, int r) const {
    d.owner[g] = r;
    d.load[at(r)] += costs_[g];
    d.at_hand[at(r)].add(itself(g));
    for (interval i : keys_[g]) d.at_hand[at(r)].add(i);
  }
  /// How many granules of keys more must come to rank r for g's sake.
  index_t more_keys(const deal_of& d, std::size_t g, int r) const {
    const granule_set& near = d.at_hand[at(r)];
    index_t n = near.missing(itself(g)) - 1;  // its own keys need not come any more
    for (interval i : keys_[g]) n += near.missing(i);
    return n;
  }
  index_t keys_from_elsewhere(const deal_of& d) const {
    deal_of again = nothing();
    index_t n = -cut_.tokens;
    for (std::size_t g = 0; g < costs_.size(); ++g) give(again, g, d.owner[g]);
    for (const granule_set& s : again.at_hand) n += s.size();
    return n;
  }

  template <class Layout>
  deal_of in_pieces(const Layout& layout) const {
    deal_of d = nothing();
    for (std::size_t g = 0; g < costs_.size(); ++g) give(d, g, layout.place_of(static_cast<index_t>(g)).rank);
    even_out(d);
    return d;
  }

  /// Ranks below the mean that `from` may exchange with: the emptiest, and its neighbours, who often have the same
  /// keys.
  std::vector<int> partners_of(int from, const deal_of& d, const std::set<std::pair<double, int>>& by_load,
                               double mean) const {
    constexpr int few = 16;
    std::vector<int> list;
    for (auto p = by_load.begin(); p != by_load.end() && p->first < mean && list.size() < few; ++p)
      list.push_back(p->second);
    for (int r = std::max(0, from - few); r <= from + few && r < ranks_; ++r)
      if (d.load[at(r)] < mean) list.push_back(r);
    std::sort(list.begin(), list.end());
    return list;
  }

  /// The fullest rank gives a granule to a partner for a lighter one: of about half their difference, where least is to
  /// be paid for it in keys. Where none of some granules will do, all are tried, and any difference that helps.
  void even_out(deal_of& d) const {
    constexpr std::size_t some = 64;
    const double mean = std::accumulate(d.load.begin(), d.load.end(), 0.) / ranks_;
    const auto lighter = [&](std::size_t a, std::size_t b) {
      return costs_[a] != costs_[b] ? costs_[a] < costs_[b] : a < b;
    };
    std::vector<std::vector<std::size_t>> mine(at(ranks_));  // of each rank, the lightest first
    for (std::size_t g = 0; g < costs_.size(); ++g) mine[at(d.owner[g])].push_back(g);
    for (auto& list : mine) std::sort(list.begin(), list.end(), lighter);
    std::set<std::pair<double, int>> by_load;
    for (int r = 0; r < ranks_; ++r) by_load.emplace(d.load[at(r)], r);
    const auto move = [&](std::size_t g, int away, int to) {
      auto &left = mine[at(away)], &joined = mine[at(to)];
      left.erase(std::lower_bound(left.begin(), left.end(), g, lighter));
      joined.insert(std::lower_bound(joined.begin(), joined.end(), g, lighter), g);
      for (int r : {away, to}) by_load.erase({d.load[at(r)], r});
      d.load[at(away)] -= costs_[g];
      give(d, g, to);
      for (int r : {away, to}) by_load.emplace(d.load[at(r)], r);
    };
    bool all = false;
    for (std::size_t turn = 0; turn < 4 * costs_.size(); ++turn) {
      const int from = by_load.rbegin()->second;
      if (d.load[at(from)] <= most_) return;
      const std::vector<std::size_t>& a = mine[at(from)];
      const std::size_t stride = all ? 1 : (a.size() + some - 1) / some;
      struct {
        std::size_t out, in;
        int to = -1;
        double price = 0;
      } best{};
      for (int to : partners_of(from, d, by_load, mean)) {
        const std::vector<std::size_t>& b = mine[at(to)];
        if (b.empty()) continue;
        const double goal = std::min((d.load[at(from)] - d.load[at(to)]) / 2, costs_[a.back()] - costs_[b.front()]);
        for (std::size_t i = turn % stride, j = 0; i < a.size(); i += stride) {
          const auto moved = [&](std::size_t x) { return costs_[a[i]] - costs_[b[x]]; };
          const auto off = [&](std::size_t x) { return std::abs(moved(x) - goal); };
          while (j + 1 < b.size() && off(j + 1) <= off(j)) ++j;
          if (off(j) >= (all ? 1 : .75) * goal) continue;
          const double price = static_cast<double>(more_keys(d, a[i], to) + more_keys(d, b[j], from)) / moved(j);
          if (best.to < 0 || price < best.price) best = {a[i], b[j], to, price};
        }
      }
      if (best.to < 0 && all) return;
      all = best.to < 0;
      if (all) continue;
      move(best.out, from, best.to);
      move(best.in, best.to, from);
    }
  }

  std::vector<double> costs_;
  std::vector<std::vector<interval>> keys_;
  int ranks_;
  double most_;  ///< that a rank may carry
  pieces cut_;
};

}  // namespace detail

/// Self attention: granules of tokens dealt so that every rank gets as many (one more or less), nearly the same work,
/// and few keys from elsewhere. Deterministic: every rank finds the same.
///
/// Steps: up to 4 · granules exchanges, each chosen among those of 64 granules with 48 ranks, or, where none of them
/// helps, of all granules of a rank. Fails (error):
/// negative sizes; granules · ranks beyond 2^32; costs of another number than there are granules, negative, NaN, or of
/// an infinite sum; what mask_pieces refuses. Source: the aims are those of MagiAttention's dispatch solver, and
/// affinity as there.
template <attention_mask Mask>
dealt balanced(const Mask& mask, const balance_options& o) {
  const char* where = "balanced";
  if (const flaw what = detail::problem_of_sizes(o.tokens, o.ranks, o.granule)) raise(detail::invalid(where, what));
  if (!(o.tolerance >= 0)) raise(detail::invalid(where, {"tolerance must be 0 or more, not ", o.tolerance}));
  const pieces cut{o.tokens, o.ranks, o.granule};
  const index_t n = cut.units();
  if (n > (index_t{1} << 32) / o.ranks)
    raise(
        detail::invalid(where, {n, " granules for ", index_t{o.ranks}, " ranks take too long; give a larger granule"}));
  if (!o.costs.empty() && static_cast<index_t>(o.costs.size()) != n)
    raise(detail::invalid(where, {"there are ", o.costs.size(), " costs for ", n, " granules; give one for each"}));
  double sum = 0;
  for (std::size_t g = 0; g < o.costs.size(); ++g) {
    if (!(o.costs[g] >= 0) || std::isinf(o.costs[g]))
      raise(detail::invalid(where, {"the cost of granule ", g, " must be 0 or more, and finite, not ", o.costs[g]}));
    if (std::isinf(sum += o.costs[g]))
      raise(
          detail::invalid(where, {"the costs up to granule ", g, " have an infinite sum; give them in a larger unit"}));
  }

  const mask_pieces seen(mask, o.tokens, o.tokens);
  std::vector<double> costs(o.costs.begin(), o.costs.end());
  std::vector<std::vector<interval>> keys;
  for (index_t g = 0; g < n; ++g) {
    index_t pairs = 0;
    detail::position_set set =
        seen.reach({{g * o.granule, std::min<index_t>(o.granule, o.tokens - g * o.granule), 1}}, pairs);
    if (o.costs.empty()) costs.push_back(static_cast<double>(pairs));
    std::vector<interval>& list = keys.emplace_back();
    for (interval i : set.parts()) {
      const interval whole{i.lo / o.granule, (i.hi - 1) / o.granule + 1};
      if (!list.empty() && whole.lo <= list.back().hi)
        list.back().hi = whole.hi;
      else
        list.push_back(whole);
    }
  }
  const std::vector<int> owner =
      detail::granule_dealer(std::move(costs), std::move(keys), static_cast<int>(o.ranks), o.tolerance).deal();
  std::vector<std::vector<run>> of_rank(static_cast<std::size_t>(o.ranks));
  for (index_t g = 0; g < n; ++g) {
    std::vector<run>& list = of_rank[static_cast<std::size_t>(owner[static_cast<std::size_t>(g)])];
    const index_t first = g * o.granule, count = std::min<index_t>(o.granule, o.tokens - first);
    if (!list.empty() && list.back().first + list.back().count == first)
      list.back().count += count;
    else
      list.push_back({first, count, 1});
  }
  return dealt(of_rank);
}

}  // namespace v0_1
}  // namespace seqpar
