// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout made for a mask: the same tokens and the same work on every rank, keys near their queries.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
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
  extent granule;                      ///< tokens that are dealt together
  std::span<const double> costs = {};  ///< of each granule, ≥ 0; empty: the pairs that its queries see
  double tolerance = .02;              ///< how far above the mean the fullest rank may be
};

namespace detail {

/// A set of granules.
class granule_set {
 public:
  explicit granule_set(index_t count) : words_(static_cast<std::size_t>(count / 64 + 1)) {}
  bool has(index_t i) const { return (words_[word(i)] >> (i % 64) & 1) != 0; }
  void add(index_t lo, index_t hi) {
    for_each_word(lo, hi, [&](std::size_t w, std::uint64_t bits) { words_[w] |= bits; });
  }
  /// How many of lo … hi − 1 are not in it.
  index_t missing(index_t lo, index_t hi) const {
    index_t n = 0;
    for_each_word(lo, hi, [&](std::size_t w, std::uint64_t bits) { n += std::popcount(bits & ~words_[w]); });
    return n;
  }

 private:
  static std::size_t word(index_t i) { return static_cast<std::size_t>(i / 64); }
  template <class F>
  static void for_each_word(index_t lo, index_t hi, F&& f) {
    for (index_t i = lo; i < hi; i = (i / 64 + 1) * 64) {
      std::uint64_t bits = ~std::uint64_t{0} << (i % 64);
      if (hi < (i / 64 + 1) * 64) bits &= (std::uint64_t{1} << (hi % 64)) - 1;
      f(word(i), bits);
    }
  }
  std::vector<std::uint64_t> words_;
};

/// Two ways to deal granules: in consecutive pieces, and in pieces from both ends. From each, granules change places
/// between the fullest rank and those below the mean until all are near it: first the exchange that brings the fewest
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
  static double fullest(const deal_of& d) { return *std::max_element(d.load.begin(), d.load.end()); }

  deal_of nothing() const {
    return {std::vector<int>(costs_.size(), -1), std::vector<double>(at(ranks_)),
            std::vector<granule_set>(at(ranks_), granule_set(cut_.tokens))};
  }
  void give(deal_of& d, std::size_t g, int r) const {
    d.owner[g] = r;
    d.load[at(r)] += costs_[g];
    d.at_hand[at(r)].add(static_cast<index_t>(g), static_cast<index_t>(g) + 1);
    for (interval i : keys_[g]) d.at_hand[at(r)].add(i.lo, i.hi);
  }
  /// How many granules of keys more must come to rank r for g's sake.
  index_t more_keys(const deal_of& d, std::size_t g, int r) const {
    const granule_set& near = d.at_hand[at(r)];
    index_t n = near.has(static_cast<index_t>(g)) ? -1 : 0;  // its own keys need not come any more
    for (interval i : keys_[g]) n += near.missing(i.lo, i.hi);
    return n;
  }
  index_t keys_from_elsewhere(const deal_of& d) const {
    deal_of again = nothing();
    index_t n = -cut_.tokens;
    for (std::size_t g = 0; g < costs_.size(); ++g) give(again, g, d.owner[g]);
    for (const granule_set& s : again.at_hand) n += cut_.tokens - s.missing(0, cut_.tokens);
    return n;
  }

  template <class Layout>
  deal_of in_pieces(const Layout& layout) const {
    deal_of d = nothing();
    for (std::size_t g = 0; g < costs_.size(); ++g) give(d, g, layout.place_of(static_cast<index_t>(g)).rank);
    even_out(d);
    return d;
  }

