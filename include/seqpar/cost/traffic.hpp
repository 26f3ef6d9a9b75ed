// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bytes that a pass moves: from needs alone, or from what a run wrote down.
#pragma once

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <seqpar/cost/needs.hpp>
#include <seqpar/cost/visits.hpp>
#include <seqpar/transport/recorder.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Bytes on the links, by member and by class of link. What a member keeps is no traffic.
class traffic {
 public:
  /// Members m and n share a node when m / ranks_per_node = n / ranks_per_node; 0: all share one.
  explicit traffic(int members, int ranks_per_node = 0)
      : node_(ranks_per_node > 0 ? ranks_per_node : members),
        received_(static_cast<std::size_t>(members)),
        sent_(static_cast<std::size_t>(members)) {}

  void add(int from, int to, index_t bytes) {
    if (from == to) return;
    sent_[static_cast<std::size_t>(from)] += bytes;
    received_[static_cast<std::size_t>(to)] += bytes;
    (from / node_ == to / node_ ? inside_ : across_) += bytes;
  }

  const std::vector<index_t>& received() const& { return received_; }
  const std::vector<index_t>& sent() const& { return sent_; }
  std::vector<index_t> received() && { return std::move(received_); }
  std::vector<index_t> sent() && { return std::move(sent_); }
  spread over_members() const { return detail::spread_of(received_); }
  index_t inside() const { return inside_; }  ///< between members of one node
  index_t across() const { return across_; }  ///< between nodes
  index_t total() const { return inside_ + across_; }
  friend bool operator==(const traffic&, const traffic&) = default;

 private:
  int node_;
  std::vector<index_t> received_, sent_;
  index_t inside_ = 0, across_ = 0;
};

/// Of the logs of all ranks (recorder, or a run on paper), each message once.
inline traffic traffic_of(std::span<const recorded_message> log, int members, int ranks_per_node = 0) {
  traffic t(members, ranks_per_node);
  for (const recorded_message& m : log)
    if (m.way == direction::send) t.add(m.from, m.to, m.bytes);
  return t;
}

/// Bytes of one element of q, k, v and dout; of out; of dq, dk and dv. As in plan_attention<T, Out = T, Grad = T>.
struct element_sizes {
  extent in;
  index_t out = in, grad = in;
};

namespace detail {

/// The bytes of both passes where keys move (side::keys), as sums over pairs of members. With h(u), g(u) the query and
/// kv heads of all-to-all index u, D and E the dims of q·k and of v, per item of the batch:
///
///   forward    heads in    |q(n)|·h(u)·D + |kv(n)|·g(u)·(D + E)          n → (r, u), n of the same ring index
///              keys        rows(w, o)·g(u)·(D + E)                       (o, u) → (w, u)
///              heads out   |q(n)|·h(u)·(E + one number)                  (r, u) → n
///   backward   heads in    the same, with dout and two numbers           (q, k, v and keys not with reuse::saved)
///              dK/dV       rows(w, o)·g(u)·(D + E) in fp32               (w, u) → (o, u)
///              heads out   |q(n)|·h(u)·D, |kv(n)|·g(u)·(D + E) in fp32   (r, u) → n
///
/// Where queries travel, with v(w, o) of visits, per query head and back in fp32:
///
///   forward    v(w, o)·h(u)·D             (w, u) → (o, u)     v(w, o)·h(u)·(E + 2)   back
///   backward   v(w, o)·h(u)·(D + E) and two numbers           v(w, o)·h(u)·D         back
///   both       v(w, o)·what a query sees (visits::sight_bytes), for all heads and items together
class traffic_law {
 public:
  traffic_law(const needs& n, const attention_options& o, const element_sizes& e, traffic& to, const visits* v)
      : n_(n), options_(o), size_(e), to_(to), d_(n.shape().head_dim), e_(n.shape().v_dim()), visits_(v) {
    n.check_has_shape("traffic");
    if (o.schedule == schedule::double_ring)
      raise(invalid("traffic", "double_ring has no law here; run the plan on paper to count it"));
    const bool may_travel = n.ring_size() > 1 && queries_may_travel(o, n.shape()) &&
                            (o.moves.forward != side::keys || o.moves.backward != side::keys);
    if (may_travel && !v)
      raise(invalid("traffic",
                    "queries may travel here; give visits(needs, mask, pieces), too, or options.moves = keys"));
    if (may_travel) moves_ = sides_of(n, *v, o, e.in);
    if (n.shape().joint_q > 0 || n.shape().joint_kv > 0)
      raise(invalid("traffic", "joint tokens have exchanges of their own; run the plan on paper to count them"));
  }
  void forward() {
    between_homes(size_.in * d_, size_.in * (d_ + e_), true);
    if (moves_.forward == side::queries)
      queries(size_.in * d_, fp32 * (e_ + 2));
    else
      keys(size_.in);
    between_homes(size_.out * e_ + fp32, 0, false);
  }
  void backward() {
    const index_t again = options_.reuse == reuse::resend ? index_t{size_.in} : 0;
    between_homes(again * d_ + size_.in * e_ + 2 * fp32, again * (d_ + e_), true);
    if (moves_.backward == side::queries) {
      queries(size_.in * (d_ + e_) + 2 * fp32, fp32 * d_);
    } else {
      if (again > 0) keys(again);
      sums();
    }
    between_homes(size_.grad * d_, fp32 * (d_ + e_), false);
  }

 private:
  static constexpr index_t fp32 = sizeof(float);

