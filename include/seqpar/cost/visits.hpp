// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which queries must visit which keys, where queries travel along the ring; and which side a plan lets travel.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/attention/query_rounds.hpp>
#include <seqpar/cost/ends_in_turns.hpp>
#include <seqpar/cost/needs.hpp>
#include <seqpar/cost/work.hpp>

namespace seqpar {
inline namespace v0_1 {

/// rows(w, o) = |{ queries of ring member w that may see a key of ring member o }|, o ≠ w: what travels where queries
/// do. Steps: pieces of the mask × runs of keys that a piece meets; masks whose pieces are not known are asked as a
/// plan asks them. Where the queries are dealt in turns, the seers of a piece are counted by their ends modulo the
/// turn, once for all members.
class visits {
 public:
  template <attention_mask Mask>
  visits(const needs& n, const Mask& mask, const mask_pieces& pieces) : needs_(&n) {
    n.check_pieces("visits", pieces);
    bool intervals = detail::may_have_intervals<Mask>;
    for (const mask_pieces::piece& p : pieces.pieces()) intervals = intervals && p.count <= 2;
    sight_bytes_ = detail::bytes_of_sight(intervals);
    const auto ring = static_cast<std::size_t>(n.ring_size());
    if constexpr (detail::steady<Mask>::known) {
      std::vector<detail::position_set> seers(ring);
      detail::owned_runs keys;
      bool one_run = true;
      for (int o = 0; o < n.ring_size(); ++o) {
        for (const run& r : n.keys(o)) keys.add(r, o);
        one_run = one_run && n.keys(o).size() <= 1;
      }
      keys.finish();
      const index_t turn = turn_of(n);
      if (turn > 0 && turn <= std::ssize(pieces.pieces())) ends_ = {turn, ring};
      for (const mask_pieces::piece& p : pieces.pieces()) {
        const bool once = !ends_.empty() && one_run && p.count == 1;  // no query is added to a member's set twice
        for (index_t k = 0; k < p.count; ++k) {
          const moving_interval& seen = pieces.keys_of(p)[k];
          const index_t count = p.queries.size();
          keys.for_each_near({seen.at.lo, seen.after(count - 1).hi}, [&](const detail::ladder& block, int owner) {
            const auto o = static_cast<std::size_t>(owner);
            add_seers(p.queries, seen, block,
                      [&](const auto& some) { once ? ends_.add(o, some) : seers[o].add(some); });
          });
        }
        for (std::size_t o = 0; o < ring && !once && !ends_.empty(); ++o) {
          const auto set = seers[o].listed();
          for (const detail::comb& c : set.combs) ends_.add(o, c);
          for (interval i : set.parts) ends_.add(o, i);
          seers[o].clear();
        }
      }
      if (ends_.empty())
        for (detail::position_set& s : seers) seers_.push_back(s.listed());
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
        seers_.push_back(s.listed());
    }
  }

  template <attention_mask Mask>
  visits(const needs&&, const Mask&, const mask_pieces&, a_view_must_not_outlive_its_table = {}) = delete;

  index_t rows(int w, int o) const { return w == o ? 0 : seers_among(w, o); }
  /// Σ over w of rows(w, o), from the host's side alone.
  index_t rows_received(int o) const {
    const auto i = static_cast<std::size_t>(o);
    index_t rows = -seers_among(o, o);
    if (!ends_.empty()) return rows + ends_.size(i);
    return rows + seers_[i].size();
  }
  /// What a query says, once for all heads, of the keys that it may see.
  index_t sight_bytes() const { return sight_bytes_; }

 private:
  /// The step of all runs of queries, where each passes over all of them; else 0.
  static index_t turn_of(const needs& n) {
    index_t turn = 0, end = 0;
    for (int r = 0; r < n.ring_size(); ++r) end += detail::count_of(n.queries(r));
    for (int r = 0; r < n.ring_size(); ++r)
      for (const run& any : n.queries(r)) {
        const run x = detail::ascending(any);
        if (turn == 0) turn = x.step;
        if (x.step != turn || x.first >= turn || x.at(x.count) < end) return 0;
      }
    return turn;
  }
  index_t seers_among(int w, int o) const {
    const auto i = static_cast<std::size_t>(o);
    if (ends_.empty()) return detail::rows_among(needs_->queries(w), seers_[i]);
    index_t rows = 0;
    for (const run& r : needs_->queries(w)) rows += ends_.rows(i, detail::ascending(r).first);
    return rows;
  }
  /// Of the queries of a piece, those that see a row of the block.
  template <class F>
  static void add_seers(interval queries, const moving_interval& seen, const detail::ladder& block, F&& add) {
    const index_t first = queries.lo, count = queries.size();
    // an end that stays cuts the block once for all
    const index_t below = seen.lo_moves ? 0 : detail::rows_below(block, seen.at.lo);
    const index_t upto = seen.hi_moves ? block.count : detail::rows_below(block, seen.at.hi);
    if (below >= upto) return;
    const index_t begin = seen.hi_moves ? std::max<index_t>(0, block.at(below) + 1 - seen.at.hi) : 0;
    const index_t end = seen.lo_moves ? std::min(count, block.at(upto - 1) + 1 - seen.at.lo) : count;
    if (begin >= end) return;
    if (!(seen.lo_moves && seen.hi_moves) || seen.at.size() >= block.step)
      return add(interval{first + begin, first + end});
    // narrower than the block's steps: each row has seers of its own, of the first and the last perhaps not all
    const index_t row = detail::rows_below(block, seen.at.lo),
                  rows = detail::rows_below(block, seen.after(count).hi - 1) - row;
    const index_t sees = first + block.at(row) + 1;
    detail::comb inside{{sees - seen.at.hi, sees - seen.at.lo}, block.step, rows};
    if (rows > 0 && inside.first.lo < queries.lo) {
      add(intersection(inside.first, queries));
      inside = {inside.tooth(1), inside.step, inside.count - 1};
    }
    const interval last = inside.tooth(inside.count - 1);
    const bool cut = inside.count > 0 && last.hi > queries.hi;
    if (inside.count -= cut; inside.count > 0) add(inside);
    if (cut) add(intersection(last, queries));
  }

  const needs* needs_;
  index_t sight_bytes_ = 0;
  std::vector<detail::position_set::list> seers_;  ///< of each member's keys: positions of queries
  detail::ends_in_turns ends_;                     ///< in their place, where queries are dealt in turns
};

/// The sides that a plan with these options lets travel: those asked for, or those of fewer bytes over all ranks.
inline moving_sides sides_of(const needs& n, const visits& v, const attention_options& o, index_t element_bytes) {
  n.check_has_shape("sides_of");
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
