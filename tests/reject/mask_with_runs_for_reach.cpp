// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask whose reach hands out runs.
// expect: [seqpar] reach calls f(seqpar::interval{lo, hi})
#include <seqpar/mask/explain.hpp>

struct first_half {
  seqpar::index_t half;
  constexpr bool allows(seqpar::index_t, seqpar::index_t k) const { return k < half; }
  template <class F>
  constexpr void reach(seqpar::interval, F&& f) const {
#ifdef TWIN
    f(seqpar::interval{0, half});
#else
    f(seqpar::run{0, half, 1});
#endif
  }
};
static_assert(seqpar::explain_mask<first_half>());
