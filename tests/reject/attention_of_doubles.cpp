// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention of a type that is no element.
// expect: [seqpar] elements are float, seqpar::float16 or seqpar::bfloat16
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/transport/self.hpp>

#ifdef TWIN
using number = seqpar::bfloat16;
#else
using number = double;
#endif

int main() {
  const seqpar::contiguous layout{.tokens = 8, .ranks = 1};
  (void)seqpar::plan_attention<number>(seqpar::ring(seqpar::self{}), layout, seqpar::causal{},
                                       {.heads = 1, .kv_heads = 1, .head_dim = 4});
}
