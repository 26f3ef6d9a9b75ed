// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two masks planned and run by what apart.cpp compiles. All keys score alike, so a query's out is the mean of what it
// sees, its lse the log of their number, and a key's gradient the sum of its shares.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <vector>

#include <tests/package/apart.hpp>

using namespace seqpar;

namespace {
constexpr index_t tokens = 40, dim = 8;

template <class Mask>
int wrong_values(threads::transport world, const Mask& mask, index_t seen) {
  const zigzag layout{.tokens = tokens, .ranks = world.size()};
  const auto count = [&](index_t query) { return static_cast<float>(std::min(query + 1, seen)); };
  auto plan = plan_attention<float>(ring(world), layout, mask, {.heads = 1, .kv_heads = 1, .head_dim = dim},
                                    {.passes = forward_backward});
  const host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  const index_t n = plan.q_rows();
  std::vector<float> zero(static_cast<std::size_t>(n * dim)), one(zero.size(), 1), v = zero, out = zero, dq = one,
                                                                                   dk = one, dv = zero;
  std::vector<float> lse(static_cast<std::size_t>(n));
  const auto token = [&](std::size_t i) { return layout.global_of(world.rank(), static_cast<index_t>(i) / dim); };
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(token(i));
  const auto view = [&](auto& x) { return dense_view(x.data(), {1, n, 1, dim}); };
  const auto sums = dense_heads(lse.data(), {1, 1, n});
  check(
      plan.forward({.q = view(zero), .k = view(zero), .v = view(v), .out = view(out), .lse = sums}, memory, on_host{}));
  check(plan.backward({.q = view(zero),
                       .k = view(zero),
                       .v = view(v),
                       .out = view(out),
                       .lse = sums,
                       .dout = view(one),
                       .dq = view(dq),
                       .dk = view(dk),
                       .dv = view(dv)},
                      memory, on_host{}));
  int wrong = 0;
  const auto expect = [&](float got, float wanted) { wrong += !(std::abs(got - wanted) < 1e-3f); };
  for (std::size_t i = 0; i < v.size(); ++i) {
    const index_t at = token(i);
    float shares = 0;
    for (index_t q = at; q < std::min(tokens, at + seen); ++q) shares += 1 / count(q);
    expect(out[i], static_cast<float>(at) - (count(at) - 1) / 2);
    expect(lse[i / dim], std::log(count(at)));
    expect(dv[i], shares);
    expect(dq[i], 0);
    expect(dk[i], 0);
  }
  return wrong;
}
}  // namespace

int main() {
  std::atomic<int> wrong = 0;
  run_ranks(2, [&](threads::transport world) {
    wrong += wrong_values(world, causal{}, tokens) + wrong_values(world, window{.left = 4, .right = 0}, 5);
  });
  std::printf("%d values are wrong\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
