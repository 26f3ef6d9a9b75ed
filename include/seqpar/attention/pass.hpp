// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What both passes of attention share: views of their part, exchanges, and the walk over the rounds.
#pragma once

#include <array>

#include <seqpar/attention/buffers.hpp>
#include <seqpar/exchange/carry.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Rows and heads of a view.
template <class T>
rows_view<T> part_of(const rows_view<T>& v, interval rows, interval heads) {
  rows_view<T> p = v;
  if (p.pointer) p.pointer += rows.lo * v.stride[1] + heads.lo * v.stride[2];
  p.shape = {v.shape[0], rows.size(), heads.size(), v.shape[3]};
  return p;
}
template <class T>
heads_view<T> part_of(const heads_view<T>& v, interval rows, interval heads) {
  heads_view<T> p = v;
  if (p.pointer) p.pointer += heads.lo * v.stride[1] + rows.lo * v.stride[2];
  p.shape = {v.shape[0], heads.size(), rows.size()};
  return p;
}

/// run(exec), or run() on the host: a call of the plan's kernel.
template <class Kernel, class Exec, class Run>
status computed_by(const Exec& exec, Run&& run) {
  static_assert(computes_on<Kernel, Exec>,
                "[seqpar] this plan's kernel does not compute on this executor: it needs forward and backward "
                "(call, mask, exec). Plan with cuda::attention of <seqpar/cuda.cuh> for streams, host_fast for "
                "on_host{}, or a kernel of your own (docs/kernels.md)");
  return said_by([&] {
    if constexpr (std::same_as<Exec, on_host>)
      return run();
    else
      return run(exec);
  });
}

/// State of one run. Nothing here allocates.
template <class Plan, class Exec>
struct pass_base {
  using T = typename Plan::value_type;
  using Out = typename Plan::out_type;
  using Grad = typename Plan::grad_type;
  using group_type = typename Plan::group_type;
  static constexpr std::size_t keys_group = 0, gradients_group = 1, other_group = 2, windows_group = 3,
                               window_gradients_group = 4;

  pass_base(const Plan& p, const carvers& m, Exec e) : plan(p), memory(m), exec(e), work(space_of(e)) {}

  const Plan& plan;
  carvers memory;
  Exec exec;
  decltype(space_of(std::declval<Exec>())) work;

  const attention_setup& s = plan.setup_;
  const attention_shape& n = s.shape;
  peer_ranks group = plan.team_.along(axis::all_to_all, s.ring, s.group);
  peer_ranks ring = plan.team_.along(axis::ring, s.ring, s.group);
  interval q_group{0, s.own.q_rows}, kv_group{0, s.own.kv_rows};

  const attention_options& options() const { return plan.options_; }
  const bound_tables& tables() const { return plan.tables_; }
  float scale() const { return plan.scale_; }
  bool grouped() const { return s.group_size > 1; }
  const auto& team() const { return plan.team_; }

  template <class E>
  rows_view<E> dense_rows(E* p, index_t rows, index_t heads, index_t dim) const {
    return dense_view(p, {n.batch, rows, heads, dim});
  }
  head_map heads() const { return {s.heads.lo, s.kv_heads.lo, n.heads_per_kv()}; }

  /// Posts what `post(group)` adds and launches it.
  status launch(std::size_t which, message_label label, function_ref<void(group_type&)> post) const {
    group_type& g = plan.groups_[which];
    g.clear();
    label.plan = plan.said_.plan();
    g.label(label);
    post(g);
    const status st = plan.team_.transport().launch(g, exec);
    return st.ok() ? st : plan.fail(st);
  }
  status wait(std::size_t which) const { return plan.team_.transport().wait(plan.groups_[which], exec); }
  /// An exchange with nothing to hide behind: launch, do this rank's own share, wait.
  status carry(message_label label, function_ref<void(group_type&)> post, function_ref<void()> own) const {
    if (status st = launch(other_group, label, post); !st.ok()) return st;
    own();
    return wait(other_group);
  }

  /// The keys and values that this member holds for its group, and the replicated ones: what round 0 attends to.
  struct home_keys {
    rows_view<const T> k, v, joint_k, joint_v;
  };

  template <class Arguments>
  home_keys joint_of(const Arguments& a) const {
    const interval rows{0, n.joint_kv};
    return {{}, {}, part_of(a.joint.k, rows, s.kv_heads), part_of(a.joint.v, rows, s.kv_heads)};
  }

  /// Launches the messages that bring the keys of round `i` (from 0).
  status launch_keys(const exchanged_arrays<T>& in, const home_keys& home, std::size_t i) const {
    const ring_round& r = s.rounds.rounds[i];
    return launch(keys_group, {"keys", static_cast<index_t>(i) + 1}, [&](auto& g) {
      const index_t heads = s.kv_heads.size();
      row_array from_k = array_of(home.k), from_v = array_of(home.v);
      const auto come_from = [&](const kv_arrays<T>& there, index_t rows) {
        from_k = array_of(there.k_view(n, rows, heads));
        from_v = array_of(there.v_view(n, rows, heads));
      };
      if (options().schedule == schedule::pass_along && i > 0)
        come_from(in.round(s, i - 1), s.rounds.rounds[i - 1].rows());
      if (r.window > 0) come_from(in.window(s, r.window), window_at(r.window).rows());
      const kv_arrays<T> to = in.round(s, i);
      post_copy(g, ring, r.kv, from_k, array_of(to.k_view(n, r.rows(), heads)));
      post_copy(g, ring, r.kv, from_v, array_of(to.v_view(n, r.rows(), heads)));
    });
  }

