// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a layout on a mesh moves and computes, and how fast it can be at best.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/cost/dealt.hpp>
#include <seqpar/cost/machine.hpp>
#include <seqpar/cost/traffic.hpp>
#include <seqpar/cost/work.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A layout on a mesh, and what was found out about it.
struct candidate {
  std::string layout;
  mesh_shape team;
  dealt deal;  ///< over all members
  seqpar::schedule schedule = seqpar::schedule::direct;
  /// Bytes per member in all passes: as they ran, or as direct moves them, without joint tokens' own.
  spread received{};
  double balance = 1;        ///< work of the busiest member over the mean, for the sides that travel
  double least = 0;          ///< seconds that no schedule undercuts
  double seconds = 0;        ///< on paper; 0: not run
  double waiting = 0;        ///< of it, what the rank that waits most spends waiting
  index_t memory_bytes = 0;  ///< of all kinds, the largest of each; 0: not run
  int own = -1;              ///< which of choose_options::layouts; −1: none of them
  std::string why{};
};

namespace detail {

/// The least time of one pass, whatever the schedule: what a member's group exchanges with nothing to hide behind, then
/// the longest of what it computes, what it receives along the ring, and what must enter its node. Where direct lets
/// queries travel, whoever has the keys computes; other schedules move keys nonetheless, so it is the less of the two.
class least_times {
 public:
  least_times(const needs& n, const machine& m, const attention_options& o, const element_sizes& e, const visits* v,
              const mask_pieces& pieces)
      : n_(n), machine_(m), options_(o), size_(e), d_(n.shape().head_dim), e_(n.shape().v_dim()) {
    const mesh_shape& team = n.team();
    for (int r = 0; r < n.ring_size(); ++r) {
      rows_.push_back(n.rows_received(r));
      visiting_.push_back(v ? v->rows_received(r) : 0);
      index_t& visited = visited_.emplace_back(0);
      for (int other = 0; v && other < n.ring_size(); ++other) visited += v->rows(r, other);
    }
    if (v) moves_ = sides_of(n, *v, o, e.in);
    if (v) sight_ = v->sight_bytes();
    if (moves_.forward == side::queries || moves_.backward == side::queries) pairs_there_ = pairs_at_keys(n, pieces);
    for (int first = 0; several_nodes() && first < team.size(); first += m.ranks_per_node) {
      index_t& entries = entering_.emplace_back(0);
      for (int u = 0; u < team.all_to_all; ++u) entries += rows_entering(first, u) * n.kv_heads_of(u).size();
    }
  }

  struct times {
    std::vector<double> bytes, flops;  ///< of each member
    double least;
  };
  times of(bool backward) const {
    const mesh_shape& team = n_.team();
    const double batch = real(n_.shape().batch);
    const index_t again = options_.reuse == reuse::resend ? index_t{size_.in} : 0, fp32 = sizeof(float);
    const index_t key = (backward ? again : index_t{size_.in}) * (d_ + e_), sum = backward ? fp32 * (d_ + e_) : 0;
    const index_t query_in = backward ? again * d_ + size_.in * e_ + 2 * fp32 : size_.in * d_;
    const index_t query_out = backward ? size_.grad * d_ : size_.out * e_ + fp32;
    const bool queries = (backward ? moves_.backward : moves_.forward) == side::queries;
    const index_t there = backward ? size_.in * (d_ + e_) + 2 * fp32 : size_.in * d_;
    const index_t back = fp32 * (backward ? d_ : e_ + 2);
    const double ports = machine_.inside.bandwidth + (several_nodes() ? machine_.across.bandwidth : 0);
    double by_keys = 0, by_queries = 0;
    times t{};
    for (int member = 0; member < team.size(); ++member) {
      const int r = team.ring_of(member), u = team.all_to_all_of(member);
      const index_t h = n_.heads_of(u).size(), g = n_.kv_heads_of(u).size();
      double group[2] = {};  // bytes received inside the node and across
      for (int v = 0; v < team.all_to_all; ++v)
        if (const int other = team.member_at(r, v); v != u)
          group[machine_.one_node(member, other) ? 0 : 1] +=
              batch * real(n_.q_rows(other) * h * query_in + n_.kv_rows(other) * g * key +
                           n_.q_rows(member) * n_.heads_of(v).size() * query_out +
                           n_.kv_rows(member) * n_.kv_heads_of(v).size() * sum);
      const double arriving = batch * real(rows_[static_cast<std::size_t>(r)] * g);
      double ring = arriving * real(key) / ports;
      if (several_nodes()) {
        const int node = member / machine_.ranks_per_node;
        const int ranks = std::min(machine_.ranks_per_node, team.size() - node * machine_.ranks_per_node);
        ring = std::max(
            ring, batch * real(entering_[static_cast<std::size_t>(node)] * key) / (machine_.across.bandwidth * ranks));
      }
      const auto at = static_cast<std::size_t>(r);
      const auto flops_of = [&](index_t pairs) {
        return batch * real(pairs) * real(h * (backward ? 6 * d_ + 4 * e_ : 2 * d_ + 2 * e_));
      };
      const double alone =
          std::max(group[0] / machine_.inside.bandwidth, several_nodes() ? group[1] / machine_.across.bandwidth : 0);
      t.flops.push_back(flops_of(n_.pairs(r)));
      by_keys = std::max(by_keys, alone + std::max(t.flops.back() / machine_.flops, ring));
      if (queries) {
        t.flops.back() = flops_of(pairs_there_[at]);
        const double visiting = batch * real(visiting_[at] * h * there) / ports;
        by_queries = std::max(by_queries, alone + std::max(t.flops.back() / machine_.flops, visiting));
      }
      t.bytes.push_back(group[0] + group[1] +
                        (queries ? batch * real((visiting_[at] * there + visited_[at] * back) * h) +
                                       real(h > 0 ? visiting_[at] * sight_ : 0)
                                 : arriving * real(key + sum)));
    }
    t.least = queries ? std::min(by_keys, by_queries) : by_keys;
    return t;
  }

