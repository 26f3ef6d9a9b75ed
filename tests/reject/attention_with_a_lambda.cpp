// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lambda where a mask is meant.
// expect: [seqpar] a mask needs: constexpr bool allows(index_t q, index_t k) const
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/transport/self.hpp>

struct past {
  constexpr bool allows(seqpar::index_t q, seqpar::index_t k) const { return k <= q; }
};

int main() {
  const seqpar::contiguous layout{.tokens = 8, .ranks = 1};
#ifdef TWIN
  const past mask;
#else
  const auto mask = [](seqpar::index_t q, seqpar::index_t k) { return k <= q; };
#endif
  (void)seqpar::plan_attention<float>(seqpar::ring(seqpar::self{}), layout, layout, mask,
                                      {.heads = 1, .kv_heads = 1, .head_dim = 4}, {.passes = seqpar::forward_backward});
}
