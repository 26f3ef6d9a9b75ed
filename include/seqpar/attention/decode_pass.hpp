// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One run of a decode plan: a partial of this rank's rows, merged along the ring, handed round to the other heads.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <seqpar/attention/decode_arguments.hpp>
#include <seqpar/attention/merge_tree.hpp>
#include <seqpar/attention/pass.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

inline constexpr index_t stamp_floats = sizeof(std::uint64_t) / sizeof(float);

/// Partials: out [batch][queries][heads][value_dim], behind it lse [batch][heads][queries] and the stamp.
struct decode_arrays {
  float *mine = nullptr, *other = nullptr, *slots = nullptr;
  std::byte* workspace = nullptr;

  template <class Plan>
  static decode_arrays take(carver& scratch, carver& exchange, const Plan& plan) {
    const index_t most = plan.partial_floats(plan.shape_.queries, plan.heads_of(0));
    decode_arrays m{};
    m.mine = exchange.take<float>(most);
    m.other = exchange.take<float>(plan.team_.ring_size() > 1 ? most : 0);
    m.slots = exchange.take<float>((plan.team_.all_to_all_size() - 1) * most);
    m.workspace = scratch.take<std::byte>(plan.workspace_bytes());
    return m;
  }
};

/// State of one run. Nothing here allocates.
template <class Plan, class Exec>
struct decode_pass {
  using T = typename Plan::value_type;
  using Out = typename Plan::out_type;

  decode_pass(const Plan& p, const memory& given, Exec e) : plan(p), exec(e) {
    carver scratch(given.scratch), exchange(given.exchange);
    m = decode_arrays::take(scratch, exchange, p);
  }

  status run(const decode_arguments<T, Out>& a) {
    attend(a);
    if (!plan.own_.empty())
      if (status s = merge_along_ring(); !s.ok()) return s;
    if (status s = hand_round(); !s.ok()) return s;
    for (int u = 0; u < plan.team_.all_to_all_size(); ++u)
      store(a, plan.heads_of(u), u == plan.part() ? m.mine : slot(u));
    return {};
  }

 private:
  const Plan& plan;
  Exec exec;
  decode_arrays m;

  index_t floats(interval heads) const { return plan.partial_floats(plan.tables_.query_count(), heads); }
  /// Where the result of another part of the heads lands.
  float* slot(int u) const {
    return m.slots + (u < plan.part() ? u : u - 1) * plan.partial_floats(plan.shape_.queries, plan.heads_of(0));
  }
  rows_view<float> out_of(float* partial, interval heads) const {
    return dense_view(partial,
                      {plan.shape_.batch, plan.tables_.query_count(), heads.size(), plan.shape_.attention().v_dim()});
  }
  heads_view<float> lse_of(float* partial, interval heads) const {
    return dense_heads(partial + out_of(partial, heads).elements(),
                       {plan.shape_.batch, heads.size(), plan.tables_.query_count()});
  }
  float* stamp_in(float* partial, interval heads) const { return partial + floats(heads) - stamp_floats; }
  status check_stamp(float* partial, interval heads, int rank) const {
    if (std::memcmp(stamp_in(partial, heads), &plan.stamp_, sizeof(plan.stamp_)) == 0) return {};
    return plan.fail({errc::ranks_disagree,
                      "decode: another rank gave advance another cache, queries or mask; give every rank the same",
                      rank});
  }

  /// This rank's partial. A kernel is not asked about nothing: what it would leave is known.
  void attend(const decode_arguments<T, Out>& a) const {
    if (plan.own_.empty()) return;
    std::memcpy(stamp_in(m.mine, plan.own_), &plan.stamp_, sizeof(plan.stamp_));
    const rows_view<float> out = out_of(m.mine, plan.own_);
    const heads_view<float> lse = lse_of(m.mine, plan.own_);
    if (plan.tables_.nothing_to_see()) {
      std::fill_n(out.pointer, out.elements(), 0.f);
      std::fill_n(lse.pointer, plan.shape_.batch * plan.own_.size() * plan.tables_.query_count(),
                  -std::numeric_limits<float>::infinity());
      return;
    }
    const interval filled{0, plan.tables_.key_count()}, kv{0, plan.own_kv_.size()};
    const kv_segment<T> keys{part_of(a.k, filled, kv), part_of(a.v, filled, kv), plan.tables_.keys(), {}, {}};
    forward_call<T, float> call;
    call.q = part_of(a.q, {0, plan.tables_.query_count()}, plan.own_);
    call.queries = plan.tables_.queries();
    call.segments = {&keys, 1};
    call.heads = {plan.own_.lo, plan.own_kv_.lo, plan.shape_.attention().heads_per_kv()};
    call.scale = plan.scale_;
    call.out = out;
    call.lse = lse;
    call.workspace = m.workspace;
    using mask_type = std::remove_cvref_t<decltype(*plan.now_)>;
    if constexpr (interval_mask<mask_type>) {
      plan.kernel_.forward(call, by_intervals{});
    } else if constexpr (may_have_intervals<mask_type>) {
      if (plan.intervals_)
        plan.kernel_.forward(call, by_intervals{});
      else
        plan.kernel_.forward(call, *plan.now_);
    } else {
      plan.kernel_.forward(call, *plan.now_);
    }
  }

