// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One run of a decode plan: a partial of this rank's rows, merged along the ring, handed round to the other heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include <seqpar/attention/decode_arguments.hpp>
#include <seqpar/attention/merge_tree.hpp>
#include <seqpar/attention/pass.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Partials: out [batch][queries][heads][value_dim], behind it lse [batch][heads][queries]. Stamps: one of each member.
struct decode_arrays {
  float *mine = nullptr, *other = nullptr, *slots = nullptr;
  std::uint64_t* stamps = nullptr;
  std::byte* workspace = nullptr;

  template <class Plan>
  static decode_arrays take(carver& scratch, carver& exchange, const Plan& plan) {
    const index_t most = plan.partial_floats(plan.shape_.queries, plan.heads_of(0));
    decode_arrays m{};
    m.mine = exchange.take<float>(most);
    m.other = exchange.take<float>(plan.team_.ring_size() > 1 ? most : 0);
    m.slots = exchange.take<float>((plan.team_.all_to_all_size() - 1) * most);
    m.stamps = exchange.take<std::uint64_t>(plan.compares() ? plan.team_.size() : 0);
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
    if (status s = post_stamps(0); !s.ok()) return s;  // they travel while this rank attends
    if (status s = attend(a); !s.ok()) {
      static_cast<void>(compare_stamps());  // no peer reads this rank's memory any more
      return s;
    }
    if (status s = compare_stamps(); !s.ok() || nothing_asked()) return s;
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

  bool nothing_asked() const { return plan.shape_.batch * plan.tables_.query_count() == 0; }
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

  /// Partials have sizes that the stamps vouch for: nothing else moves before these are known to agree.
  status post_stamps(index_t round) const {
    if (!plan.compares()) return {};
    std::uint64_t& mine = m.stamps[plan.team_.index()];
    mine = plan.stamp_;
    return launch({"decode stamps", round}, [&](auto& g) {
      for (int i = 0; i < plan.team_.size(); ++i) {
        if (i == plan.team_.index()) continue;
        g.send(dense_block(&mine, sizeof(mine)), plan.team_.rank_of(i));
        g.recv(dense_block(m.stamps + i, sizeof(mine)), plan.team_.rank_of(i));
      }
    });
  }
  /// All ranks have the same stamps and so say the same, of the first rank that is not with the most.
  status compare_stamps() const {
    if (!plan.compares()) return {};
    if (status s = wait(); !s.ok()) return s;
    const std::span all(m.stamps, static_cast<std::size_t>(plan.team_.size()));
    const auto count = [&](std::uint64_t stamp) { return std::count(all.begin(), all.end(), stamp); };
    if (count(all[0]) == plan.team_.size()) return {};
    const auto most = *std::max_element(all.begin(), all.end(), [&](auto a, auto b) { return count(a) < count(b); });
    const auto odd = std::find_if(all.begin(), all.end(), [&](auto stamp) { return stamp != most; });
    const int rank = plan.team_.rank_of(static_cast<int>(odd - all.begin()));
    // Once more, so that nobody leaves before all know. What fails from here on belongs to what comes next.
    if (post_stamps(1).ok()) (void)wait();
    return {errc::ranks_disagree,
            "decode: a rank gave advance another cache, queries or mask than the others; give every rank the same",
            rank};
  }

  /// This rank's partial. A kernel is not asked about nothing: what it would leave is known.
  status attend(const decode_arguments<T, Out>& a) const {
    if (plan.own_.empty() || nothing_asked()) return {};
    const rows_view<float> out = out_of(m.mine, plan.own_);
    const heads_view<float> lse = lse_of(m.mine, plan.own_);
    if (plan.tables_.nothing_to_see()) {
      std::fill_n(out.pointer, out.elements(), 0.f);
      std::fill_n(lse.pointer, plan.shape_.batch * plan.own_.size() * plan.tables_.query_count(),
                  -std::numeric_limits<float>::infinity());
      return {};
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
    return plan.unless_thrown([&] {
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
    });
  }

  /// Launches what post(group) adds.
  template <class Post>
  status launch(message_label label, Post&& post) const {
    plan.group_.clear();
    label.plan = plan.said_.plan();
    plan.group_.label(label);
    post(plan.group_);
    const status s = plan.team_.transport().launch(plan.group_, exec);
    return s.ok() ? s : plan.fail(s);
  }
  status wait() const { return plan.team_.transport().wait(plan.group_, exec); }
  template <class Post>
  status carry(message_label label, Post&& post) const {
    if (status s = launch(label, post); !s.ok()) return s;
    return wait();
  }
  status merge_along_ring() {
    const index_t bytes = floats(plan.own_) * static_cast<index_t>(sizeof(float));
    const axis_view<decltype(plan.team_)> along{plan.team_, axis::ring, plan.ring(), plan.part()};
    const merge_tree way = plan.tree();
    const status s = way.run(
        [&](int peer, bool send, bool receive, index_t number) {
          const int rank = along.rank_of(peer);
          return carry({"decode partials", number}, [&](auto& g) {
            if (send) g.send(dense_block(m.mine, bytes), rank);
            if (receive) g.recv(dense_block(m.other, bytes), rank);
          });
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
    const auto bytes_of = [&](interval heads) { return floats(heads) * static_cast<index_t>(sizeof(float)); };
    return carry({"decode heads", 0}, [&](auto& g) {
      for (int u = 0; u < plan.team_.all_to_all_size(); ++u) {
        if (u == plan.part()) continue;
        const interval heads = plan.heads_of(u);
        if (!plan.own_.empty()) g.send(dense_block(m.mine, bytes_of(plan.own_)), along.rank_of(u));
        if (!heads.empty()) g.recv(dense_block(slot(u), bytes_of(heads)), along.rank_of(u));
      }
    });
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
