// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every array that a run works in, walked in one order to count its bytes and to bind it.
#pragma once

#include <seqpar/attention/setup.hpp>
#include <seqpar/kernel/concept.hpp>
#include <seqpar/memory.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Where each kind of memory is being walked.
struct carvers {
  carver scratch, exchange, saved;
};

/// Keys and values that lie together: [batch][rows][heads][dim] each.
template <class T>
struct kv_arrays {
  T *k = nullptr, *v = nullptr;
  static kv_arrays take(carver& c, index_t rows_and_heads, const attention_shape& n) {
    kv_arrays a;
    a.k = c.take<T>(n.batch * rows_and_heads * n.head_dim);
    a.v = c.take<T>(n.batch * rows_and_heads * n.v_dim());
    return a;
  }
  kv_arrays from(index_t rows_and_heads, const attention_shape& n) const {
    const index_t first = rows_and_heads * n.batch;
    return {k + first * n.head_dim, v + first * n.v_dim()};
  }
  rows_view<T> k_view(const attention_shape& n, index_t rows, index_t heads) const {
    return dense_view(k, {n.batch, rows, heads, n.head_dim});
  }
  rows_view<T> v_view(const attention_shape& n, index_t rows, index_t heads) const {
    return dense_view(v, {n.batch, rows, heads, n.v_dim()});
  }
};

/// What the sequence stage works on, in both passes: the gathered q, k, v and the keys of each round and window. With
/// reuse::saved they live in memory.saved and each keeps its own; else two slots take turns.
template <class T>
struct exchanged_arrays {
  T* q = nullptr;
  kv_arrays<T> kv, slots, windows;
  index_t slot_count = 0, slot_rows = 0, window_count = 0, window_rows = 0;

  static exchanged_arrays take(carvers& c, const attention_setup& s, const attention_options& o, side moving) {
    const member_sizes& n = s.largest;
    carver& home = o.reuse == reuse::saved ? c.saved : c.exchange;
    exchanged_arrays a;
    if (s.group_size > 1) {
      a.q = home.template take<T>(s.shape.batch * n.q_rows * n.heads * s.shape.head_dim);
      a.kv = kv_arrays<T>::take(home, n.kv_rows * n.kv_heads, s.shape);
    }
    const auto slots_of = [&](std::size_t users) {
      const auto n_users = static_cast<index_t>(users);
      return o.reuse == reuse::saved ? n_users : std::min<index_t>(n_users, 2);
    };
    a.slot_count = slots_of(s.rounds.slots());
    a.slot_rows = moving == side::keys ? n.round_rows * n.kv_heads : 0;
    a.slots = kv_arrays<T>::take(home, a.slot_count * a.slot_rows, s.shape);
    a.window_count = slots_of(s.rounds.windows.size());
    a.window_rows = n.window_rows * n.kv_heads;
    a.windows = kv_arrays<T>::take(home, a.window_count * a.window_rows, s.shape);
    return a;
  }
  /// Where the keys of round `i` (from 0) lie.
  kv_arrays<T> round(const attention_setup& s, std::size_t i) const {
    const ring_round& r = s.rounds.rounds[i];
    if (r.here) return window(s, r.window);
    return slots.from(r.slot % slot_count * slot_rows, s.shape);
  }
  /// Where the keys of step `o` (from 1) lie.
  kv_arrays<T> window(const attention_setup& s, int o) const {
    return windows.from((index_t{o} - 1) % window_count * window_rows, s.shape);
  }
};

inline state_view take_state(carver& c, index_t rows_and_heads, const attention_shape& n) {
  const index_t rows = n.batch * rows_and_heads;
  return {c.take<float>(rows * n.v_dim()), c.take<float>(rows), c.take<float>(rows)};
}

/// Queries that visit in one round, and what goes back of them: forward their state, backward dq.
template <class T>
struct visitors {
  T *q = nullptr, *dout = nullptr;
  float *lse = nullptr, *delta = nullptr, *dq = nullptr;
  state_view state;
  std::array<std::int32_t*, 4> sight{};  ///< lo0, hi0, lo1, hi1; or position alone