  /// Launches what post(group) adds and waits for it.
  template <class Post>
  status carry(message_label label, Post&& post) const {
    plan.group_.clear();
    plan.group_.label(label);
    post(plan.group_);
    if (status s = plan.team_.transport().launch(plan.group_, exec); !s.ok()) return s;
    return plan.team_.transport().wait(plan.group_, exec);
  }
  status merge_along_ring() {
    const index_t bytes = floats(plan.own_) * static_cast<index_t>(sizeof(float));
    const axis_view<decltype(plan.team_)> along{plan.team_, axis::ring, plan.ring(), plan.part()};
    const merge_tree way = plan.tree();
    const status s = way.run(
        [&](int peer, bool send, bool receive, index_t number) {
          const int rank = along.rank_of(peer);
          const status st = carry({"decode partials", number}, [&](auto& g) {
            if (send) g.send(dense_block(m.mine, bytes), rank);
            if (receive) g.recv(dense_block(m.other, bytes), rank);
          });
          return st.ok() && receive ? check_stamp(m.other, plan.own_, rank) : st;
        },
        [&](bool mine_first) {
          if (!mine_first) std::swap(m.mine, m.other);
          merge(out_of(m.mine, plan.own_), lse_of(m.mine, plan.own_),
                rows_view<const float>(out_of(m.other, plan.own_)),
                heads_view<const float>(lse_of(m.other, plan.own_)));
        });
    if (way.outside()) std::swap(m.mine, m.other);
    return s;
  }
  status hand_round() const {
    if (plan.team_.all_to_all_size() == 1) return {};
    const axis_view<decltype(plan.team_)> along{plan.team_, axis::all_to_all, plan.ring(), plan.part()};
    const auto each = [&](auto&& f) {
      for (int u = 0; u < plan.team_.all_to_all_size(); ++u)
        if (u != plan.part()) f(u, plan.heads_of(u), along.rank_of(u));
    };
    const auto bytes_of = [&](interval heads) { return floats(heads) * static_cast<index_t>(sizeof(float)); };
    const status s = carry({"decode heads", 0}, [&](auto& g) {
      each([&](int u, interval heads, int rank) {
        if (!plan.own_.empty()) g.send(dense_block(m.mine, bytes_of(plan.own_)), rank);
        if (!heads.empty()) g.recv(dense_block(slot(u), bytes_of(heads)), rank);
      });
    });
    if (!s.ok()) return s;
    status disagree;
    each([&](int u, interval heads, int rank) {
      if (disagree.ok() && !heads.empty()) disagree = check_stamp(slot(u), heads, rank);
    });
    return disagree;
  }
  void store(const decode_arguments<T, Out>& a, interval heads, float* partial) const {
    if (heads.empty()) return;
    const rows_view<float> from = out_of(partial, heads);
    const heads_view<float> lse = lse_of(partial, heads);
    for (index_t b = 0; b < plan.shape_.batch; ++b)
      for (index_t t = 0; t < from.tokens(); ++t)
        for (index_t h = 0; h < heads.size(); ++h) {
          const float* x = from.row(b, t, h);
          Out* y = a.out.row(b, t, heads.lo + h);
          for (index_t d = 0; d < from.dim(); ++d) y[d] = Out(x[d]);
          if (a.lse.pointer) a.lse.at(b, heads.lo + h, t) = lse.at(b, h, t);
        }
  }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
