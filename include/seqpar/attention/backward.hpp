// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The backward pass: delta at home, heads in, rounds of keys whose gradients travel back, heads out.
#pragma once

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/backward_by_queries.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

template <class Plan, class Exec>
struct backward_pass : pass_base<Plan, Exec> {
  using base = pass_base<Plan, Exec>;
  using base::base;
  using base::n;
  using base::plan;
  using base::s;
  using base::work;
  using typename base::Grad;
  using typename base::Out;
  using typename base::T;
  using arrays = backward_arrays<T, Grad>;
  using kv_views = std::pair<rows_view<float>, rows_view<float>>;

  status run(const backward_arguments<T, Out, Grad>& a) {
    m = arrays::take(this->memory, s, this->options(), plan.workspace_bytes());
    home = this->joint_of(a);
    home.k = a.k;
    home.v = a.v;
    q = a.q;
    dout = a.dout;
    lse = a.lse;
    delta = dense_heads(m.delta_home, {n.batch, n.heads, plan.q_rows_});
    work.row_dots(a.dout, a.out, a.dlse, delta);
    if (this->grouped())
      if (status st = heads_in(a); !st.ok()) return st;

    const interval joint = s.joint_q;
    joint_delta = dense_heads(m.delta_joint, {n.batch, s.own.heads, s.own.joint_q});
    heads_view<const float> joint_dlse = a.joint.dlse;
    if (joint_dlse.pointer) joint_dlse = part_of(joint_dlse, joint, s.heads);
    work.row_dots(part_of(a.joint.dout, joint, s.heads), part_of(a.joint.out, joint, s.heads), joint_dlse, joint_delta);

    own = views(m.own, s.own.kv_rows, s.own.kv_heads);
    clear(own);
    if (n.joint_kv > 0) clear(views(m.joint, n.joint_kv, s.own.kv_heads));
    for (std::size_t p = 0; p < 2; ++p) clear(dq_view(p));

    if (status st =
            s.moves.backward == side::queries ? backward_by_queries(*this, [&] { return round(a, -1); }) : by_keys(a);
        !st.ok())
      return st;
    if (status st = give_queries(a); !st.ok()) return st;
    if (status st = give_keys(a); !st.ok()) return st;
    return give_joint_keys(a);
  }

 private:
  template <class Pass, class Own>
  friend status backward_by_queries(const Pass&, Own&&);

  status by_keys(const backward_arguments<T, Out, Grad>& a) {
    const bool saved = this->options().reuse == reuse::saved;
    if (status st = this->run_rounds(m.in, home, saved, [&](std::ptrdiff_t i) { return round(a, i); }); !st.ok())
      return st;
    return last_gradients_home();
  }
  kv_views views(const kv_arrays<float>& k, index_t rows, index_t heads) const {
    return {k.k_view(n, rows, heads), k.v_view(n, rows, heads)};
  }
  void clear(const rows_view<float>& v) const {
    work.zero(dense_block(v.pointer, v.elements() * static_cast<index_t>(sizeof(float))));
  }
  void clear(const kv_views& v) const {
    clear(v.first);
    clear(v.second);
  }
  /// to = from, or to += from, rounded once.
  template <class To, class From>
  void store(const rows_view<To>& to, const rows_view<From>& from, write how) const {
    for (index_t b = 0; b < to.batch(); ++b)
      work.template store<To, From>(array_of(to).rows(b, 0, to.tokens(), 1, 0, to.heads()),
                                    array_of(from).rows(b, 0, to.tokens(), 1, 0, to.heads()), how);
  }
  rows_view<float> dq_view(std::size_t p) const {
    return this->dense_rows(m.dq[p], p == 0 ? s.own.q_rows : s.own.joint_q, s.own.heads, n.head_dim);
  }
  const ring_round& at(std::ptrdiff_t i) const { return s.rounds.rounds[static_cast<std::size_t>(i)]; }
  bool direct() const { return this->options().schedule != schedule::pass_along; }