  /// Their table, whose tiles are known here.
  query_table table(const query_table& tiles, bool intervals, index_t rows) const {
    const auto list = [&](std::size_t i) {
      return std::span<const std::int32_t>(sight[i], static_cast<std::size_t>(rows));
    };
    if (!intervals) return {tiles.tiles, {}, {}, {}, {}, list(0)};
    return {tiles.tiles, list(0), list(1), list(2), list(3), {}};
  }
  static visitors forward(carver& c, const attention_setup& s) {
    visitors a;
    a.q = c.take<T>(s.shape.batch * rows_and_heads(s) * s.shape.head_dim);
    a.state = take_state(c, rows_and_heads(s), s.shape);
    a.take_sight(c, s);
    return a;
  }
  static visitors backward(carver& c, const attention_setup& s) {
    const index_t rows = s.shape.batch * rows_and_heads(s);
    visitors a;
    a.q = c.take<T>(rows * s.shape.head_dim);
    a.dout = c.take<T>(rows * s.shape.v_dim());
    a.lse = c.take<float>(rows);
    a.delta = c.take<float>(rows);
    a.dq = c.take<float>(rows * s.shape.head_dim);
    a.take_sight(c, s);
    return a;
  }
  void take_sight(carver& c, const attention_setup& s) {
    for (std::size_t i = 0; i < (s.intervals ? 4u : 1u); ++i) sight[i] = c.take<std::int32_t>(s.largest.visiting_rows);
  }
  static index_t rows_and_heads(const attention_setup& s) { return s.largest.visiting_rows * s.largest.heads; }
  /// Rounds take turns in two of them.
  static std::size_t count(const attention_setup& s) { return std::min<std::size_t>(s.visits.rounds.size(), 2); }
};

template <class T, class Out>
struct forward_arrays {
  exchanged_arrays<T> in;
  Out* out = nullptr;  ///< gathered results, on their way home
  float* lse = nullptr;
  state_view state[2];  ///< of the dealt and of the joint queries
  visitors<T> visits[2];
  state_view returned;  ///< states of my queries that come back from a round, packed as post_add does
  void* workspace = nullptr;

  static forward_arrays take(carvers& c, const attention_setup& s, const attention_options& o,
                             index_t workspace_bytes) {
    const attention_shape& n = s.shape;
    forward_arrays a;
    a.in = exchanged_arrays<T>::take(c, s, o, s.moves.forward);
    if (s.group_size > 1) {
      a.out = c.exchange.template take<Out>(n.batch * s.largest.q_rows * s.largest.heads * n.v_dim());
      a.lse = c.exchange.template take<float>(n.batch * s.largest.q_rows * s.largest.heads);
    }
    if (s.ring_size > 1)
      for (int p = 0; p < 2; ++p)
        a.state[p] = take_state(c.scratch, (p == 0 ? s.own.q_rows : s.own.joint_q) * s.own.heads, n);
    if (s.moves.forward == side::queries) {
      for (std::size_t i = 0; i < visitors<T>::count(s); ++i) a.visits[i] = visitors<T>::forward(c.exchange, s);
      a.returned = take_state(c.exchange, visitors<T>::rows_and_heads(s), n);
    }
    a.workspace = c.scratch.template take<std::byte>(workspace_bytes);
    return a;
  }
};

