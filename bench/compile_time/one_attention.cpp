// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One attention, forward and backward, as an engine would instantiate it: scripts/bench compile-time compiles it.
#include <seqpar/seqpar.hpp>

using plan_type = seqpar::attention_plan<float, seqpar::causal, seqpar::threads::transport>;

seqpar::status step(seqpar::threads::transport world, const plan_type::forward_type& there,
                    const plan_type::backward_type& back) {
  auto plan = seqpar::plan_attention<float>(seqpar::ring(world), seqpar::zigzag{.tokens = 1000, .ranks = world.size()},
                                            seqpar::causal{}, {.heads = 4, .kv_heads = 2, .head_dim = 64},
                                            {.passes = seqpar::forward_backward});
  const seqpar::host_memory memory(plan.memory());
  plan.prepare(memory, seqpar::on_host{});
  if (const seqpar::status s = plan.forward(there, memory, seqpar::on_host{}); !s.ok()) return s;
  return plan.backward(back, memory, seqpar::on_host{});
}
