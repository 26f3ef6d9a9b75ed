// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The backward pass where queries move: they visit the keys, whose gradients stay, and dq goes home.
#pragma once

#include <seqpar/attention/visits.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// dq = own + what the members visited in rounds 1, 2, … have added, in this order; dk and dv are summed where the keys
/// lie. `Pass` is a backward_pass whose tensors are in place; own() computes round 0.
template <class Pass, class Own>
status backward_by_queries(const Pass& p, Own&& own) {
  using T = typename Pass::T;
  const auto& s = p.s;
  const auto& n = p.n;
  const auto slot = [&](std::ptrdiff_t i) -> const visitors<T>& { return p.m.visits[i % 2]; };
  const auto round = [&](std::ptrdiff_t i) -> const ring_round& {
    return s.visits.rounds[static_cast<std::size_t>(i)];
  };
  const auto rows = [&](auto* x, std::ptrdiff_t i, index_t dim) {
    return p.dense_rows(x, round(i).rows(), s.own.heads, dim);
  };
  const auto numbers = [&](float* x, std::ptrdiff_t i) {
    return dense_heads(x, {n.batch, s.own.heads, round(i).rows()});
  };
  return run_visits(
      p, "dQ",
      [&](auto& g, std::ptrdiff_t i) {
        const route& way = round(i).kv;
        post_copy(g, p.ring, way, array_of(p.q), array_of(rows(slot(i).q, i, n.head_dim)));
        post_copy(g, p.ring, way, array_of(p.dout), array_of(rows(slot(i).dout, i, n.v_dim())));
        post_copy(g, p.ring, way, array_of(p.lse), array_of(numbers(slot(i).lse, i)));
        post_copy(g, p.ring, way, array_of(p.delta), array_of(numbers(slot(i).delta, i)));
        post_sight(p, g, round(i), slot(i));
      },
      [&](std::ptrdiff_t i) -> status {
        if (i < 0) return own();
        const std::size_t part = static_cast<std::size_t>(i) + 2;
        const kv_segment<T> keys{p.home.k, p.home.v, p.tables().keys[part][0], p.own.first, p.own.second};
        backward_call<T> call;
        call.q = rows(slot(i).q, i, n.head_dim);
        call.dout = rows(slot(i).dout, i, n.v_dim());
        call.queries = slot(i).table(p.tables().queries[part], s.intervals, round(i).rows());
        call.segments = {&keys, 1};
        call.heads = p.heads();
        call.scale = p.scale();
        call.lse = numbers(slot(i).lse, i);
        call.delta = numbers(slot(i).delta, i);
        call.dq = rows(slot(i).dq, i, n.head_dim);
        call.workspace = p.m.workspace;
        if (call.q.elements() == 0) return {};
        p.clear(call.dq);
        return p.compute_with_mask([&](const auto& mask) { return p.attend_backward(call, mask); });
      },
      [&](auto& g, std::ptrdiff_t i) {
        post_add(g, p.ring, round(i).kv, array_of(rows(slot(i).dq, i, n.head_dim)), p.m.returned);
      },
      [&](const route& way) {
        const row_array dq = array_of(p.dq_view(0));
        add_up<float, float>(p.work, s.ring, way, dq, dq, p.m.returned);
      });
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
