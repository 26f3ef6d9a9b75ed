// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which side of attention moves along the ring: which queries must visit which keys, and what either side costs.
#pragma once

#include <numeric>
#include <vector>

#include <seqpar/attention/rounds.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// The line of keys in pieces that one block owns, or nobody: cut where another begins, or into single keys where the
/// blocks are dealt so finely that hardly more would come together. Blocks do not overlap.
class key_line {
 public:
  template <class = when_used>
  key_line(const std::vector<std::vector<run>>& blocks, index_t k_tokens) {
    struct owned {
      interval keys;
      int block;
    };
    std::vector<owned> all;
    const bool fine = [&] {
      index_t pieces = 0;
      for (const std::vector<run>& block : blocks)
        for (const run& r : block) pieces += is_solid(r) ? 1 : r.count;
      return pieces > k_tokens / 64;
    }();
    if (fine) block_.assign(static_cast<std::size_t>(k_tokens), -1);
    for (std::size_t b = 0; b < blocks.size(); ++b)
      for (const run& r : blocks[b]) {
        const int block = static_cast<int>(b);
        if (!fine && r.count > 0 && is_solid(r)) {
          all.push_back({span_of(r), block});
          continue;
        }
        for (index_t i = 0; i < r.count; ++i)
          if (fine)
            block_[static_cast<std::size_t>(r.at(i))] = block;
          else
            all.push_back({{r.at(i), r.at(i) + 1}, block});
      }
    if (fine) return;
    sort_by(all, [](const owned& x) { return x.keys.lo; });
    index_t end = 0;
    for (const owned& x : all) {
      if (x.keys.lo > end) append(end, -1);
      append(x.keys.lo, x.block);
      end = x.keys.hi;
    }
    if (end < k_tokens) append(end, -1);
  }

  index_t size() const { return std::ssize(block_); }
  int block_of(index_t piece) const { return block_[static_cast<std::size_t>(piece)]; }
  /// The piece of a key; `guess` is a piece near it.
  template <class = when_used>
  index_t piece_of(index_t key, index_t guess) const {
    if (first_.empty()) return key;
    const auto begun = [&](index_t i) { return i >= 0 && i < size() && first_[static_cast<std::size_t>(i)] <= key; };
    for (index_t i : {guess, guess + 1})
      if (begun(i) && !begun(i + 1)) return i;
    index_t lo = 0, hi = size();
    while (hi - lo > 1) {
      const index_t middle = lo + (hi - lo) / 2;
      (begun(middle) ? lo : hi) = middle;
    }
    return lo;
  }

 private:
  static bool is_solid(const run& r) { return r.step == 1 || r.step == -1; }
  template <class = when_used>
  void append(index_t first, int block) {
    first_.push_back(first);
    block_.push_back(block);
  }
  std::vector<int> block_;      ///< −1: nobody's
  std::vector<index_t> first_;  ///< of a piece; none where each is one key
};

/// Whether an index has rows in one of the intervals.
template <class = when_used>
bool any_in(const holding_index& keys, const std::vector<interval>& reached) {
  for (interval i : reached)
    if (keys.last_in(i) >= 0) return true;
  return false;
}

/// Finds who sees which block by going from query to query, with a count of the pieces of each block that the query
/// reaches. Work for a query is where it reaches other than the one before.
class seer_walk {
 public:
  template <class = when_used>
  seer_walk(const key_line& line, const std::vector<holding_index>& blocks, std::vector<position_set>& found)
      : line_(line),
        blocks_(blocks),
        found_(found),
        reached_(blocks.size()),
        since_(blocks.size(), -1),
        budget_(line.size()) {}

