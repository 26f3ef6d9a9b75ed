// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Forward and backward on packed documents that change from step to step, in memory that does not.
#include <cstdio>
#include <seqpar/seqpar.hpp>
#include <vector>

int main() {
  seqpar::run_ranks(4, [](seqpar::threads::transport world) {
    using namespace seqpar;
    const auto documents_of = [](const std::vector<index_t>& bounds) {
      return within{documents{bounds}, all_of{causal{}, window{.left = 99, .right = 0}}};
    };
    // [snippet]
    const mesh team(world, {.ring = 2, .all_to_all = 2});
    std::vector<index_t> bounds = pack({700, 200, 100});  // three documents in one row
    const nested layout{zigzag{.tokens = bounds.back(), .ranks = 2}, contiguous{.tokens = 0, .ranks = 2}};

    auto plan = plan_attention<bfloat16>(team, layout, documents_of(bounds),
                                         {.batch = 1, .heads = 6, .kv_heads = 2, .head_dim = 64},
                                         {.passes = forward_backward, .capacity = {.tokens_per_rank = 300}});
    const host_memory memory(plan.memory());  // by kind: tables, scratch, exchange, saved
    plan.prepare(memory, on_host{});          // once, all ranks together

    for (int step = 0; step < 3; ++step) {
      const index_t n = plan.q_rows();
      const auto filled = [&](index_t heads) {
        return std::vector<bfloat16>(static_cast<std::size_t>(n * heads * 64), bfloat16(.5f));
      };
      std::vector<bfloat16> q = filled(6), out = q, dout = q, dq = q, k = filled(2), v = k, dk = k, dv = k;
      std::vector<float> lse(static_cast<std::size_t>(n * 6));
      const auto wide = [&](auto& x) { return dense_view(x.data(), {1, n, 6, 64}); };
      const auto narrow = [&](auto& x) { return dense_view(x.data(), {1, n, 2, 64}); };
      const auto numbers = dense_heads(lse.data(), {1, 6, n});
      check(plan.forward({.q = wide(q), .k = narrow(k), .v = narrow(v), .out = wide(out), .lse = numbers}, memory,
                         on_host{}));
      check(plan.backward({.q = wide(q),
                           .k = narrow(k),
                           .v = narrow(v),
                           .out = wide(out),
                           .lse = numbers,
                           .dout = wide(dout),
                           .dq = wide(dq),
                           .dk = narrow(dk),
                           .dv = narrow(dv)},
                          memory, on_host{}));

      bounds = pack({300 + step, 500, 150});  // the next step's documents, another token count too
      const nested next{zigzag{.tokens = bounds.back(), .ranks = 2}, contiguous{.tokens = 0, .ranks = 2}};
      plan.update(next, documents_of(bounds), memory);  // new tables, same memory
    }
    // [/snippet]
    std::printf("rank %d: three steps done\n", world.rank());
  });
}
