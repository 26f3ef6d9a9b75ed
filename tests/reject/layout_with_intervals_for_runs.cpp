// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout whose for_each_run hands out intervals.
// expect: [seqpar] for_each_run calls f(seqpar::run{first, count, step})
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/explain.hpp>

struct mine : seqpar::contiguous {
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const seqpar::index_t first = global_of(rank, 0), count = count_of(rank);
#ifdef TWIN
    f(seqpar::run{first, count, 1});
#else
    f(seqpar::interval{first, first + count});
#endif
  }
};
static_assert(seqpar::explain_layout<mine>());
