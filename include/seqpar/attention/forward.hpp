// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forward pass: heads in, rounds of keys, heads out.
#pragma once

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/forward_by_queries.hpp>

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
    bind(a);
    if (this->grouped()) {
      const rows_view<T> gq = gathered_q(), gk = gathered_k(), gv = gathered_v();
      if (status st = this->carry(
              {"heads in", 0},
              [&](auto& g) {
                post_copy(g, this->group, s.q_in, array_of(a.q), array_of(gq));
                post_copy(g, this->group, s.kv_in, array_of(a.k), array_of(gk));
                post_copy(g, this->group, s.kv_in, array_of(a.v), array_of(gv));
              },
              [&] {
                copy_own(work, s.q_in, array_of(a.q), array_of(gq));
                copy_own(work, s.kv_in, array_of(a.k), array_of(gk));
                copy_own(work, s.kv_in, array_of(a.v), array_of(gv));
              });
          !st.ok())
        return st;
    }
    const auto compute = [&](std::ptrdiff_t i) {
      return each_call(a, i, [&](const auto& call, const auto& mask) { return this->attend_forward(call, mask); });
    };
    if (status st = by_queries() ? forward_by_queries(*this).run([&] { return compute(-1); })
                                 : this->run_rounds(m.in, home, false, compute);
        !st.ok())
      return st;

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

  /// f(call, mask) for all calls of a run whose tensors lie as in `like`, densely where it says nothing, in the run's
  /// order. The tensors come without pointers.
  template <class F>
  status show(const forward_arguments<T, Out>& like, F&& f) {
    forward_arguments<T, Out> a = like;
    lay_out(a.q, plan.q_rows_, n.heads, n.head_dim);
    lay_out(a.k, plan.kv_rows_, n.kv_heads, n.head_dim);
    lay_out(a.v, plan.kv_rows_, n.kv_heads, n.v_dim());
    lay_out(a.out, plan.q_rows_, n.heads, n.v_dim());
    lay_out(a.joint.q, n.joint_q, n.heads, n.head_dim);
    lay_out(a.joint.k, n.joint_kv, n.kv_heads, n.head_dim);
    lay_out(a.joint.v, n.joint_kv, n.kv_heads, n.v_dim());
    lay_out(a.joint.out, n.joint_q, n.heads, n.v_dim());
    lay_out(a.lse, plan.q_rows_);
    lay_out(a.joint.lse, n.joint_q);
    bind(a);
    if (by_queries()) {
      const status st = each_call(a, -1, f);
      return st.ok() ? forward_by_queries(*this).show(f) : st;
    }
    for (std::ptrdiff_t i = -1; i < std::ssize(s.rounds.rounds); ++i)
      if (status st = each_call(a, i, f); !st.ok()) return st;
    return {};
  }

 private:
  friend class forward_by_queries<forward_pass>;
  using arrays = forward_arrays<T, Out>;

  bool by_queries() const { return s.moves.forward == side::queries; }

  template <class E>
  void lay_out(rows_view<E>& v, index_t rows, index_t heads, index_t dim) const {
    const auto stride = v.stride;
    v = dense_view<E>(nullptr, {n.batch, rows, heads, dim});
    if (stride[3] == 1) v.stride = stride;
  }
  void lay_out(heads_view<float>& v, index_t rows) const {
    const auto stride = v.stride;
    v = dense_heads<float>(nullptr, {n.batch, n.heads, rows});
    if (stride != decltype(stride){}) v.stride = stride;
  }
  rows_view<T> gathered_q() const { return this->dense_rows(m.in.q, s.own.q_rows, s.own.heads, n.head_dim); }
  rows_view<T> gathered_k() const { return m.in.kv.k_view(n, s.own.kv_rows, s.own.kv_heads); }
  rows_view<T> gathered_v() const { return m.in.kv.v_view(n, s.own.kv_rows, s.own.kv_heads); }

  /// What the kernel works on: the caller's tensors, or what the group gathers.
  void bind(const forward_arguments<T, Out>& a) {
    m = arrays::take(this->memory, s, this->options(), plan.workspace_bytes());
    home = this->joint_of(a);
    q = a.q;
    home.k = a.k;
    home.v = a.v;
    out = a.out;
    lse = a.lse;
    if (this->grouped()) {
      q = gathered_q();
      home.k = gathered_k();
      home.v = gathered_v();
      out = this->dense_rows(m.out, s.own.q_rows, s.own.heads, n.v_dim());
      lse = dense_heads(m.lse, {n.batch, s.own.heads, s.own.q_rows});
    }
    last = by_queries() && forward_by_queries<forward_pass>::any_return(s) ? none : -1;
    for (std::size_t i = 0; !by_queries() && i < s.rounds.rounds.size(); ++i)
      if (s.rounds.rounds[i].rows() > 0) last = static_cast<std::ptrdiff_t>(i);
  }

  /// f(call, mask) for the calls of one round.
  template <class F>
  status each_call(const forward_arguments<T, Out>& a, std::ptrdiff_t i, F&& f) const {
    if (i >= 0 && s.rounds.rounds[static_cast<std::size_t>(i)].rows() == 0) return {};
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
      if (status st = this->compute_with_mask([&](const auto& mask) { return f(call, mask); }); !st.ok()) return st;
    }
    return {};
  }

  arrays m{};
  typename base::home_keys home{};
  rows_view<const T> q{};
  rows_view<Out> out{};
  heads_view<float> lse{};
  static constexpr std::ptrdiff_t none = -2;
  std::ptrdiff_t last = -1;  ///< the round that leaves out and lse: the last with keys
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
