// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An attention call worked out for one member: who it gathers from, which rounds it runs, what its kernels visit.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include <seqpar/attention/query_rounds.hpp>
#include <seqpar/attention/shape.hpp>
#include <seqpar/communicator/mesh.hpp>
#include <seqpar/kernel/tables.hpp>
#include <seqpar/kernel/transpose.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/mask/detail/mask_view.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Rows and heads of one member; field by field the largest over all members where memory is equal on all ranks.
struct member_sizes {
  index_t q_home = 0, kv_home = 0;                         ///< rows that the layouts give it
  index_t q_rows = 0, kv_rows = 0;                         ///< rows of its all-to-all group
  index_t heads = 0, kv_heads = 0;                         ///< heads that it attends to
  index_t kv_returns = 0;                                  ///< (row, kv head) gradients that its group sends back to it
  index_t joint_q = 0;                                     ///< joint query rows that its ring index attends for
  index_t joint_kv_returns = 0;                            ///< (row, kv head) gradients of its slice of the joint keys
  index_t round_rows = 0, sent_rows = 0, summed_rows = 0;  ///< of one round of the ring, the largest
  index_t window_rows = 0;                                 ///< of one step of double_ring, the largest
  index_t visiting_rows = 0;                               ///< queries of one round, the largest

  static member_sizes largest(const member_sizes& a, const member_sizes& b) {
    return {std::max(a.q_home, b.q_home),
            std::max(a.kv_home, b.kv_home),
            std::max(a.q_rows, b.q_rows),
            std::max(a.kv_rows, b.kv_rows),
            std::max(a.heads, b.heads),
            std::max(a.kv_heads, b.kv_heads),
            std::max(a.kv_returns, b.kv_returns),
            std::max(a.joint_q, b.joint_q),
            std::max(a.joint_kv_returns, b.joint_kv_returns),
            std::max(a.round_rows, b.round_rows),
            std::max(a.sent_rows, b.sent_rows),
            std::max(a.summed_rows, b.summed_rows),
            std::max(a.window_rows, b.window_rows),
            std::max(a.visiting_rows, b.visiting_rows)};
  }
};

/// Queries with their rows and, per key segment, their tables. Dealt ones are part 0, joint ones part 1; those that
/// visit in round s are part 1 + s.
struct query_part {
  query_rows rows;
  std::vector<key_rows> keys;  ///< segments: 0 own block; of parts 0 and 1 also 1 joint keys, 1 + s round s
};

/// The attention problem of one member. Everything here follows from arguments that are the same on all ranks.
struct attention_setup {
  attention_shape shape{.heads = 1, .kv_heads = 1, .head_dim = 1};
  int ring = 0, ring_size = 1, group = 0, group_size = 1;  ///< this member's coordinates in the mesh
  interval heads, kv_heads;                                ///< of this member
  interval joint_q, joint_kv_slice;                        ///< joint rows it attends for; joint keys whose sums it owns
  member_sizes own, largest;
  route q_in, kv_in;  ///< layout → the group's rows, a range of heads; peers are all-to-all indices
  route joint_out, joint_sums, joint_gather;   ///< joint results and key gradients; peers are members
  moving_sides moves{side::keys, side::keys};  ///< never `cheaper`
  ring_plan rounds;                            ///< of keys, if some pass moves them; peers are ring indices
  ring_plan visits;  ///< of queries, if some pass moves them: a round's `keys` are the visiting rows, which bring their
                     ///< part of the query table along: here it would take room for all tokens
  std::vector<query_part> parts;
  bool intervals = true;  ///< every row fits in two key intervals: no functor is asked

  /// f(way, what moves there) for every route along the ring.
  template <class F>
  void for_each_ring_route(F&& f) const {
    for (const ring_round& r : rounds.rounds)
      for (const route* way : {&r.kv, &r.sums}) f(*way, side::keys);
    for (const window_step& w : rounds.windows) f(w.kv, side::keys);
    f(rounds.home_sums, side::keys);
    for (const ring_round& r : visits.rounds) f(r.kv, side::queries);  // r.once has the same peers and blocks
  }
  /// Heads of all-to-all index u, and the set of kv heads that they need.
  interval heads_of(int u) const { return share(shape.heads, group_size, u); }
  interval kv_heads_of(int u) const {
    const interval h = heads_of(u);
    return h.empty() ? interval{} : interval{h.lo / shape.heads_per_kv(), (h.hi - 1) / shape.heads_per_kv() + 1};
  }
};

