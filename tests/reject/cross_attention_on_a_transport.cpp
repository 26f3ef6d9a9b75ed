// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same with a layout each for queries and keys, and options.
// expect: [seqpar] a plan takes a mesh, not a transport: give ring(world), all_to_all(world) or
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/transport/self.hpp>

int main() {
  const seqpar::self world;
  const seqpar::contiguous layout{.tokens = 8, .ranks = 1};
#ifdef TWIN
  const seqpar::mesh team = seqpar::ring(world);
#else
  const seqpar::self& team = world;
#endif
  (void)seqpar::plan_attention<float, seqpar::bfloat16>(team, layout, layout, seqpar::causal{},
                                                        {.heads = 1, .kv_heads = 1, .head_dim = 4},
                                                        {.passes = seqpar::forward_only}, seqpar::host_fast{});
}
