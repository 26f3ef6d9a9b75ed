// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: plans are moved, not copied
// g++ and clang++ show the line that forbids it.
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/transport/self.hpp>

using namespace seqpar;

void plan() {
  auto a = plan_attention<float>(ring(self{}), contiguous{.tokens = 4, .ranks = 1}, causal{},
                                 {.heads = 1, .kv_heads = 1, .head_dim = 8});
#ifdef TWIN
  auto b = std::move(a);
#else
  auto b = a;
#endif
}
