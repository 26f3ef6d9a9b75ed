// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Forward and backward on packed documents that change from step to step, in memory that does not.
#include <cstdio>
#include <seqpar/seqpar.hpp>
#include <vector>

int main() {
  seqpar::run_ranks(4, [](seqpar::threads::transport world) {
    // [snippet]
    namespace sp = seqpar;
    const sp::mesh team(world, {.ring = 2, .all_to_all = 2});
    const auto layout_of = [](sp::index_t tokens) {
      return sp::nested{sp::zigzag{.tokens = tokens, .ranks = 2}, sp::contiguous{.tokens = 0, .ranks = 2}};
    };
    const auto mask_of = [](const std::vector<sp::index_t>& bounds) {  // causal, 100 keys, inside each document
      return sp::within{sp::documents{bounds}, sp::all_of{sp::causal{}, sp::window{.left = 99, .right = 0}}};
    };
    std::vector<sp::index_t> bounds = sp::pack({700, 200, 100});  // three documents in one row

    auto plan = sp::plan_attention<sp::bfloat16>(
        team, layout_of(bounds.back()), mask_of(bounds), {.batch = 1, .heads = 6, .kv_heads = 2, .head_dim = 64},
        {.passes = sp::forward_backward, .capacity = {.tokens_per_rank = 300}});
    const sp::host_memory memory(plan.memory());  // by kind: tables, scratch, exchange, saved
    plan.prepare(memory, sp::on_host{});          // once, all ranks together

    for (int step = 0; step < 3; ++step) {
      const sp::index_t n = plan.q_rows();
      const auto filled = [&](sp::index_t heads) {
        return std::vector<sp::bfloat16>(static_cast<std::size_t>(n * heads * 64), sp::bfloat16(.5f));
      };
      std::vector<sp::bfloat16> q = filled(6), out = q, dout = q, dq = q, k = filled(2), v = k, dk = k, dv = k;
      std::vector<float> lse(static_cast<std::size_t>(n * 6));
      const auto wide = [&](auto& x) { return sp::dense_view(x.data(), {1, n, 6, 64}); };
      const auto narrow = [&](auto& x) { return sp::dense_view(x.data(), {1, n, 2, 64}); };
      const auto numbers = sp::dense_heads(lse.data(), {1, 6, n});
      sp::check(plan.forward({.q = wide(q), .k = narrow(k), .v = narrow(v), .out = wide(out), .lse = numbers}, memory,
                             sp::on_host{}));
      sp::check(plan.backward({.q = wide(q),
                               .k = narrow(k),
                               .v = narrow(v),
                               .out = wide(out),
                               .lse = numbers,
                               .dout = wide(dout),
                               .dq = wide(dq),
                               .dk = narrow(dk),
                               .dv = narrow(dv)},
                              memory, sp::on_host{}));

      bounds = sp::pack({300 + step, 500, 150});  // the next step's documents, another token count too
      plan.update(layout_of(bounds.back()), mask_of(bounds), memory);  // new tables, same memory
    }
    // [/snippet]
    std::printf("rank %d: three steps done\n", world.rank());
  });
}