  void add(int from, int to, index_t bytes) { to_.add(from, to, bytes * n_.shape().batch); }
  /// Rows of every member against the heads of the others in its group.
  void between_homes(index_t q_bytes, index_t kv_bytes, bool in) {
    const mesh_shape& team = n_.team();
    for (int r = 0; r < team.ring; ++r)
      for (int u = 0; u < team.all_to_all; ++u)
        for (int home = 0; home < team.all_to_all; ++home) {
          const int a = team.member_at(r, home), b = team.member_at(r, u);
          const index_t bytes =
              n_.q_rows(a) * n_.heads_of(u).size() * q_bytes + n_.kv_rows(a) * n_.kv_heads_of(u).size() * kv_bytes;
          in ? add(a, b, bytes) : add(b, a, bytes);
        }
  }
  /// Rows between two ring members, for every all-to-all index.
  template <class HeadsOf>
  void on_ring(int from, int to, index_t bytes, HeadsOf&& heads_of) {
    for (int u = 0; bytes > 0 && u < n_.team().all_to_all; ++u)
      add(n_.team().member_at(from, u), n_.team().member_at(to, u), bytes * heads_of(u).size());
  }
  void on_ring(int from, int to, index_t rows, index_t element) {
    on_ring(from, to, rows * (d_ + e_) * element, [&](int u) { return n_.kv_heads_of(u); });
  }
  /// There, and back.
  void queries(index_t there, index_t back) {
    const auto heads_of = [&](int u) { return n_.heads_of(u); };
    for (int w = 0; w < n_.ring_size(); ++w)
      for (int o = 0; o < n_.ring_size(); ++o) {
        on_ring(w, o, visits_->rows(w, o) * there, heads_of);
        for (int u = 0; u < n_.team().all_to_all; ++u)  // what they see, once for all heads and items
          if (!heads_of(u).empty())
            to_.add(n_.team().member_at(w, u), n_.team().member_at(o, u), visits_->rows(w, o) * visits_->sight_bytes());
        on_ring(o, w, visits_->rows(w, o) * back, heads_of);
      }
  }
  void keys(index_t element) {
    for (int o = 0; o < n_.ring_size(); ++o) {
      std::vector<interval> behind;  // what those on the way round from w on still want
      for (int s = n_.ring_size() - 1; s > 0; --s) {
        const int w = wrap(o + s);
        if (direct()) {
          on_ring(o, w, n_.rows(w, o), element);
        } else {
          behind = n_.with_wanted(behind, w);
          on_ring(wrap(w - 1), w, n_.rows_in(behind, o), element);
        }
      }
    }
  }
  void sums() {
    for (int o = 0; o < n_.ring_size(); ++o) {
      std::vector<interval> before;  // what those on the way round up to w have attended to
      for (int s = 1; s < n_.ring_size(); ++s) {
        const int w = wrap(o + s);
        if (direct()) {
          on_ring(w, o, n_.rows(w, o), fp32);
        } else {
          before = n_.with_wanted(before, w);
          on_ring(w, wrap(w + 1), n_.rows_in(before, o), fp32);
        }
      }
    }
  }
  bool direct() const { return options_.schedule != schedule::pass_along; }
  int wrap(int r) const { return (r + n_.ring_size()) % n_.ring_size(); }

  const needs& n_;
  const attention_options& options_;
  element_sizes size_;
  traffic& to_;
  index_t d_, e_;
  const visits* visits_;
  moving_sides moves_{side::keys, side::keys};
};

}  // namespace detail

/// What plan.forward moves, without a plan. Fails (error): needs made without a shape; double_ring; joint tokens; no
/// visits where queries may travel: with direct and reuse::resend, unless options.moves says keys.
inline traffic forward_traffic(const needs& n, const attention_options& options, const element_sizes& sizes,
                               int ranks_per_node = 0, const visits* v = nullptr) {
  traffic t(n.team().size(), ranks_per_node);
  detail::traffic_law(n, options, sizes, t, v).forward();
  return t;
}
/// The same of plan.backward.
inline traffic backward_traffic(const needs& n, const attention_options& options, const element_sizes& sizes,
                                int ranks_per_node = 0, const visits* v = nullptr) {
  traffic t(n.team().size(), ranks_per_node);
  detail::traffic_law(n, options, sizes, t, v).backward();
  return t;
}

/// Key rows × kv heads that cross nodes in `direct`, and how many if each crossed once per node that wants it, as
/// double_ring has it with a node's members for a window.
struct crossings {
  index_t each = 0, once = 0;
};
inline crossings rows_across(const needs& n, int ranks_per_node) {
  n.check_has_shape("rows_across");
  if (ranks_per_node < 1)
    raise(detail::invalid("rows_across", {"ranks_per_node must be at least 1, not ", ranks_per_node}));
  crossings c;
  const mesh_shape& team = n.team();
  for (int u = 0; u < team.all_to_all; ++u)
    for (int o = 0; o < n.ring_size(); ++o) {
      const auto node_of = [&](int r) { return team.member_at(r, u) / ranks_per_node; };
      for (int first = 0, end; first < n.ring_size(); first = end) {  // members of one node follow one another
        std::vector<interval> wanted;
        for (end = first; end < n.ring_size() && node_of(end) == node_of(first); ++end)
          if (node_of(end) != node_of(o)) {
            c.each += n.rows(end, o) * n.kv_heads_of(u).size();
            wanted = n.with_wanted(wanted, end);
          }
        c.once += n.rows_in(wanted, o) * n.kv_heads_of(u).size();
      }
    }
  return c;
}

}  // namespace v0_1
}  // namespace seqpar
