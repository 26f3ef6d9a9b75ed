// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The shortest way in: causal attention over a sequence that four ranks share.
// [snippet]
#include <cstdio>
#include <seqpar/seqpar.hpp>
#include <vector>

int main() {
  seqpar::run_ranks(4, [](seqpar::threads::transport world) {                  // or your own transport
    const auto team = seqpar::ring(world);                                     // who talks to whom
    const auto layout = seqpar::zigzag{.tokens = 1000, .ranks = team.size()};  // who owns which token
    auto plan =
        seqpar::plan_attention<float>(team, layout, seqpar::causal{}, {.heads = 4, .kv_heads = 2, .head_dim = 64});
    const seqpar::host_memory memory(plan.memory());
    plan.prepare(memory, seqpar::on_host{});

    const auto n = plan.q_rows();  // this rank's tokens: layout.global_of(team.index(), 0 … n−1)
    const auto filled = [&](int heads, float x) {
      return std::vector<float>(static_cast<std::size_t>(n * heads * 64), x);
    };
    std::vector<float> q = filled(4, .1f), k = filled(2, .1f), v = filled(2, 1), out = filled(4, 0), lse = filled(4, 0);
    const auto done = plan.forward({.q = seqpar::dense_view(q.data(), {1, n, 4, 64}),
                                    .k = seqpar::dense_view(k.data(), {1, n, 2, 64}),
                                    .v = seqpar::dense_view(v.data(), {1, n, 2, 64}),
                                    .out = seqpar::dense_view(out.data(), {1, n, 4, 64}),
                                    .lse = seqpar::dense_heads(lse.data(), {1, 4, n})},
                                   memory, seqpar::on_host{});
    std::printf("rank %d: %s, out[0] = %g\n", world.rank(), done.message().c_str(), out[0]);
  });
}
// [/snippet]
