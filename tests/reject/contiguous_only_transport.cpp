// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that moves one piece of memory at a time, where strided blocks are handed over.
// expect: a transport with access contiguous_only must pack them itself and say strided
#include <seqpar/attention/plan.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/transport/self.hpp>

struct one_piece : seqpar::self {
#ifdef TWIN
  static constexpr auto access = seqpar::transport_access::strided;
#else
  static constexpr auto access = seqpar::transport_access::contiguous_only;
#endif
};

int main() {
  const seqpar::contiguous layout{.tokens = 8, .ranks = 1};
#ifndef GATHER
  (void)seqpar::try_plan_attention<float>(seqpar::ring(one_piece{}), layout, seqpar::causal{},
                                          {.heads = 1, .kv_heads = 1, .head_dim = 4});
#else
  (void)seqpar::try_plan_gather(seqpar::ring(one_piece{}), layout, {.row_bytes = 4});
#endif
}
