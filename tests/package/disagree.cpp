// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user without exceptions whose ranks disagree: an error comes back on every rank, and the process goes on.
#include <atomic>
#include <cstdio>
#include <seqpar/seqpar.hpp>

int main() {
  std::atomic<int> attention = 0, exchange = 0;
  seqpar::run_ranks(2, [&](seqpar::threads::transport world) {
    const auto team = seqpar::ring(world);
    const auto layout = seqpar::contiguous{.tokens = 8, .ranks = 2};
    auto plan = seqpar::try_plan_attention<float>(team, layout, seqpar::causal{},
                                                  {.heads = 1 + world.rank(), .kv_heads = 1, .head_dim = 4});
    if (!plan) return;
    const seqpar::host_memory memory(plan.value().memory());
    if (const seqpar::failure f = plan.value().try_prepare(memory, seqpar::on_host{}))
      attention += f->code() == seqpar::errc::ranks_disagree;
    auto gather = seqpar::try_plan_gather(team, layout, {.row_bytes = 4 + 4 * world.rank()});
    if (!gather) return;
    const seqpar::host_memory more(gather.value().memory());
    if (const seqpar::failure f = gather.value().try_prepare(more, seqpar::on_host{}))
      exchange += f->code() == seqpar::errc::ranks_disagree;
  });
  std::printf("%d and %d ranks were told\n", attention.load(), exchange.load());
  return attention == 2 && exchange == 2 ? 0 : 1;
}
