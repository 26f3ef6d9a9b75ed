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
    m.stamps = exchange.take<std::uint64_t>(plan.template compares<on_host>() ? plan.team_.size() : 0);
    m.workspace = scratch.take<std::byte>(plan.workspace_bytes());
    return m;
  }
};

/// f(block of a, block of b) for the fewest blocks that make up the `rows` and `columns` of two arrays.
template <class F>
void for_each_pair(row_array a, row_array b, index_t rows, index_t columns, F&& f) {
  if (a.batch > rows) {
    for (row_array* x : {&a, &b}) std::swap(x->batch_stride, x->row_stride);
    std::swap(a.batch, rows);
  }
  for (index_t i = 0; i < a.batch; ++i) f(a.rows(i, 0, rows, 1, 0, columns), b.rows(i, 0, rows, 1, 0, columns));
}

/// f(tokens, row) for those of the last `fresh` tokens of `cache` that `rank` holds: runs of them, counted from the
/// first fresh one, that lie side by side from `row` on.
template <sequence_layout L, class F>
void for_each_fresh_run(const L& cache, index_t fresh, int rank, F&& f) {
  run tokens{0, 0, 1};
  index_t row = 0;
  for (index_t i = 0; i < fresh; ++i) {
    const place p = cache.place_of(cache.token_count() - fresh + i);
    if (p.rank != rank) continue;
    if (tokens.count == 1) tokens.step = i - tokens.first;
    if (p.local != row + tokens.count || i != tokens.at(tokens.count)) {
      if (tokens.count > 0) f(tokens, row);
      tokens = {i, 0, 1};
      row = p.local;
    }
    ++tokens.count;
  }
  if (tokens.count > 0) f(tokens, row);
}
/// These rows and heads of `from` to consecutive rows of `to`, which has these heads only.
template <class Space, class T>
void copy_rows(const Space& work, rows_view<const T> from, run rows, interval heads, const rows_view<T>& to,
               index_t first) {
  from = part_of(from, {rows.first, rows.first + rows.count}, heads);
  from.stride[1] *= rows.step;
  for_each_pair(array_of(part_of(to, {first, first + rows.count}, {0, heads.size()})), array_of(from), rows.count,
                heads.size(), [&](const block& t, const block& f) { work.copy(t, f); });
}

/// State of one run. Nothing here allocates.
template <class Plan, class Exec>
struct decode_pass {
  using T = typename Plan::value_type;
  using Out = typename Plan::out_type;

  static constexpr bool here = std::same_as<Exec, on_host>;

  decode_pass(const Plan& p, const memory& given, Exec e) : plan(p), exec(e), work(space_of(e)) {
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
    const status s = work.outcome();
    return s.ok() ? s : plan.fail(s);
  }

 private:
  const Plan& plan;
  Exec exec;
  decltype(space_of(std::declval<Exec>())) work;
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
    if (!plan.template compares<Exec>()) return {};
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
    if (!plan.template compares<Exec>()) return {};
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

  /// This rank's partial. The host's kernels are not asked about nothing: what they would leave is known. Others are,
  /// since what is captured now may be replayed when there is something.
  status attend(const decode_arguments<T, Out>& a) const {
    if (plan.own_.empty() || nothing_asked()) return {};
    const rows_view<float> out = out_of(m.mine, plan.own_);
    const heads_view<float> lse = lse_of(m.mine, plan.own_);
    if (here && plan.tables_.nothing_to_see()) {
      std::fill_n(out.pointer, out.elements(), 0.f);
      std::fill_n(lse.pointer, plan.shape_.batch * plan.own_.size() * plan.tables_.query_count(),
                  -std::numeric_limits<float>::infinity());
      return {};
    }
    const interval filled{0, plan.tables_.key_count()}, kv{0, plan.own_kv_.size()};
    const kv_segment<T> keys{part_of(a.k, filled, kv), part_of(a.v, filled, kv), plan.read_.keys(), {}, {}};
    forward_call<T, float> call;
    call.q = part_of(a.q, {0, plan.tables_.query_count()}, plan.own_);
    call.queries = plan.read_.queries();
    call.segments = {&keys, 1};
    call.heads = {plan.own_.lo, plan.own_kv_.lo, plan.shape_.attention().heads_per_kv()};
    call.scale = plan.scale_;
    call.out = out;
    call.lse = lse;
    call.workspace = m.workspace;
    const auto attended = [&] {
      using kernel_type = typename Plan::kernel_type;
      using mask_type = typename Plan::bound_mask;
      const auto with = [&](const auto& mask) {
        return computed_by<kernel_type>(
            exec, [&](const auto&... where) { return plan.kernel_.forward(call, mask, where...); });
      };
      if constexpr (!interval_mask<mask_type> && takes_mask<kernel_type, mask_type>())
        if (!plan.intervals_) return with(*plan.now_);
      return with(by_intervals{});
    };
    return told_to_peers(plan.team_.transport(),
                         plan.intervals_ ? "decode: the kernel threw" : "decode: the kernel or the mask threw",
                         attended);
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
    const peer_ranks along = plan.team_.along(axis::ring, plan.ring(), plan.part());
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
          const rows_view<float> out = out_of(m.mine, plan.own_);
          const heads_view<float> lse = lse_of(m.mine, plan.own_);
          const rows_view<float> other = out_of(m.other, plan.own_);
          const heads_view<float> other_lse = lse_of(m.other, plan.own_);
          if constexpr (here)
            merge(out, lse, rows_view<const float>(other), heads_view<const float>(other_lse));
          else
            work.merge({out, lse, {}}, {other, other_lse, {}});
        });
    if (way.outside()) std::swap(m.mine, m.other);
    return s;
  }
  status hand_round() const {
    if (plan.team_.all_to_all_size() == 1) return {};
    const peer_ranks along = plan.team_.along(axis::all_to_all, plan.ring(), plan.part());
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
    const index_t queries = plan.tables_.query_count();
    for_each_pair(
        array_of(part_of(a.out, {0, queries}, heads)), array_of(out_of(partial, heads)), queries, heads.size(),
        [&](const block& to, const block& from) { work.template store<Out, float>(to, from, write::assign); });
    if (a.lse.pointer)
      for_each_pair(array_of(part_of(a.lse, {0, queries}, heads)), array_of(lse_of(partial, heads)), queries,
                    heads.size(), [&](const block& to, const block& from) { work.copy(to, from); });
  }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