/// What planning must know of a kernel: its tiles, and what it reads beside them (null: it does not).
struct kernel_needs {
  index_t query_tile, key_tile;
  void (*transpose)(key_rows&) = nullptr;
  std::optional<std::vector<rectangle>> (*rectangles)(const query_table&, std::span<const run>, index_t) = nullptr;
  index_t most_rectangles = 0;

  template <class Kernel>
  static kernel_needs of(bool backward) {
    kernel_needs n{Kernel::query_tile_rows, Kernel::key_tile_rows};
    if constexpr (walks_by_keys<Kernel>())
      if (backward) n.transpose = seqpar::transpose<>;
    if constexpr (detail::most_rectangles<Kernel>() > 0) {
      n.rectangles = seqpar::rectangles<>;
      n.most_rectangles = detail::most_rectangles<Kernel>();
    }
    return n;
  }
};

/// What an attention is planned from, types forgotten. `mask` is bound to the whole lengths and has passed its own
/// checks.
struct attention_problem {
  mesh_shape team;
  int me;
  const layout_rows &q, &kv;
  mask_view mask;
  attention_shape shape;
  const attention_options& options;
  index_t element_bytes;
  kernel_needs kernel;

  index_t q_tokens() const { return q.tokens + shape.joint_q; }  ///< with joint ones
  index_t k_tokens() const { return kv.tokens + shape.joint_kv; }
};

/// Works the setup out.
template <class = when_used>
class setup_builder {
 public:
  explicit setup_builder(const attention_problem& p)
      : p_(p), team_(p.team), options_(p.options), k_tokens_(p.k_tokens()) {
    s_.shape = p.shape;
    s_.ring_size = static_cast<int>(team_.ring);
    s_.group_size = static_cast<int>(team_.all_to_all);
    s_.ring = team_.ring_of(p.me);
    s_.group = team_.all_to_all_of(p.me);
  }

  attention_setup build() {
    s_.heads = s_.heads_of(s_.group);
    s_.kv_heads = s_.kv_heads_of(s_.group);
    s_.joint_q = joint_rows(s_.ring);
    s_.intervals = p_.mask.may_have_intervals && all_fit();
    s_.joint_kv_slice = share(s_.shape.joint_kv, team_.size(), p_.me);
    plan_blocks();
    plan_rounds();
    plan_sizes();
    plan_joint();
    plan_tables();
    return std::move(s_);
  }

 private:
  bool front() const { return s_.shape.joint_at == joint_place::front; }
  interval joint_rows(int ring) const { return share(s_.shape.joint_q, s_.ring_size, ring); }
  run joint_run(interval rows, index_t dealt) const { return {(front() ? 0 : dealt) + rows.lo, rows.size(), 1}; }
  /// Positions of each member's rows: behind the joint ones where these are in front. `moved` keeps them then.
  const std::vector<std::vector<run>>& positions_of(const layout_rows& layout, index_t joint,
                                                    std::vector<std::vector<run>>& moved) const {
    if (!front() || joint == 0) return layout.of_rank;
    moved = layout.of_rank;
    for (std::vector<run>& rows : moved)
      for (run& r : rows) r.first += joint;
    return moved;
  }
  /// The rows of all members of one ring index, member after member: the order in which they arrive.
  std::vector<run> block_of(const std::vector<std::vector<run>>& home, int ring) const {
    std::vector<run> block;
    for (int u = 0; u < s_.group_size; ++u)
      for (const run& r : home[static_cast<std::size_t>(team_.member_at(ring, u))]) block.push_back(r);
    return block;
  }
  /// Rows with all heads at home, the block's rows with some heads in the group.
  template <class HeadsOf>
  route into_group(const std::vector<std::vector<run>>& home, index_t heads, HeadsOf&& heads_of) const {
    const std::vector<run> block = block_of(home, s_.ring);
    return route::between(
        s_.group, s_.group_size,
        [&](int u) {
          return packed_rows(home[static_cast<std::size_t>(team_.member_at(s_.ring, u))], {0, heads});
        },
        [&](int u) { return packed_rows(block, heads_of(u)); });
  }

  void plan_blocks() {
    std::vector<std::vector<run>> moved[2];
    const auto &q_home = positions_of(p_.q, s_.shape.joint_q, moved[0]),
               &kv_home = positions_of(p_.kv, s_.shape.joint_kv, moved[1]);
    for (int r = 0; r < s_.ring_size; ++r) {
      q_runs_.push_back(block_of(q_home, r));
      kv_runs_.push_back(block_of(kv_home, r));
    }
    if (s_.group_size == 1) return;
    s_.q_in = into_group(q_home, s_.shape.heads, [&](int u) { return s_.heads_of(u); });
    s_.kv_in = into_group(kv_home, s_.shape.kv_heads, [&](int u) { return s_.kv_heads_of(u); });
  }