  /// The fullest rank gives a granule to one below the mean for a lighter one: of about half their difference, where
  /// least is to be paid for it in keys.
  void even_out(deal_of& d) const {
    const double mean = std::accumulate(d.load.begin(), d.load.end(), 0.) / ranks_;
    const auto lighter = [&](std::size_t a, std::size_t b) {
      return costs_[a] != costs_[b] ? costs_[a] < costs_[b] : a < b;
    };
    std::vector<std::vector<std::size_t>> mine(at(ranks_));  // of each rank, the lightest first
    for (std::size_t g = 0; g < costs_.size(); ++g) mine[at(d.owner[g])].push_back(g);
    for (auto& list : mine) std::sort(list.begin(), list.end(), lighter);
    const auto move = [&](std::size_t g, int away, int to) {
      auto &left = mine[at(away)], &joined = mine[at(to)];
      left.erase(std::lower_bound(left.begin(), left.end(), g, lighter));
      joined.insert(std::lower_bound(joined.begin(), joined.end(), g, lighter), g);
      d.load[at(away)] -= costs_[g];
      give(d, g, to);
    };
    for (std::size_t turn = 0; turn < 4 * costs_.size(); ++turn) {
      const int from = static_cast<int>(std::max_element(d.load.begin(), d.load.end()) - d.load.begin());
      if (d.load[at(from)] <= most_) return;
      const std::vector<std::size_t>& a = mine[at(from)];
      struct {
        std::size_t out, in;
        int to = -1;
        double price = 0;
      } best{};
      for (int to = 0; to < ranks_; ++to) {
        if (d.load[at(to)] >= mean) continue;
        const std::vector<std::size_t>& b = mine[at(to)];
        if (b.empty()) continue;
        const double goal = std::min((d.load[at(from)] - d.load[at(to)]) / 2, costs_[a.back()] - costs_[b.front()]);
        for (std::size_t i = 0, j = 0; i < a.size(); ++i) {
          const auto moved = [&](std::size_t x) { return costs_[a[i]] - costs_[b[x]]; };
          const auto off = [&](std::size_t x) { return std::abs(moved(x) - goal); };
          while (j + 1 < b.size() && off(j + 1) <= off(j)) ++j;
          if (off(j) >= .75 * goal) continue;
          const double price = static_cast<double>(more_keys(d, a[i], to) + more_keys(d, b[j], from)) / moved(j);
          if (best.to < 0 || price < best.price) best = {a[i], b[j], to, price};
        }
      }
      if (best.to < 0) return;
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
/// Steps: up to 4 · granules exchanges, each chosen among granules / ranks · ranks below the mean. Fails (error):
/// negative sizes; granules · ranks beyond 2^32; costs of another number than there are granules, negative, infinite or
/// NaN; what mask_pieces refuses. Source: the aims are those of MagiAttention's dispatch solver, and affinity as there.
template <attention_mask Mask>
dealt balanced(const Mask& mask, const balance_options& o) {
  const char* where = "balanced";
  if (const char* what = detail::problem_of_sizes(o.tokens, o.ranks, o.granule)) raise(detail::invalid(where, what));
  if (!(o.tolerance >= 0)) raise(detail::invalid(where, "tolerance must be 0 or more"));
  const pieces cut{o.tokens, o.ranks, o.granule};
  const index_t n = cut.units();
  if (n > (index_t{1} << 32) / o.ranks)
    raise(detail::invalid(where, std::to_string(n) + " granules for " + std::to_string(o.ranks) +
                                     " ranks take too long; give a larger granule"));
  if (!o.costs.empty() && static_cast<index_t>(o.costs.size()) != n)
    raise(detail::invalid(where, "there are " + std::to_string(o.costs.size()) + " costs for " + std::to_string(n) +
                                     " granules; give one for each"));
  for (std::size_t g = 0; g < o.costs.size(); ++g)
    if (!(o.costs[g] >= 0) || std::isinf(o.costs[g]))
      raise(detail::invalid(where,
                            "the cost of granule " + std::to_string(g) + " is negative, infinite or not a number"));

  const mask_pieces seen(mask, o.tokens, o.tokens);
  std::vector<double> costs(o.costs.begin(), o.costs.end());
  std::vector<std::vector<interval>> keys;
  for (index_t g = 0; g < n; ++g) {
    const std::vector<run> queries{{g * o.granule, std::min<index_t>(o.granule, o.tokens - g * o.granule), 1}};
    if (o.costs.empty()) costs.push_back(static_cast<double>(seen.pairs(queries)));
    detail::position_set set = seen.reach(queries);
    std::vector<interval>& list = keys.emplace_back();
    for (interval i : set.parts()) list.push_back({i.lo / o.granule, (i.hi - 1) / o.granule + 1});
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