 private:
  static double real(index_t x) { return static_cast<double>(x); }
  bool several_nodes() const { return machine_.several_nodes(n_.team().size()); }
  /// Rows that some member with all-to-all index u of the node from rank `first` on wants and none of them holds.
  index_t rows_entering(int first, int u) const {
    std::vector<interval> wanted;
    std::vector<int> here;
    for (int m = first; m < std::min(first + machine_.ranks_per_node, n_.team().size()); ++m)
      if (n_.team().all_to_all_of(m) == u) here.push_back(n_.team().ring_of(m));
    for (int r : here) wanted = n_.with_wanted(wanted, r);
    index_t rows = 0;
    for (interval i : wanted) rows += n_.dealt_keys(i);
    for (int r : here) rows -= n_.rows_in(wanted, r);
    return rows;
  }

  const needs& n_;
  const machine& machine_;
  const attention_options& options_;
  element_sizes size_;
  index_t d_, e_, sight_ = 0;
  std::vector<index_t> rows_, entering_;     ///< received by ring member; (row, kv head) by node
  std::vector<index_t> visiting_, visited_;  ///< queries that come to a ring member; how often its own go out
  std::vector<index_t> pairs_there_;         ///< of a ring member's keys; where queries travel
  moving_sides moves_{side::keys, side::keys};
};

}  // namespace detail

/// Weighs one deal on one mesh: bytes, balance, and the time that no schedule undercuts.
template <element T, element Out = T, element Grad = T, attention_mask Mask>
candidate weigh(const std::string& name, const mesh_shape& team, const dealt& deal, const Mask& mask,
                const attention_shape& shape, const machine& m, const attention_options& options,
                const mask_pieces& pieces) {
  detail::check_machine("weigh", m, team.size());
  const needs n(team, deal.view(), deal.view(), mask, shape, pieces);
  const bool may_travel = team.ring > 1 && detail::queries_may_travel(options, shape) &&
                          (options.moves.forward != side::keys || options.moves.backward != side::keys);
  std::optional<visits> v;
  if (may_travel) v.emplace(n, mask, pieces);
  const detail::least_times least(n, m, options, {sizeof(T), sizeof(Out), sizeof(Grad)}, v ? &*v : nullptr, pieces);
  candidate c{.layout = name, .team = team, .deal = deal};
  std::vector<double> flops(static_cast<std::size_t>(team.size())), bytes = flops;
  for (int pass = 0; pass < (options.passes == forward_backward ? 2 : 1); ++pass) {
    const detail::least_times::times t = least.of(pass == 1);
    for (std::size_t i = 0; i < flops.size(); ++i) {
      flops[i] += t.flops[i];
      bytes[i] += t.bytes[i];
    }
    c.least += t.least;
  }
  c.received = detail::spread_of(bytes);
  c.balance = detail::spread_of(flops).most_over_mean();
  return c;
}

}  // namespace v0_1
}  // namespace seqpar
