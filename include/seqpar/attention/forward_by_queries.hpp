// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forward pass where queries move: they visit the keys, and their states are merged at home.
#pragma once

#include <seqpar/attention/visits.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// state = own ⊕ what the members visited in rounds 1, 2, … have seen, in this order; out and lse from it.
/// `Pass` is a forward_pass that knows where its tensors lie.
template <class Pass>
class forward_by_queries {
 public:
  explicit forward_by_queries(const Pass& pass) : p_(pass) {}

  /// Do states of this member's queries come back?
  static bool any_return(const attention_setup& s) {
    for (const ring_round& r : s.visits.rounds)
      if (!r.kv.outgoing().empty()) return true;
    return false;
  }

  /// own() attends this member's queries to what is here.
  template <class Own>
  status run(Own&& own) const {
    const auto attend = [&](const auto& call, const auto& mask) { return p_.attend_forward(call, mask); };
    const auto post = [&](auto& g, std::ptrdiff_t i) {
      const state_rows part = state_of(i);
      post_add(g, p_.ring, at(i).kv, array_of(part.acc), p_.m.returned.acc);
      post_add(g, p_.ring, at(i).kv, array_of(part.max), p_.m.returned.max);
      post_add(g, p_.ring, at(i).kv, array_of(part.sum), p_.m.returned.sum);
    };
    const status st = run_visits(
        p_, "partials",
        [&](auto& g, std::ptrdiff_t i) {
          post_copy(g, p_.ring, at(i).kv, array_of(p_.q), array_of(q_of(i)));
          post_sight(p_, g, at(i), slot(i));
        },
        [&](std::ptrdiff_t i) { return i < 0 ? own() : visit(i, attend); }, post,
        [&](const route& way) { merge(way); });
    return st.ok() && any_return(p_.s) ? finish(attend) : st;
  }

  /// f(call, mask) for all calls but those of round −1.
  template <class F>
  status show(F&& f) const {
    for (std::ptrdiff_t i = 0; i < std::ssize(p_.s.visits.rounds); ++i)
      if (status st = at(i).rows() > 0 ? visit(i, f) : status{}; !st.ok()) return st;
    return any_return(p_.s) ? finish(f) : status{};
  }

 private:
  using T = typename Pass::T;
  using Out = typename Pass::Out;

  /// f(call, mask) for the call of visitors of round i.
  template <class F>
  status visit(std::ptrdiff_t i, F&& f) const {
    const auto& keys = p_.tables().keys[part(i)];
    const kv_segment<T> own{p_.home.k, p_.home.v, keys[0], {}, {}};
    auto call = call_of(q_of(i), part(i));
    call.queries = slot(i).table(call.queries, p_.s.intervals, at(i).rows());
    call.segments = {&own, 1};
    call.out_kind = state_out::carry;
    call.state = slot(i).state;
    call.out = p_.dense_rows(static_cast<Out*>(nullptr), call.q.tokens(), call.q.heads(), p_.n.v_dim());
    return give(call, f);
  }
  /// The same for the call that makes out and lse of the merged states: no key is left to see.
  template <class F>
  status finish(F&& f) const {
    auto call = call_of(p_.q, 0);
    call.in = state_in::carry;
    call.state = p_.m.state[0];
    call.out = p_.out;
    call.lse = p_.lse;
    return give(call, f);
  }

  static std::size_t part(std::ptrdiff_t i) { return static_cast<std::size_t>(i) + 2; }
  const ring_round& at(std::ptrdiff_t i) const { return p_.s.visits.rounds[static_cast<std::size_t>(i)]; }
  const visitors<T>& slot(std::ptrdiff_t i) const { return p_.m.visits[i % 2]; }
  rows_view<T> q_of(std::ptrdiff_t i) const {
    return p_.dense_rows(slot(i).q, at(i).rows(), p_.s.own.heads, p_.n.head_dim);
  }
  state_rows state_of(std::ptrdiff_t i) const {
    return slot(i).state.of(p_.n.batch, p_.s.own.heads, at(i).rows(), p_.n.v_dim());
  }
  forward_call<T, Out> call_of(const rows_view<const T>& q, std::size_t part) const {
    forward_call<T, Out> call;
    call.q = q;
    call.queries = p_.tables().queries[part];
    call.heads = p_.heads();
    call.scale = p_.scale();
    call.workspace = p_.m.workspace;
    return call;
  }
  template <class F>
  status give(const forward_call<T, Out>& call, F&& f) const {
    if (call.q.elements() == 0) return {};
    return p_.compute_with_mask([&](const auto& mask) { return f(call, mask); });
  }
  /// What post_add brought of a round: the states of one leg after another, [batch][rows][heads] each.
  void merge(const route& way) const {
    const index_t batch = p_.n.batch, heads = p_.s.own.heads, dim = p_.n.v_dim();
    const state_rows own = p_.m.state[0].of(batch, heads, p_.s.own.q_rows, dim);
    state_view at = p_.m.returned;
    for (const leg& l : way.outgoing()) {
      const index_t rows = l.rows(), numbers = batch * rows * heads;
      const auto number = [&](float* x) {
        return heads_view<float>{x, {batch, heads, rows}, {rows * heads, 1, heads}};
      };
      const state_rows back{p_.dense_rows(at.acc, rows, heads, dim), number(at.max), number(at.sum)};
      index_t first = 0;
      for (const stretch& t : l.stretches)
        for (index_t o = 0; o < t.repeat; ++o, first += t.count)
          p_.work.merge(own.line(t.owner + o * t.owner_outer, t.owner_step, t.count), back.line(first, 1, t.count));
      at = {at.acc + numbers * dim, at.max + numbers, at.sum + numbers};
    }
  }

  const Pass& p_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
