// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: [seqpar] a mask needs: constexpr bool allows(index_t q, index_t k) const
#include <seqpar/mask/explain.hpp>

struct every_other {
#ifdef TWIN
  constexpr bool allows(seqpar::index_t q, seqpar::index_t k) const {
    return (q - k) % 2 == 0;
  }
#else
  constexpr bool allows(seqpar::index_t q, seqpar::index_t k) {
    return (q - k) % 2 == 0;
  }  // not const
#endif
};
static_assert(seqpar::explain_mask<every_other>());