  status heads_in(const backward_arguments<T, Out, Grad>& a) {
    const rows_view<T> gq = this->dense_rows(m.in.q, s.own.q_rows, s.own.heads, n.head_dim);
    const rows_view<T> gdout = this->dense_rows(m.dout, s.own.q_rows, s.own.heads, n.v_dim());
    const rows_view<T> gk = m.in.kv.k_view(n, s.own.kv_rows, s.own.kv_heads);
    const rows_view<T> gv = m.in.kv.v_view(n, s.own.kv_rows, s.own.kv_heads);
    const heads_view<float> glse = dense_heads(m.lse, {n.batch, s.own.heads, s.own.q_rows});
    const heads_view<float> gdelta = dense_heads(m.delta, {n.batch, s.own.heads, s.own.q_rows});
    const bool again = this->options().reuse == reuse::resend;
    const auto each = [&](auto&& queries, auto&& keys) {
      if (again) {
        queries(array_of(a.q), array_of(gq));
        keys(array_of(a.k), array_of(gk));
        keys(array_of(a.v), array_of(gv));
      }
      queries(array_of(a.dout), array_of(gdout));
      queries(array_of(a.lse), array_of(glse));
      queries(array_of(delta), array_of(gdelta));
    };
    const status st = this->carry(
        {"heads in", 0},
        [&](auto& g) {
          each([&](const row_array& from, const row_array& to) { post_copy(g, this->group, s.q_in, from, to); },
               [&](const row_array& from, const row_array& to) { post_copy(g, this->group, s.kv_in, from, to); });
        },
        [&] {
          each([&](const row_array& from, const row_array& to) { copy_own(work, s.q_in, from, to); },
               [&](const row_array& from, const row_array& to) { copy_own(work, s.kv_in, from, to); });
        });
    q = gq;
    dout = gdout;
    home.k = gk;
    home.v = gv;
    lse = glse;
    delta = gdelta;
    return st;
  }

  /// One round: gradients of its keys are computed here and sent on their way home.
  status round(const backward_arguments<T, Out, Grad>& a, std::ptrdiff_t i) {
    if (i < 0) {
      return compute(a, i, own, views(m.joint, n.joint_kv, s.own.kv_heads));
    }
    const ring_round& r = at(i);
    const kv_views grads = r.here ? window_sums(r.window)
                                  : views(m.round[direct() && m.round[1].k ? r.slot % 2 : 0], r.rows(), s.own.kv_heads);
    if (r.here)
      if (status st = add_window_home(r.window - 2); !st.ok()) return st;
    if (r.rows() > 0) {
      clear(grads);
      if (status st = compute(a, i, grads, {}); !st.ok()) return st;
    }
    return direct() ? send_home(i, grads) : pass_sums(i, grads);
  }

  status compute(const backward_arguments<T, Out, Grad>& a, std::ptrdiff_t i, const kv_views& grads,
                 const kv_views& joint) {
    for (std::size_t p = 0; p < 2; ++p) {
      auto keys = this->segments(m.in, home, p, i);
      keys.list[0].dk = grads.first;
      keys.list[0].dv = grads.second;
      keys.list[1].dk = joint.first;
      keys.list[1].dv = joint.second;
      backward_call<T> call;
      call.q = p == 0 ? q : part_of(a.joint.q, s.joint_q, s.heads);
      call.dout = p == 0 ? dout : part_of(a.joint.dout, s.joint_q, s.heads);
      call.queries = plan.tables_.queries[p];
      call.segments = keys.span();
      call.heads = this->heads();
      call.scale = plan.scale_;
      call.lse = p == 0 ? lse : heads_view<const float>(part_of(a.joint.lse, s.joint_q, s.heads));
      call.delta = p == 0 ? delta : joint_delta;
      call.dq = dq_view(p);
      call.workspace = m.workspace;
      if (call.q.elements() == 0) continue;
      if (status st = this->compute_with_mask([&](const auto& mask) { return this->attend_backward(call, mask); });
          !st.ok())
        return st;
    }
    return {};
  }