template <class T, class Grad>
struct backward_arrays {
  exchanged_arrays<T> in;
  float* delta_home = nullptr;  ///< of this rank's rows, all heads
  T* dout = nullptr;            ///< gathered, with lse and delta
  float *lse = nullptr, *delta = nullptr, *delta_joint = nullptr;
  float* dq[2] = {};  ///< sums over the rounds, dealt and joint
  Grad *dq_wire = nullptr, *dq_home = nullptr, *dq_joint = nullptr;
  kv_arrays<float> own, own_returns, home;            ///< gradients of my group's keys; what comes back; of my rows
  kv_arrays<float> round[2], staging, summed[2];      ///< of a round's keys; see ring_round
  kv_arrays<float> window[2], window_staging;         ///< of a window's keys; what comes back of mine
  kv_arrays<float> joint, joint_returns, joint_sums;  ///< of the joint keys: my share; others' shares; complete
  visitors<T> visits[2];
  float* returned = nullptr;  ///< dq of my queries that comes back from a round, packed as post_add does
  void* workspace = nullptr;

  static backward_arrays take(carvers& c, const attention_setup& s, const attention_options& o,
                              index_t workspace_bytes) {
    const attention_shape& n = s.shape;
    const member_sizes &most = s.largest, &own = s.own;
    backward_arrays a;
    a.in = exchanged_arrays<T>::take(c, s, o, s.moves.backward);
    const bool groups = s.group_size > 1;
    a.delta_home =
        (groups ? c.exchange : c.scratch).template take<float>(n.batch * (groups ? most.q_home : own.q_home) * n.heads);
    a.delta_joint = c.scratch.template take<float>(n.batch * own.joint_q * own.heads);
    a.dq[0] = c.scratch.template take<float>(n.batch * own.q_rows * own.heads * n.head_dim);
    a.dq[1] = c.scratch.template take<float>(n.batch * own.joint_q * own.heads * n.head_dim);
    if (groups) {
      a.dout = c.exchange.template take<T>(n.batch * most.q_rows * most.heads * n.v_dim());
      a.lse = c.exchange.template take<float>(n.batch * most.q_rows * most.heads);
      a.delta = c.exchange.template take<float>(n.batch * most.q_rows * most.heads);
      a.dq_wire = c.exchange.template take<Grad>(n.batch * most.q_rows * most.heads * n.head_dim);
      if (o.gradients == write::add)
        a.dq_home = c.exchange.template take<Grad>(n.batch * most.q_home * n.heads * n.head_dim);
      a.own = kv_arrays<float>::take(c.exchange, most.kv_rows * most.kv_heads, n);
      a.own_returns = kv_arrays<float>::take(c.exchange, most.kv_returns, n);
      a.home = kv_arrays<float>::take(c.scratch, own.kv_home * n.kv_heads, n);
    } else {
      a.own = kv_arrays<float>::take(c.scratch, own.kv_rows * own.kv_heads, n);
    }
    if (s.moves.backward == side::queries) {
      for (std::size_t i = 0; i < visitors<T>::count(s); ++i) a.visits[i] = visitors<T>::backward(c.exchange, s);
      a.returned = c.exchange.template take<float>(n.batch * visitors<T>::rows_and_heads(s) * n.head_dim);
    } else if (s.ring_size > 1) {
      const bool direct = o.schedule != schedule::pass_along;
      const int slots = direct && s.rounds.slots() > 1 ? 2 : 1;
      for (int i = 0; i < slots; ++i)
        a.round[i] = kv_arrays<float>::take(direct ? c.exchange : c.scratch, most.round_rows * most.kv_heads, n);
      a.staging = kv_arrays<float>::take(c.exchange, (direct ? most.sent_rows : most.summed_rows) * most.kv_heads, n);
      for (std::size_t i = 0; i < std::min<std::size_t>(s.rounds.windows.size(), 2); ++i)
        a.window[i] = kv_arrays<float>::take(c.exchange, most.window_rows * most.kv_heads, n);
      a.window_staging =
          kv_arrays<float>::take(c.exchange, s.rounds.windows.empty() ? 0 : most.window_rows * most.kv_heads, n);
      for (int i = 0; !direct && i < std::min(s.ring_size - 1, 2); ++i)
        a.summed[i] = kv_arrays<float>::take(c.exchange, most.summed_rows * most.kv_heads, n);
    }
    if (n.joint_q > 0) a.dq_joint = c.exchange.template take<Grad>(n.batch * n.joint_q * n.heads * n.head_dim);
    if (n.joint_kv > 0) {
      a.joint = kv_arrays<float>::take(c.exchange, n.joint_kv * most.kv_heads, n);
      if (o.joint_gradient == joint_gradient::complete) {
        a.joint_returns = kv_arrays<float>::take(c.exchange, most.joint_kv_returns, n);
        a.joint_sums = kv_arrays<float>::take(c.exchange, n.joint_kv * n.kv_heads, n);
      }
    }
    a.workspace = c.scratch.template take<std::byte>(workspace_bytes);
    return a;
  }
};

