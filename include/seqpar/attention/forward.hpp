// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forward pass: heads in, rounds of keys, heads out.
#pragma once

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/pass.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

template <class Plan, class Exec>
struct forward_pass : pass_base<Plan, Exec> {
  using base = pass_base<Plan, Exec>;
  using base::base;
  using base::n;
  using base::plan;
  using base::s;
  using base::work;
  using typename base::Out;
  using typename base::T;

  status run(const forward_arguments<T, Out>& a) {
    const auto m = forward_arrays<T, Out>::take(this->memory, s, this->options(), plan.workspace_bytes());
    auto home = this->joint_of(a);
    rows_view<const T> q = a.q;
    home.k = a.k;
    home.v = a.v;
    rows_view<Out> out = a.out;
    heads_view<float> lse = a.lse;
    if (this->grouped()) {
      const rows_view<T> gq = this->dense_rows(m.in.q, s.own.q_rows, s.own.heads, n.head_dim);
      const rows_view<T> gk = m.in.kv.k_view(n, s.own.kv_rows, s.own.kv_heads);
      const rows_view<T> gv = m.in.kv.v_view(n, s.own.kv_rows, s.own.kv_heads);
      if (status st = this->carry(
              {"heads in", 0},
              [&](auto& g) {
                post_copy(g, this->group, s.q_in, array_of(q), array_of(gq));
                post_copy(g, this->group, s.kv_in, array_of(home.k), array_of(gk));
                post_copy(g, this->group, s.kv_in, array_of(home.v), array_of(gv));
              },
              [&] {
                copy_own(work, s.q_in, array_of(q), array_of(gq));
                copy_own(work, s.kv_in, array_of(home.k), array_of(gk));
                copy_own(work, s.kv_in, array_of(home.v), array_of(gv));
              });
          !st.ok())
        return st;
      q = gq;
      home.k = gk;
      home.v = gv;
      out = this->dense_rows(m.out, s.own.q_rows, s.own.heads, n.v_dim());
      lse = dense_heads(m.lse, {n.batch, s.own.heads, s.own.q_rows});
    }

    std::ptrdiff_t last = -1;
    for (std::size_t i = 0; i < s.rounds.rounds.size(); ++i)
      if (s.rounds.rounds[i].rows() > 0) last = static_cast<std::ptrdiff_t>(i);
    const auto compute = [&](std::ptrdiff_t i) {
      if (i >= 0 && s.rounds.rounds[static_cast<std::size_t>(i)].rows() == 0) return status{};
      for (std::size_t p = 0; p < 2; ++p) {
        const auto keys = this->segments(m.in, home, p, i);
        forward_call<T, Out> call;
        call.q = p == 0 ? q : part_of(a.joint.q, s.joint_q, s.heads);
        call.queries = plan.tables_.queries[p];
        call.segments = keys.span();
        call.heads = this->heads();
        call.scale = plan.scale_;
        call.in = i < 0 ? state_in::none : state_in::carry;
        call.out_kind = i == last ? state_out::final : state_out::carry;
        call.state = m.state[p];
        call.out = p == 0 ? out : part_of(a.joint.out, s.joint_q, s.heads);
        call.lse = p == 0 ? lse : part_of(a.joint.lse, s.joint_q, s.heads);
        call.workspace = m.workspace;
        if (call.q.elements() == 0) continue;
        if (status st = this->compute_with_mask([&](const auto& mask) { return this->attend_forward(call, mask); });
            !st.ok())
          return st;
      }
      return status{};
    };
    if (status st = this->run_rounds(m.in, home, false, compute); !st.ok()) return st;

    if (this->grouped())
      if (status st = this->carry(
              {"heads out", 0},
              [&](auto& g) {
                post_inverse(g, this->group, s.q_in, array_of(a.out), array_of(out));
                post_inverse(g, this->group, s.q_in, array_of(a.lse), array_of(lse));
              },
              [&] {
                copy_own_back(work, s.q_in, array_of(a.out), array_of(out));
                copy_own_back(work, s.q_in, array_of(a.lse), array_of(lse));
              });
          !st.ok())
        return st;
    if (n.joint_q == 0 || plan.team_.size() == 1) return {};
    const interval all{0, n.joint_q};
    return this->carry(
        {"joint results", 0},
        [&](auto& g) {
          post_copy(g, plan.team_, s.joint_out, array_of(part_of(a.joint.out, all, s.heads)), array_of(a.joint.out));
          post_copy(g, plan.team_, s.joint_out, array_of(part_of(a.joint.lse, all, s.heads)), array_of(a.joint.lse));
        },
        [] {});
  }
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