  /// direct: the round's gradients go straight to who sent the keys, mine come back, and are added one round later.
  /// double_ring: what has come for a window goes on to its owner when all of its rounds are over.
  status send_home(std::ptrdiff_t i, const kv_views& grads) {
    if (status st = add_returned(i - 1); !st.ok()) return st;
    const ring_round& r = at(i);
    if (r.here) return send_window_home(r.window - 1);
    if (r.idle()) return {};
    return this->launch(base::gradients_group, {"dK/dV", i + 1}, [&](auto& g) {
      post_add(g, this->ring, r.kv, array_of(grads.first), m.staging.k);
      post_add(g, this->ring, r.kv, array_of(grads.second), m.staging.v);
    });
  }
  status add_returned(std::ptrdiff_t i) {
    if (i < 0 || at(i).idle()) return {};
    if (status st = this->wait(base::gradients_group); !st.ok()) return st;
    add_staged(at(i).kv, at(i).window > 0 ? window_sums(at(i).window) : own, m.staging);
    return {};
  }
  void add_staged(const route& way, const kv_views& to, const kv_arrays<float>& staging) {
    add_up<float, float>(work, s.ring, way, array_of(to.first), array_of(to.first), staging.k);
    add_up<float, float>(work, s.ring, way, array_of(to.second), array_of(to.second), staging.v);
  }
  kv_views window_sums(int o) const { return views(m.window[(o - 1) % 2], this->window_at(o).rows(), s.own.kv_heads); }
  status send_window_home(int o) {
    if (o < 1 || this->window_at(o).idle()) return {};
    const kv_views sums = window_sums(o);
    return this->launch(base::window_gradients_group, {"window dK/dV", o}, [&](auto& g) {
      post_add(g, this->ring, this->window_at(o).kv, array_of(sums.first), m.window_staging.k);
      post_add(g, this->ring, this->window_at(o).kv, array_of(sums.second), m.window_staging.v);
    });
  }
  status add_window_home(int o) {
    if (o < 1 || this->window_at(o).idle()) return {};
    if (status st = this->wait(base::window_gradients_group); !st.ok()) return st;
    add_staged(this->window_at(o).kv, own, m.window_staging);
    return {};
  }

  /// pass_along: sums of this source's gradients come from the neighbour, this round's join them.
  status pass_sums(std::ptrdiff_t i, const kv_views& grads) {
    const ring_round& r = at(i);
    const kv_views sums = summed(i);
    clear(sums);
    if (i > 0 && !(r.sums.incoming().empty() && r.sums.outgoing().empty())) {
      const kv_views before = summed(i - 1);
      if (status st = this->launch(base::gradients_group, {"dK/dV sums", i + 1},
                                   [&](auto& g) {
                                     post_copy(g, this->ring, r.sums, array_of(before.first), array_of(sums.first));
                                     post_copy(g, this->ring, r.sums, array_of(before.second), array_of(sums.second));
                                   });
          !st.ok())
        return st;
      if (status st = this->wait(base::gradients_group); !st.ok()) return st;
    }
    add_up<float, float>(work, 0, r.own_sums, array_of(sums.first), array_of(grads.first), nullptr);
    add_up<float, float>(work, 0, r.own_sums, array_of(sums.second), array_of(grads.second), nullptr);
    return {};
  }
  kv_views summed(std::ptrdiff_t i) const { return views(m.summed[i % 2], count_of(at(i).summed), s.own.kv_heads); }

  status last_gradients_home() {
    const auto last = static_cast<std::ptrdiff_t>(s.rounds.rounds.size()) - 1;
    if (last < 0) return {};
    if (direct()) {
      const auto windows = static_cast<int>(s.rounds.windows.size());
      if (status st = add_returned(last); !st.ok()) return st;
      if (status st = add_window_home(windows - 1); !st.ok()) return st;
      if (status st = send_window_home(windows); !st.ok()) return st;
      return add_window_home(windows);
    }
    const route& way = s.rounds.home_sums;
    if (way.incoming().empty() && way.outgoing().empty()) return {};
    const kv_views sums = summed(last);
    const index_t rows = way.incoming().empty() ? 0 : way.incoming().front().rows();
    const kv_views back = views(m.staging, rows, s.own.kv_heads);
    if (status st = this->launch(base::gradients_group, {"dK/dV home", last + 2},
                                 [&](auto& g) {
                                   post_copy(g, this->ring, way, array_of(sums.first), array_of(back.first));
                                   post_copy(g, this->ring, way, array_of(sums.second), array_of(back.second));
                                 });
        !st.ok())
      return st;
    if (status st = this->wait(base::gradients_group); !st.ok()) return st;
    add_up<float, float>(work, 0, s.rounds.own_home_sums, array_of(own.first), array_of(back.first), nullptr);
    add_up<float, float>(work, 0, s.rounds.own_home_sums, array_of(own.second), array_of(back.second), nullptr);
    return {};
  }