/// The tables of a setup in table memory, as the kernels read them.
struct bound_tables {
  std::vector<query_table> queries;  ///< by query part
  std::vector<std::vector<key_table>> keys;

  /// Counts when `c` has no memory, else writes with upload(to, from, bytes); `bound` is filled in either case.
  template <class = when_used>
  static void walk(carver& c, const attention_setup& s, bound_tables& bound,
                   function_ref<void(void*, const void*, index_t)> upload) {
    const auto copy = [&]<class E>(const std::vector<E>& list) {
      E* p = c.take<E>(static_cast<index_t>(list.size()));
      if (p) upload(p, list.data(), static_cast<index_t>(list.size() * sizeof(E)));
      return std::span<const E>(p, p ? list.size() : 0);
    };
    bound.queries.resize(s.parts.size());
    bound.keys.resize(s.parts.size());
    for (std::size_t p = 0; p < s.parts.size(); ++p) {
      const query_part& part = s.parts[p];
      bound.queries[p] = {copy(part.rows.tiles), copy(part.rows.lo0), copy(part.rows.hi0),
                          copy(part.rows.lo1),   copy(part.rows.hi1), copy(part.rows.position)};
      bound.keys[p].resize(part.keys.size());
      for (std::size_t i = 0; i < part.keys.size(); ++i)
        bound.keys[p][i] = {
            copy(part.keys[i].tiles),       copy(part.keys[i].positions),         copy(part.keys[i].first_range),
            copy(part.keys[i].ranges),      copy(part.keys[i].first_query_range), copy(part.keys[i].query_ranges),
            part.keys[i].table().rectangles};
    }
  }
  /// Table bytes of any setup within a capacity.
  template <class = when_used>
  static index_t most_bytes(const attention_setup& s, const attention_options& o, index_t query_tile, index_t key_tile,
                            bool by_keys) {
    carver c;
    const index_t n = s.largest.q_rows;
    const auto tiles_of = [](index_t rows, index_t tile) { return rows / std::max<index_t>(1, tile / 8) + 4; };
    const auto queries = [&](index_t rows) {
      c.take<query_tile_type>(tiles_of(rows, query_tile));
      for (int i = 0; i < 5; ++i) c.take<std::int32_t>(rows);
    };
    const auto keys = [&](index_t rows, index_t query_rows) {
      const index_t q_tiles = tiles_of(query_rows, query_tile), k_tiles = tiles_of(rows, key_tile);
      c.take<seqpar::key_tile>(k_tiles);
      c.take<std::int32_t>(rows);
      c.take<std::int32_t>(q_tiles + 1);
      c.take<tile_range>(q_tiles * std::min(k_tiles, o.capacity.ranges_per_tile));
      if (!by_keys) return;
      c.take<std::int32_t>(k_tiles + 1);
      c.take<tile_range>(k_tiles * std::min(q_tiles, o.capacity.ranges_per_tile));
    };
    for (const index_t rows : {n, s.largest.joint_q}) {
      queries(rows);
      keys(s.largest.kv_rows, rows);
      keys(s.shape.joint_kv, rows);
      for (std::size_t i = 0; i < s.rounds.rounds.size(); ++i) keys(s.largest.round_rows, rows);
    }
    return c.bytes();
  }
  using query_tile_type = seqpar::query_tile;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
