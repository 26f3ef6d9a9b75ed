// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention planned over a transport, where a mesh says who talks to whom.
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
  (void)seqpar::plan_attention<float>(team, layout, seqpar::causal{}, {.heads = 1, .kv_heads = 1, .head_dim = 4});
}