  int hops_per_round() const { return options_.schedule == schedule::all_gather ? std::max(1, s_.ring_size - 1) : 1; }
  void plan_rounds() {
    for (int r = 0; r < s_.ring_size; ++r) {
      position_set& need = needs_.emplace_back(reach_of(p_.mask, q_runs_[static_cast<std::size_t>(r)], k_tokens_));
      need.add(reach_of(p_.mask, {joint_run(joint_rows(r), p_.q.tokens)}, k_tokens_));
    }
    ring_planner planner(kv_runs_, needs_, {0, s_.kv_heads.size()});
    if (options_.schedule == schedule::pass_along)
      s_.rounds = planner.pass_along(s_.ring);
    else if (options_.schedule == schedule::double_ring)
      s_.rounds = planner.double_ring(s_.ring, static_cast<int>(options_.window));
    else
      s_.rounds = planner.direct(s_.ring, hops_per_round());
    index_t slots = 0;
    for (ring_round& r : s_.rounds.rounds) r.slot = r.here ? 0 : slots++;
    choose_sides();
  }
  /// The sides asked for, or those of fewer bytes, which every rank counts alike.
  void choose_sides() {
    const bool both = options_.passes == forward_backward;
    const moving_sides& asked = options_.moves;
    if (s_.ring_size == 1 || !queries_may_travel(options_, s_.shape)) return;
    if (asked.forward == side::keys && (!both || asked.backward == side::keys)) return;
    std::vector<position_set> seers = seer_search(p_.mask, kv_runs_, k_tokens_).among({0, p_.q.tokens});
    s_.visits = ring_planner(q_runs_, seers, {0, s_.heads.size()}).direct(s_.ring, 1);
    for (ring_round& r : s_.visits.rounds) r.once = r.kv.of_one_column();
    index_t kv_heads = 0, parts = 0;
    for (int u = 0; u < s_.group_size; ++u) {
      kv_heads += s_.kv_heads_of(u).size();
      parts += s_.heads_of(u).empty() ? 0 : 1;
    }
    const index_t sight = parts * bytes_of_sight(s_.intervals);
    const auto choose = [&](side wanted, index_t key_bytes, index_t query_bytes) {
      if (wanted != side::cheaper) return wanted;
      const auto bytes = [](index_t rows, index_t of_one) {  // may pass 2^63
        return static_cast<double>(rows) * static_cast<double>(of_one);
      };
      const index_t batch = s_.shape.batch;
      const bool fewer = bytes(s_.visits.all_rows, batch * s_.shape.heads * query_bytes + sight) <
                         bytes(s_.rounds.all_rows, batch * kv_heads * key_bytes);
      return fewer ? side::queries : side::keys;
    };
    const travel_bytes keys = bytes_of_key(s_.shape, p_.element_bytes),
                       queries = bytes_of_query(s_.shape, p_.element_bytes);
    s_.moves.forward = choose(asked.forward, keys.forward, queries.forward);
    s_.moves.backward = both ? choose(asked.backward, keys.backward, queries.backward) : s_.moves.forward;
    if (s_.moves.forward == side::queries && s_.moves.backward == side::queries) s_.rounds = {};
    if (s_.moves.forward == side::keys && s_.moves.backward == side::keys) s_.visits = {};
  }

  void plan_sizes() {
    for (int m = 0; m < team_.size(); ++m) {
      const int r = team_.ring_of(m), u = team_.all_to_all_of(m);
      member_sizes n;
      n.q_home = count_of(p_.q.of(m));
      n.kv_home = count_of(p_.kv.of(m));
      n.q_rows = count_of(q_runs_[static_cast<std::size_t>(r)]);
      n.kv_rows = count_of(kv_runs_[static_cast<std::size_t>(r)]);
      n.heads = s_.heads_of(u).size();
      n.kv_heads = s_.kv_heads_of(u).size();
      const index_t slice = share(s_.shape.joint_kv, team_.size(), m).size();
      for (int other = 0; other < s_.group_size; ++other)
        if (other != u) n.kv_returns += n.kv_home * s_.kv_heads_of(other).size();
      for (int other = 0; other < team_.size(); ++other)
        if (other != m) n.joint_kv_returns += slice * s_.kv_heads_of(team_.all_to_all_of(other)).size();
      n.joint_q = joint_rows(r).size();
      n.round_rows = s_.rounds.most_rows;
      n.sent_rows = s_.rounds.most_sent;
      n.summed_rows = s_.rounds.most_summed;
      n.window_rows = s_.rounds.most_window_rows;
      n.visiting_rows = s_.visits.most_rows;
      if (const index_t cap = options_.capacity.tokens_per_rank; cap > 0) {
        const index_t group = cap * s_.group_size;
        n.q_home = n.kv_home = cap;
        n.q_rows = n.kv_rows = group;
        n.kv_returns = 0;
        for (int other = 0; other < s_.group_size; ++other)
          if (other != u) n.kv_returns += cap * s_.kv_heads_of(other).size();
        const bool along = options_.schedule == schedule::pass_along;
        n.round_rows = s_.ring_size > 1 ? group * hops_per_round() : 0;
        n.sent_rows = along ? 0 : n.round_rows;
        n.summed_rows = along ? n.round_rows : 0;
        n.window_rows = s_.rounds.windows.empty() ? 0 : group;
      }
      s_.largest = member_sizes::largest(s_.largest, n);
      if (m == p_.me) s_.own = n;
    }
  }

