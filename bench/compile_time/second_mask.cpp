// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One attention and, in the same file, another of another mask: scripts/bench compile-time compiles it.
#include "one_attention.cpp"

using windowed_type = seqpar::attention_plan<float, seqpar::window, seqpar::threads::transport>;

seqpar::status windowed_step(seqpar::threads::transport world, const windowed_type::forward_type& there,
                             const windowed_type::backward_type& back) {
  auto plan =
      seqpar::plan_attention<float>(seqpar::ring(world), seqpar::zigzag{.tokens = 1000, .ranks = world.size()},
                                    seqpar::window{.left = 100, .right = 0},
                                    {.heads = 4, .kv_heads = 2, .head_dim = 64}, {.passes = seqpar::forward_backward});
  const seqpar::host_memory memory(plan.memory());
  plan.prepare(memory, seqpar::on_host{});
  if (const seqpar::status s = plan.forward(there, memory, seqpar::on_host{}); !s.ok()) return s;
  return plan.backward(back, memory, seqpar::on_host{});
}
