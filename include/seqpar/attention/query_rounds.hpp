// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which side of attention moves along the ring: which queries must visit which keys, and what either side costs.
#pragma once

#include <numeric>
#include <vector>

#include <seqpar/attention/rounds.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// What each ring member's queries need, turned round: for each block of keys the queries that may see one of them.
/// Exact where the mask's reach is. The queries are halved: a span leaves a block's search once its reach misses the
/// block, and is found whole if all of it sees the last key there that its first query sees. So the work grows with
/// the runs of what is found; spans and their reach are shared by all blocks.
template <class Mask>
class seer_search {
 public:
  seer_search(const Mask& mask, const std::vector<std::vector<run>>& blocks, index_t k_tokens)
      : mask_(mask), k_tokens_(k_tokens), found_(blocks.size()) {
    for (const std::vector<run>& block : blocks) keys_.emplace_back(packed_rows(block, {0, 1}));
  }

  std::vector<position_set> among(interval queries) {
    std::vector<std::size_t> all(keys_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (!queries.empty()) search(queries, std::move(all));
    return std::move(found_);
  }

 private:
  void search(interval queries, std::vector<std::size_t> blocks) {
    constexpr bool all_reach_all = !has_reach<Mask> && !interval_mask<Mask>;
    const bool single = queries.size() == 1;
    look_from({queries.lo, queries.lo + 1});
    std::erase_if(blocks, [&](std::size_t b) {
      const bool whole = std::any_of(reached_.begin(), reached_.end(), [&](interval keys) {
        const index_t last = keys_[b].last_in(keys);
        return last >= 0 && (single || all_reach_all || covers(mask_, queries, {last, last + 1}) == cover::all);
      });
      if (whole) found_[b].add(queries);
      return whole;
    });
    if (single || blocks.empty()) return;
    look_from(queries);
    std::erase_if(blocks, [&](std::size_t b) {
      return std::none_of(reached_.begin(), reached_.end(), [&](interval keys) { return keys_[b].last_in(keys) >= 0; });
    });
    if (blocks.empty()) return;
    const index_t middle = queries.lo + queries.size() / 2;
    search({queries.lo, middle}, blocks);
    search({middle, queries.hi}, std::move(blocks));
  }
  void look_from(interval queries) {
    reached_.clear();
    reach(mask_, queries, k_tokens_, [&](interval keys) { reached_.push_back(keys); });
  }

  const Mask& mask_;
  index_t k_tokens_;
  std::vector<holding_index> keys_;
  std::vector<interval> reached_;
  std::vector<position_set> found_;
};

/// Bytes that one row of one head costs for each member that it travels to, there and back.
struct travel_bytes {
  index_t forward, backward;
};
/// A query row also says, once for all heads that travel together, which keys it may see: two intervals, or its
/// position.
constexpr index_t bytes_of_sight(bool intervals) {
  return (intervals ? 4 : 1) * static_cast<index_t>(sizeof(std::int32_t));
}
/// Keys: k, v; and dk, dv in fp32.
inline travel_bytes bytes_of_key(const attention_shape& n, index_t element_bytes) {
  const index_t numbers = n.head_dim + n.v_dim();
  return {numbers * element_bytes, numbers * (element_bytes + 4)};
}
/// Queries: q, and the state (acc, max, sum); q, dout, lse, delta, and dq. All but q and dout in fp32.
inline travel_bytes bytes_of_query(const attention_shape& n, index_t element_bytes) {
  return {n.head_dim * element_bytes + (n.v_dim() + 2) * 4,
          (n.head_dim + n.v_dim()) * element_bytes + (n.head_dim + 2) * 4};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