  void plan_joint() {
    const int members = team_.size(), me = p_.me;
    if (s_.shape.joint_q > 0)
      s_.joint_out = route::between(
          me, members,
          [&](int m) {
            holding h{{}, s_.heads_of(team_.all_to_all_of(m))};
            const interval rows = joint_rows(team_.ring_of(m));
            h.append({rows.lo, rows.size(), 1}, rows.lo);
            return h;
          },
          [&](int) {
            return all_rows(s_.shape.joint_q, {0, s_.shape.heads});
          });
    if (s_.shape.joint_kv > 0) {
      const auto slice = [&](int m) {
        holding h{{}, {0, s_.shape.kv_heads}};
        const interval rows = share(s_.shape.joint_kv, members, m);
        h.append({rows.lo, rows.size(), 1}, rows.lo);
        return h;
      };
      s_.joint_sums = route::between(me, members, slice, [&](int m) {
        return all_rows(s_.shape.joint_kv, s_.kv_heads_of(team_.all_to_all_of(m)));
      });
      s_.joint_gather = route::between(me, members, slice, [&](int) {
        return all_rows(s_.shape.joint_kv, {0, s_.shape.kv_heads});
      });
    }
  }

  void plan_tables() {
    const std::vector<run>&dealt = q_runs_[static_cast<std::size_t>(s_.ring)],
          &own = kv_runs_[static_cast<std::size_t>(s_.ring)];
    const std::vector<run> joint{joint_run(s_.joint_q, p_.q.tokens)},
        joint_keys{joint_run({0, s_.shape.joint_kv}, p_.kv.tokens)};
    const kernel_needs& kernel = p_.kernel;
    const auto add = [&](query_part& part, std::span<const run> keys, side moving) {
      key_rows& segment = part.keys.emplace_back(lower_keys(keys, part.rows, kernel.key_tile));
      if (kernel.transpose && s_.moves.backward == moving) kernel.transpose(segment);
      if (kernel.rectangles) segment.rectangles = kernel.rectangles(part.rows.table(), keys, kernel.most_rectangles);
    };
    for (const std::vector<run>* queries : {&dealt, &joint}) {
      query_part& part = s_.parts.emplace_back(part_of(*queries));
      add(part, own, s_.moves.backward);
      add(part, joint_keys, s_.moves.backward);
      for (const ring_round& round : s_.rounds.rounds) add(part, round.keys, side::keys);
    }
    for (const ring_round& visit : s_.visits.rounds) {
      query_part& part = s_.parts.emplace_back(part_of(visit.keys));
      add(part, own, side::queries);
      part.rows = {.tiles = std::move(part.rows.tiles), .lo0 = {}, .hi0 = {}, .lo1 = {}, .hi1 = {}, .position = {}};
    }
  }
  query_part part_of(std::span<const run> queries) const {
    if (!s_.intervals) return {lower_positions(queries, p_.kernel.query_tile), {}};
    const auto intervals_of = [&](index_t q) {
      interval_pair keys;
      p_.mask.key_intervals(q, keys);
      return keys;
    };
    return {lower_intervals(queries, intervals_of, k_tokens_, p_.kernel.query_tile), {}};
  }
  /// Over all queries of all members, so that every rank chooses the same form.
  bool all_fit() const {
    interval_pair keys;
    for (index_t q = 0; !p_.mask.has_intervals && q < p_.q_tokens(); ++q)
      if (!p_.mask.key_intervals(q, keys)) return false;
    return true;
  }

  const attention_problem& p_;
  const mesh_shape& team_;
  const attention_options& options_;
  index_t k_tokens_;
  std::vector<std::vector<run>> q_runs_, kv_runs_;
  std::vector<position_set> needs_;
  attention_setup s_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
