// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding planned over a transport, where a mesh says who talks to whom.
// expect: [seqpar] a plan takes a mesh, not a transport: give ring(world), all_to_all(world) or
#include <seqpar/attention/decode.hpp>
#include <seqpar/transport/self.hpp>

int main() {
  const seqpar::self world;
#ifdef TWIN
  const seqpar::mesh team = seqpar::ring(world);
#else
  const seqpar::self& team = world;
#endif
  (void)seqpar::plan_decode<float>(team, {.heads = 1, .kv_heads = 1, .head_dim = 4, .cache_rows = 8});
}
