// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rank encodes which image, by count or by cost.
#pragma once

#include <algorithm>
#include <cmath>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
template <class = when_used>
failure check_costs(const char* where, std::span<const double> costs, int ranks) {
  if (ranks < 1) return invalid(where, "ranks must be at least 1, got " + std::to_string(ranks));
  double sum = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const std::string item = "item " + std::to_string(i);
    if (!(costs[i] >= 0) || !std::isfinite(costs[i]))
      return invalid(where,
                     "the cost of " + item + " is " + std::to_string(costs[i]) + "; give finite costs of 0 or more");
    if (!std::isfinite(sum += costs[i]))
      return invalid(where, "the costs up to " + item + " have an infinite sum; give them in a larger unit");
  }
  return {};
}
}  // namespace detail

/// Stage 1: which rank encodes which item (image, frame, clip). A layout of items: plan_scatter over it sends items of
/// equal size to their encoders. Made by deal_items. A rank's items are in ascending order; it may have none.
class item_deal {
 public:
  index_t token_count() const { return static_cast<index_t>(places_.size()); }
  int rank_count() const { return static_cast<int>(items_.size()); }
  index_t count_of(int rank) const { return static_cast<index_t>(items_[static_cast<std::size_t>(rank)].size()); }
  index_t global_of(int rank, index_t local) const {
    return items_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(local)];
  }
  place place_of(index_t item) const { return places_[static_cast<std::size_t>(item)]; }

  template <class = when_used>
  std::span<const index_t> items_of(int rank) const {
    return detail::span_over(items_[static_cast<std::size_t>(rank)]);
  }
  double load_of(int rank) const { return loads_[static_cast<std::size_t>(rank)]; }  ///< Σ of its items' costs
  /// Greatest load over the mean: 1 is even. 1 where nothing costs anything.
  template <class = when_used>
  double imbalance() const {
    double most = 0, sum = 0;
    for (double l : loads_) {
      most = std::max(most, l);
      sum += l;
    }
    return sum > 0 ? most / sum * static_cast<double>(loads_.size()) : 1;
  }
  friend bool operator==(const item_deal&, const item_deal&) = default;

  /// Item i goes to owners[i] and costs costs[i]. Fails (error): an owner that is no rank, other numbers of owners and
  /// costs, what deal_items refuses.
  template <class = when_used>
  item_deal(std::span<const int> owners, std::span<const double> costs, int ranks) {
    if (failure f = problem_of(owners, costs, ranks)) raise(*f);
    items_.resize(static_cast<std::size_t>(ranks));
    loads_.resize(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const auto rank = static_cast<std::size_t>(owners[i]);
      places_.push_back({owners[i], static_cast<index_t>(items_[rank].size())});
      items_[rank].push_back(static_cast<index_t>(i));
      loads_[rank] += costs[i];
    }
  }

 private:
  template <class = when_used>
  static failure problem_of(std::span<const int> owners, std::span<const double> costs, int ranks) {
    const char* where = "item_deal";
    if (failure f = detail::check_costs(where, costs, ranks)) return f;
    if (owners.size() != costs.size())
      return detail::invalid(where, std::to_string(owners.size()) + " owners and " + std::to_string(costs.size()) +
                                        " costs; give one of each to every item");
    for (std::size_t i = 0; i < owners.size(); ++i)
      if (owners[i] < 0 || owners[i] >= ranks)
        return detail::invalid(where, "item " + std::to_string(i) + " goes to rank " + std::to_string(owners[i]) +
                                          ", which is not one of " + std::to_string(ranks) + " ranks");
    return {};
  }

  std::vector<std::vector<index_t>> items_;  ///< of each rank
  std::vector<place> places_;
  std::vector<double> loads_;
};

/// By count: consecutive items, the first (items mod ranks) ranks get one more. Every item costs 1.
template <class = when_used>
result<item_deal> try_deal_items(index_t items, int ranks) {
  const char* where = "deal_items";
  if (ranks < 1) return detail::invalid(where, "ranks must be at least 1, got " + std::to_string(ranks));
  if (items < 0) return detail::invalid(where, "items must not be negative, got " + std::to_string(items));
  const pieces cut{items, ranks};
  std::vector<int> owners;
  for (index_t i = 0; i < items; ++i) owners.push_back(static_cast<int>(cut.piece_of(i)));
  return item_deal(owners, std::vector<double>(owners.size(), 1.), ranks);
}
template <class = when_used>
item_deal deal_items(index_t items, int ranks) {
  return try_deal_items(items, ranks).value();
}

/// By cost: the costliest item first, each to the rank with the least load so far (then the fewest items, then the
/// lowest rank); at most 4/3 of the best possible greatest load (Graham). Fails: a cost that is negative, infinite or
/// no number.
template <class = when_used>
result<item_deal> try_deal_items(std::span<const double> costs, int ranks) {
  if (failure f = detail::check_costs("deal_items", costs, ranks)) return *f;
  std::vector<std::size_t> order(costs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  struct bin {
    double load;
    index_t items;
    int rank;
  };
  const auto later = [](const bin& a, const bin& b) {
    if (a.load != b.load) return a.load > b.load;
    return a.items != b.items ? a.items > b.items : a.rank > b.rank;
  };
  std::priority_queue<bin, std::vector<bin>, decltype(later)> bins(later);
  for (int r = 0; r < ranks; ++r) bins.push({0, 0, r});
  std::vector<int> owners(costs.size());
  for (const std::size_t item : order) {
    const bin least = bins.top();
    bins.pop();
    owners[item] = least.rank;
    bins.push({least.load + costs[item], least.items + 1, least.rank});
  }
  return item_deal(owners, costs, ranks);
}
template <class = when_used>
item_deal deal_items(std::span<const double> costs, int ranks) {
  return try_deal_items(costs, ranks).value();
}

}  // namespace v0_1
}  // namespace seqpar
