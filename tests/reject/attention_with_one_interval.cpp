// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: [seqpar] key_intervals is: constexpr interval_pair key_intervals(index_t q) const
// A plan would ask this mask key by key, and nobody would know.
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/transport/self.hpp>

using namespace seqpar;

struct past {
  bool allows(index_t q, index_t k) const { return k <= q; }
#ifdef TWIN
  interval_pair key_intervals(index_t q) const {
    return make_intervals({0, q + 1});
  }
#else
  interval key_intervals(index_t q) const {
    return {0, q + 1};
  }
#endif
};

void plan() {
  plan_attention<float>(ring(self{}), contiguous{.tokens = 4, .ranks = 1}, past{},
                        {.heads = 1, .kv_heads = 1, .head_dim = 8});
}