  /// The next query, one more than the last, and the keys that it reaches.
  template <class = when_used>
  void step(index_t q, const std::vector<interval>& keys) {
    for (std::size_t b = 0; q % 4096 == 0 && b < found_.size(); ++b) found_[b].pack();
    if (at_.size() < keys.size()) at_.resize(keys.size());
    next_.resize(at_.size());
    index_t changed = 0;
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const interval at = at_[i];
      interval& next = next_[i] = {at.lo, at.lo};
      if (i < keys.size()) next = {line_.piece_of(keys[i].lo, at.lo), line_.piece_of(keys[i].hi - 1, at.hi - 1) + 1};
      changed += at.size() + next.size() - 2 * intersection(at, next).size();
    }
    // Jumps are paid for by the queries before: with a mask that jumps all the time each query asks each block instead,
    // which takes no longer than that.
    budget_ += 4 * std::ssize(blocks_);
    if (changed > budget_) {
      for (std::size_t b = 0; b < blocks_.size(); ++b) set(q, b, any_in(blocks_[b], keys));
      counted_ = false;
      return;
    }
    budget_ -= changed;
    for (std::size_t i = 0; changed > 0 && i < at_.size(); ++i) count(q, next_[i], at_[i], 1);  // or some seem to go
    for (std::size_t i = 0; changed > 0 && i < at_.size(); ++i) count(q, at_[i], next_[i], -1);
    std::swap(at_, next_);
    for (std::size_t b = 0; !counted_ && b < blocks_.size(); ++b) set(q, b, reached_[b] > 0);
    counted_ = true;
  }
  template <class = when_used>
  void end(index_t q) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) set(q, b, false);
  }

 private:
  template <class = when_used>
  void set(index_t q, std::size_t block, bool sees) {
    index_t& since = since_[block];
    if (sees == (since >= 0)) return;
    if (!sees) found_[block].add({since, q});
    since = sees ? q : -1;
  }
  /// Pieces in `some` but not in `those`.
  template <class = when_used>
  void count(index_t q, interval some, interval those, index_t change) {
    const auto add = [&](index_t piece, index_t end) {
      for (; piece < end; ++piece)
        if (const int block = line_.block_of(piece); block >= 0) {
          const auto b = static_cast<std::size_t>(block);
          reached_[b] += change;
          if (reached_[b] <= 1) set(q, b, reached_[b] > 0);
        }
    };
    add(some.lo, std::min(some.hi, those.lo));
    add(std::max(some.lo, those.hi), some.hi);
  }

  const key_line& line_;
  const std::vector<holding_index>& blocks_;
  std::vector<position_set>& found_;
  std::vector<index_t> reached_;     ///< pieces, of each block
  std::vector<index_t> since_;       ///< from which query on it is seen, or −1
  std::vector<interval> at_, next_;  ///< pieces, of each interval that a query reaches
  index_t budget_;
  bool counted_ = true;  ///< since_ is what reached_ says
};

/// What each ring member's queries need, turned round: for each block of keys the queries that may see one of them.
/// Exact where the mask's reach is.
///
/// The queries are halved: a span leaves a block's search once its reach misses the block, and is found whole if all of
/// it sees the last key there that its first query sees. So the work grows with the runs of what is found; spans and
/// their reach are shared by all blocks.
/// Where that would end at few queries each, or a span's reach is no less than each of its queries', they are walked.
template <class = when_used>
class seer_search {
 public:
  seer_search(const mask_view& mask, const std::vector<std::vector<run>>& blocks, index_t k_tokens)
      : mask_(mask), blocks_(blocks), k_tokens_(k_tokens), found_(blocks.size()) {
    for (const std::vector<run>& block : blocks) keys_.emplace_back(packed_rows(block, {0, 1}));
  }

  std::vector<position_set> among(interval queries) {
    if (queries.empty()) return std::move(found_);
    if (mask_.has_reach || all_reach_all_) {
      std::vector<std::size_t> all(keys_.size());
      std::iota(all.begin(), all.end(), std::size_t{0});
      steps_left_ = 64 * std::ssize(all) + queries.size() / 8;
      search(queries, std::move(all));
      if (steps_left_ >= 0) return std::move(found_);
      found_.assign(found_.size(), {});
    }
    const key_line line(blocks_, k_tokens_);
    seer_walk walk(line, keys_, found_);
    for (index_t q = queries.lo; q < queries.hi; ++q) {
      look_from({q, q + 1});
      walk.step(q, reached_);
    }
    walk.end(queries.hi);
    return std::move(found_);
  }

 private:
  void search(interval queries, std::vector<std::size_t> blocks) {
    if ((steps_left_ -= std::ssize(blocks)) < 0) return;
    const bool single = queries.size() == 1;
    look_from({queries.lo, queries.lo + 1});
    std::erase_if(blocks, [&](std::size_t b) {
      const bool whole = std::any_of(reached_.begin(), reached_.end(), [&](interval keys) {
        const index_t last = keys_[b].last_in(keys);
        return last >= 0 && (single || all_reach_all_ || mask_.covers(queries, {last, last + 1}) == cover::all);
      });
      if (whole) found_[b].add(queries);
      return whole;
    });
    if (single || blocks.empty()) return;
    look_from(queries);
    std::erase_if(blocks, [&](std::size_t b) { return !any_in(keys_[b], reached_); });
    if (blocks.empty()) return;
    const index_t middle = queries.lo + queries.size() / 2;
    search({queries.lo, middle}, blocks);
    search({middle, queries.hi}, std::move(blocks));
  }

  void look_from(interval queries) {
    reached_.clear();
    mask_.reach({queries.lo, queries.size(), 1}, k_tokens_, [&](interval keys) { reached_.push_back(keys); });
  }

  const mask_view mask_;
  const bool all_reach_all_ = !mask_.has_reach && !mask_.has_intervals;
  const std::vector<std::vector<run>>& blocks_;
  index_t k_tokens_;
  std::vector<holding_index> keys_;
  std::vector<interval> reached_;
  index_t steps_left_ = 0;
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
