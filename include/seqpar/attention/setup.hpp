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
#include <seqpar/mask/intervals.hpp>

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

/// A mask that may answer try_key_intervals; a bare functor never does.
template <class M>
concept may_have_intervals = listed_mask<M> || requires(const M& mask, index_t q) {
  mask.try_key_intervals(q);
};

inline std::vector<run> runs_of(const holding& h) {
  std::vector<run> runs;
  for (const row_piece& p : h.pieces) runs.push_back(p.rows);
  return runs;
}

/// Works the setup out. `mask` is bound to the whole lengths and has passed its own checks.
template <class Mesh, class QLayout, class KvLayout, class Mask>
class setup_builder {
 public:
  setup_builder(const Mesh& team, const QLayout& q, const KvLayout& kv, const Mask& mask, const attention_shape& shape,
                const attention_options& options, index_t element_bytes, index_t query_tile, index_t key_tile,
                bool by_keys, index_t most_rectangles)
      : team_(team),
        q_(q),
        kv_(kv),
        mask_(mask),
        options_(options),
        element_bytes_(element_bytes),
        query_tile_(query_tile),
        key_tile_(key_tile),
        by_keys_(by_keys),
        most_rectangles_(most_rectangles) {
    s_.shape = shape;
    s_.ring_size = team.ring_size();
    s_.group_size = team.all_to_all_size();
    s_.ring = team.ring_of(team.index());
    s_.group = team.all_to_all_of(team.index());
    k_tokens_ = kv.token_count() + shape.joint_kv;
  }

  attention_setup build() {
    s_.heads = s_.heads_of(s_.group);
    s_.kv_heads = s_.kv_heads_of(s_.group);
    s_.joint_q = joint_rows(s_.ring);
    s_.intervals = may_have_intervals<Mask> && all_fit();
    s_.joint_kv_slice = share(s_.shape.joint_kv, team_.size(), team_.index());
    plan_groups();
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
  holding q_home(int member, interval columns) const {
    return holding_of(q_, member, columns, 0, front() ? s_.shape.joint_q : 0);
  }
  holding kv_home(int member, interval columns) const {
    return holding_of(kv_, member, columns, 0, front() ? s_.shape.joint_kv : 0);
  }
  /// The rows of all members of one ring index, member after member: the order in which they arrive.
  template <class Home>
  holding gathered(int ring, interval columns, Home&& home) const {
    holding all{{}, columns};
    index_t place = 0;
    for (int u = 0; u < s_.group_size; ++u)
      for (const row_piece& p : home(team_.member_at(ring, u), columns).pieces) {
        all.append(p.rows, place);
        place += p.rows.count;
      }
    return all;
  }

  void plan_groups() {
    if (s_.group_size == 1) return;
    const auto member = [&](int u) { return team_.member_at(s_.ring, u); };
    s_.q_in = route::between(
        s_.group, s_.group_size,
        [&](int u) {
          return q_home(member(u), {0, s_.shape.heads});
        },
        [&](int u) { return gathered(s_.ring, s_.heads_of(u), [&](int m, interval c) { return q_home(m, c); }); });
    s_.kv_in = route::between(
        s_.group, s_.group_size,
        [&](int u) {
          return kv_home(member(u), {0, s_.shape.kv_heads});
        },
        [&](int u) { return gathered(s_.ring, s_.kv_heads_of(u), [&](int m, interval c) { return kv_home(m, c); }); });
  }

  int hops_per_round() const { return options_.schedule == schedule::all_gather ? std::max(1, s_.ring_size - 1) : 1; }
  void plan_rounds() {
    for (int r = 0; r < s_.ring_size; ++r) {
      q_runs_.push_back(runs_of(gathered(r, {0, 1}, [&](int m, interval c) { return q_home(m, c); })));
      kv_runs_.push_back(runs_of(gathered(r, {0, 1}, [&](int m, interval c) { return kv_home(m, c); })));
      position_set need = reach_of(mask_, q_runs_.back(), k_tokens_);
      const interval joint = joint_rows(r);
      need.add(reach_of(mask_, {joint_run(joint, q_.token_count())}, k_tokens_));
      needs_.push_back(std::move(need));
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
    std::vector<position_set> seers = seer_search(mask_, kv_runs_, k_tokens_).among({0, q_.token_count()});
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
    const travel_bytes keys = bytes_of_key(s_.shape, element_bytes_),
                       queries = bytes_of_query(s_.shape, element_bytes_);
    s_.moves.forward = choose(asked.forward, keys.forward, queries.forward);
    s_.moves.backward = both ? choose(asked.backward, keys.backward, queries.backward) : s_.moves.forward;
    if (s_.moves.forward == side::queries && s_.moves.backward == side::queries) s_.rounds = {};
    if (s_.moves.forward == side::keys && s_.moves.backward == side::keys) s_.visits = {};
  }

  void plan_sizes() {
    for (int m = 0; m < team_.size(); ++m) {
      const int r = team_.ring_of(m), u = team_.all_to_all_of(m);
      member_sizes n;
      n.q_home = q_.count_of(m);
      n.kv_home = kv_.count_of(m);
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
      if (m == team_.index()) s_.own = n;
    }
  }

  void plan_joint() {
    const int members = team_.size(), me = team_.index();
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
    const std::vector<run> joint{joint_run(s_.joint_q, q_.token_count())},
        joint_keys{joint_run({0, s_.shape.joint_kv}, kv_.token_count())};
    const auto add = [&](query_part& part, std::span<const run> keys, side moving) {
      part.keys.push_back(lower_keys(keys, part.rows, key_tile_));
      if (by_keys_ && s_.moves.backward == moving) transpose(part.keys.back());
      if (most_rectangles_ > 0) part.keys.back().rectangles = rectangles(part.rows.table(), keys, most_rectangles_);
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
    if (!s_.intervals) return {lower_positions(queries, query_tile_), {}};
    return {lower_intervals(
                queries, [&](index_t q) { return *try_key_intervals(mask_, q); }, k_tokens_, query_tile_),
            {}};
  }
  /// Over all queries of all members, so that every rank chooses the same form.
  bool all_fit() const {
    if constexpr (!interval_mask<Mask>)
      for (index_t q = 0; q < q_.token_count() + s_.shape.joint_q; ++q)
        if (!try_key_intervals(mask_, q)) return false;
    return true;
  }

  const Mesh& team_;
  const QLayout& q_;
  const KvLayout& kv_;
  const Mask& mask_;
  const attention_options& options_;
  index_t element_bytes_, query_tile_, key_tile_, k_tokens_ = 0;
  bool by_keys_;
  index_t most_rectangles_;
  std::vector<std::vector<run>> q_runs_, kv_runs_;
  std::vector<position_set> needs_;
  attention_setup s_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