  /// dq: finished here; back to the rows' owners, joint ones to everybody.
  status give_queries(const backward_arguments<T, Out, Grad>& a) {
    const write how = this->options().gradients;
    if (!this->grouped()) {
      store(a.dq, dq_view(0), how);
    } else {
      const rows_view<Grad> wire = this->dense_rows(m.dq_wire, s.own.q_rows, s.own.heads, n.head_dim);
      const rows_view<Grad> to =
          how == write::assign ? a.dq : this->dense_rows(m.dq_home, plan.q_rows_, n.heads, n.head_dim);
      store(wire, dq_view(0), write::assign);
      if (status st = this->carry(
              {"dQ heads out", 0}, [&](auto& g) { post_inverse(g, this->group, s.q_in, array_of(to), array_of(wire)); },
              [&] { copy_own_back(work, s.q_in, array_of(to), array_of(wire)); });
          !st.ok())
        return st;
      if (how == write::add) store(a.dq, to, how);
    }
    if (n.joint_q == 0) return {};
    const rows_view<Grad> all = this->dense_rows(m.dq_joint, n.joint_q, n.heads, n.head_dim);
    store(part_of(all, s.joint_q, s.heads), dq_view(1), write::assign);
    if (plan.team_.size() > 1)
      if (status st = this->carry(
              {"joint dQ", 0},
              [&](auto& g) {
                post_copy(g, plan.team_, s.joint_out, array_of(part_of(all, {0, n.joint_q}, s.heads)), array_of(all));
              },
              [] {});
          !st.ok())
        return st;
    store(a.joint.dq, all, how);
    return {};
  }

  /// dk, dv of my group's keys: every member's share of every head is summed by the row's owner.
  status give_keys(const backward_arguments<T, Out, Grad>& a) {
    kv_views sums = own;
    if (this->grouped()) {
      if (status st = this->carry(
              {"dK/dV heads out", 0},
              [&](auto& g) {
                post_add(g, this->group, s.kv_in, array_of(own.first), m.own_returns.k);
                post_add(g, this->group, s.kv_in, array_of(own.second), m.own_returns.v);
              },
              [] {});
          !st.ok())
        return st;
      sums = views(m.home, plan.kv_rows_, n.kv_heads);
      clear(sums);
      add_up<float, float>(work, s.group, s.kv_in, array_of(sums.first), array_of(own.first), m.own_returns.k);
      add_up<float, float>(work, s.group, s.kv_in, array_of(sums.second), array_of(own.second), m.own_returns.v);
    }
    store(a.dk, sums.first, this->options().gradients);
    store(a.dv, sums.second, this->options().gradients);
    return {};
  }

  /// dk, dv of the joint keys: my share only, or summed by the slices' owners and given to everybody.
  status give_joint_keys(const backward_arguments<T, Out, Grad>& a) {
    if (n.joint_kv == 0) return {};
    const write how = this->options().gradients;
    const kv_views share = views(m.joint, n.joint_kv, s.own.kv_heads);
    if (this->options().joint_gradient == joint_gradient::partial) {
      const interval rows{0, n.joint_kv};
      for (index_t b = 0; how == write::assign && b < n.batch; ++b) {
        work.zero(array_of(a.joint.dk).rows(b, 0, n.joint_kv, 1, 0, n.kv_heads));
        work.zero(array_of(a.joint.dv).rows(b, 0, n.joint_kv, 1, 0, n.kv_heads));
      }
      store(part_of(a.joint.dk, rows, s.kv_heads), share.first, how);
      store(part_of(a.joint.dv, rows, s.kv_heads), share.second, how);
      return {};
    }
    const kv_views sums = views(m.joint_sums, n.joint_kv, n.kv_heads);
    clear(sums);
    if (status st = this->carry(
            {"joint dK/dV", 0},
            [&](auto& g) {
              post_add(g, plan.team_, s.joint_sums, array_of(share.first), m.joint_returns.k);
              post_add(g, plan.team_, s.joint_sums, array_of(share.second), m.joint_returns.v);
            },
            [] {});
        !st.ok())
      return st;
    const int me = plan.team_.index();
    add_up<float, float>(work, me, s.joint_sums, array_of(sums.first), array_of(share.first), m.joint_returns.k);
    add_up<float, float>(work, me, s.joint_sums, array_of(sums.second), array_of(share.second), m.joint_returns.v);
    if (status st = this->carry(
            {"joint dK/dV", 1},
            [&](auto& g) {
              post_copy(g, plan.team_, s.joint_gather, array_of(sums.first), array_of(sums.first));
              post_copy(g, plan.team_, s.joint_gather, array_of(sums.second), array_of(sums.second));
            },
            [] {});
        !st.ok())
      return st;
    store(a.joint.dk, sums.first, how);
    store(a.joint.dv, sums.second, how);
    return {};
  }

 public:
  arrays m{};
  typename base::home_keys home{};
  rows_view<const T> q{}, dout{};
  heads_view<const float> lse{};
  heads_view<float> delta{}, joint_delta{};
  kv_views own{};
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