  const window_step& window_at(int o) const { return s.rounds.windows[static_cast<std::size_t>(o) - 1]; }
  /// Launches the messages that bring what my window wants in step `o`, if there is such a step.
  status launch_window(const exchanged_arrays<T>& in, const home_keys& home, int o) const {
    if (o > static_cast<int>(s.rounds.windows.size()) || window_at(o).idle()) return {};
    const window_step& step = window_at(o);
    const kv_arrays<T> to = in.window(s, o);
    return launch(windows_group, {"window keys", o}, [&](auto& g) {
      post_copy(g, ring, step.kv, array_of(home.k), array_of(to.k_view(n, step.rows(), s.kv_heads.size())));
      post_copy(g, ring, step.kv, array_of(home.v), array_of(to.v_view(n, step.rows(), s.kv_heads.size())));
    });
  }

  /// Runs compute(i) for round 0 (i = −1: what is here) and every round that has keys, the next one's already under
  /// way, and so are those of the next window.
  template <class Compute>
  status run_rounds(const exchanged_arrays<T>& in, const home_keys& home, bool keys_are_here, Compute&& compute) const {
    const auto& rounds = s.rounds.rounds;
    const auto start = [&](std::size_t i) {
      return i >= rounds.size() || keys_are_here || rounds[i].idle() ? status{} : launch_keys(in, home, i);
    };
    const auto next_window = [&](int o) { return keys_are_here ? status{} : launch_window(in, home, o); };
    if (status st = next_window(1); !st.ok()) return st;
    if (status st = start(0); !st.ok()) return st;
    if (status st = compute(std::ptrdiff_t{-1}); !st.ok()) return st;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (const int o = rounds[i].window; rounds[i].here && !keys_are_here) {
        if (!window_at(o).idle())
          if (status st = wait(windows_group); !st.ok()) return st;
        if (status st = next_window(o + 1); !st.ok()) return st;
      }
      if (!keys_are_here && !rounds[i].idle())
        if (status st = wait(keys_group); !st.ok()) return st;
      if (status st = start(i + 1); !st.ok()) return st;
      if (status st = compute(static_cast<std::ptrdiff_t>(i)); !st.ok()) return st;
    }
    return {};
  }

  /// Key segments of round `i` (−1: own block and joint keys) as query part `p` visits them.
  struct segment_list {
    std::array<kv_segment<T>, 2> list;
    std::size_t count;
    std::span<const kv_segment<T>> span() const { return {list.data(), count}; }
  };
  segment_list segments(const exchanged_arrays<T>& in, const home_keys& home, std::size_t p, std::ptrdiff_t i) const {
    const auto& keys = plan.tables_.keys[p];
    if (i < 0)
      return {{{{home.k, home.v, keys[0], {}, {}}, {home.joint_k, home.joint_v, keys[1], {}, {}}}},
              n.joint_kv > 0 ? 2u : 1u};
    const kv_arrays<T> r = in.round(s, static_cast<std::size_t>(i));
    const index_t rows = s.rounds.rounds[static_cast<std::size_t>(i)].rows();
    return {{{{r.k_view(n, rows, s.kv_heads.size()),
               r.v_view(n, rows, s.kv_heads.size()),
               keys[static_cast<std::size_t>(i) + 2],
               {},
               {}},
              {}}},
            1u};
  }

  /// Computes f(mask); what a user's kernel says or throws, or a mask throws, becomes a status, and the peers are told.
  template <class F>
  status compute_with_mask(F&& f) const {
    const char* const threw = s.intervals ? "attention: the kernel threw" : "attention: the kernel or the mask threw";
    return told_to_peers(plan.team_.transport(), threw, [&] { return with_mask(f); });
  }
  /// The kernel's two passes, told where to run unless that is here.
  template <class Call, class Mask>
  status attend_forward(const Call& call, const Mask& mask) const {
    return said_by([&](const auto&... where) { return plan.kernel_.forward(call, mask, where...); });
  }
  template <class Call, class Mask>
  status attend_backward(const Call& call, const Mask& mask) const {
    return said_by([&](const auto&... where) { return plan.kernel_.backward(call, mask, where...); });
  }
  template <class Run>
  status said_by(Run&& run) const {
    return computed_by<typename Plan::kernel_type>(exec, run);
  }
  /// Calls f(mask) with the form of the mask that this plan's kernels use.
  template <class F>
  status with_mask(F&& f) const {
    if constexpr (!std::same_as<std::remove_cvref_t<decltype(*plan.mask_)>, by_intervals>)
      if (!s.intervals) return f(*plan.mask_);
    return f(by_intervals{});
  }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
