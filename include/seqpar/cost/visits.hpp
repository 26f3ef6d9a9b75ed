// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which queries must visit which keys, where queries travel along the ring; and which side a plan lets travel.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/attention/query_rounds.hpp>
#include <seqpar/cost/needs.hpp>
#include <seqpar/cost/work.hpp>

namespace seqpar {
inline namespace v0_1 {

/// rows(w, o) = |{ queries of ring member w that may see a key of ring member o }|, o ≠ w: what travels where queries
/// do. Steps: pieces of the mask × runs of keys that a piece meets; masks whose pieces are not known are asked as a
/// plan asks them.
class visits {
 public:
  template <attention_mask Mask>
  visits(const needs& n, const Mask& mask, const mask_pieces& pieces) : needs_(&n) {
    bool intervals = detail::may_have_intervals<Mask>;
    for (const mask_pieces::piece& p : pieces.pieces()) intervals = intervals && p.count <= 2;
    sight_bytes_ = detail::bytes_of_sight(intervals);
    const auto ring = static_cast<std::size_t>(n.ring_size());
    if constexpr (detail::steady<Mask>::known) {
      std::vector<detail::position_set> seers(ring);
      detail::owned_runs keys;
      for (int o = 0; o < n.ring_size(); ++o)
        for (const run& r : n.keys(o)) keys.add(r, o);
      keys.finish();
      for (const mask_pieces::piece& p : pieces.pieces())
        for (index_t k = 0; k < p.count; ++k) {
          const moving_interval& seen = pieces.keys_of(p)[k];
          const index_t count = p.queries.size();
          keys.for_each_near({seen.at.lo, seen.after(count - 1).hi}, [&](const run& block, int owner) {
            add_seers(seers[static_cast<std::size_t>(owner)], p.queries.lo, seen, count, block);
          });
        }
      for (detail::position_set& s : seers) seers_.push_back(s.parts());
    } else {
      std::vector<std::vector<run>> keys;
      index_t q_tokens = 0, k_tokens = n.shape().joint_kv;
      for (int o = 0; o < n.ring_size(); ++o) {
        keys.push_back(n.keys(o));
        k_tokens += detail::count_of(n.keys(o));
        q_tokens += detail::count_of(n.queries(o));
      }
      const auto whole = bound(mask, q_tokens, k_tokens);
      for (detail::position_set& s : detail::seer_search(whole, keys, k_tokens).among({0, q_tokens}))
        seers_.push_back(s.parts());
    }
  }

  index_t rows(int w, int o) const {
    return w == o ? 0 : detail::rows_among(needs_->queries(w), seers_[static_cast<std::size_t>(o)]);
  }
  /// Σ over w of rows(w, o), from the host's side alone.
  index_t rows_received(int o) const {
    const std::vector<interval>& all = seers_[static_cast<std::size_t>(o)];
    index_t rows = -detail::rows_among(needs_->queries(o), all);
    for (interval i : all) rows += i.size();
    return rows;
  }
  /// What a query says, once for all heads, of the keys that it may see.
  index_t sight_bytes() const { return sight_bytes_; }

 private:
  /// Of `count` queries from `first` on, those that see a row of the block.
  static void add_seers(detail::position_set& set, index_t first, const moving_interval& seen, index_t count,
                        const run& block) {
    const auto first_with = [&](index_t at, bool moves, index_t bound) {  // the first i with at + i·moves ≥ bound
      return at >= bound ? 0 : moves ? std::min(count, bound - at) : count;
    };
    // an end that stays cuts the block once for all
    const index_t below = seen.lo_moves ? 0 : detail::rows_below(block, seen.at.lo);
    const index_t upto = seen.hi_moves ? block.count : detail::rows_below(block, seen.at.hi);
    if (below >= upto) return;
    const index_t begin = first_with(seen.at.hi, seen.hi_moves, block.at(below) + 1);
    const index_t end = first_with(seen.at.lo, seen.lo_moves, block.at(upto - 1) + 1);
    if (begin >= end) return;
    if (!(seen.lo_moves && seen.hi_moves) || seen.at.size() >= block.step) return set.add({first + begin, first + end});
    for (index_t i = begin; i < end; ++i)  // narrower than the block's steps: it may see none between two rows
      if (detail::rows_below(block, seen.after(i).hi) > detail::rows_below(block, seen.after(i).lo))
        set.add({first + i, first + i + 1});
  }

  const needs* needs_;
  index_t sight_bytes_ = 0;
  std::vector<std::vector<interval>> seers_;  ///< of each member's keys: positions of queries
};

/// The sides that a plan with these options lets travel: those asked for, or those of fewer bytes over all ranks.
inline moving_sides sides_of(const needs& n, const visits& v, const attention_options& o, index_t element_bytes) {
  const auto real = [](index_t x) { return static_cast<double>(x); };
  index_t keys = 0, queries = 0, kv_heads = 0, parts = 0;  // parts: members of a group that have heads
  for (int r = 0; r < n.ring_size(); ++r) {
    keys += n.rows_received(r);
    queries += v.rows_received(r);
  }
  for (int u = 0; u < n.team().all_to_all; ++u) {
    kv_heads += n.kv_heads_of(u).size();
    parts += n.heads_of(u).empty() ? 0 : 1;
  }
  const auto choose = [&](side asked, index_t of_key, index_t of_query) {
    if (!detail::queries_may_travel(o, n.shape())) return side::keys;
    if (asked != side::cheaper) return asked;
    const index_t batch = n.shape().batch;
    const bool fewer = real(queries) * real(batch * n.shape().heads * of_query + parts * v.sight_bytes()) <
                       real(keys) * real(batch * kv_heads * of_key);
    return fewer ? side::queries : side::keys;
  };
  const detail::travel_bytes key = detail::bytes_of_key(n.shape(), element_bytes),
                             query = detail::bytes_of_query(n.shape(), element_bytes);
  return {choose(o.moves.forward, key.forward, query.forward), choose(o.moves.backward, key.backward, query.backward)};
}

}  // namespace v0_1
}  // namespace seqpar
