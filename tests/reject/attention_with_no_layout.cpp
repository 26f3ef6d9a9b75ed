// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A number of tokens where a layout is meant.
// expect: [seqpar] a layout needs: constexpr index_t token_count() const;
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/transport/self.hpp>

int main() {
#ifdef TWIN
  const seqpar::contiguous layout{.tokens = 8, .ranks = 1};
#else
  const int layout = 8;
#endif
  (void)seqpar::plan_attention<float>(seqpar::ring(seqpar::self{}), layout, seqpar::causal{},
                                      {.heads = 1, .kv_heads = 1, .head_dim = 4});
}
