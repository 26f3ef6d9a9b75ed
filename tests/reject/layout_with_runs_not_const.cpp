// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A for_each_run that is not const would be passed over for rows one by one.
// expect: [seqpar] for_each_run is: template <class F> constexpr void for_each_run(int rank, F&& f) const
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/explain.hpp>

struct mine : seqpar::contiguous {
  template <class F>
#ifdef TWIN
  constexpr void for_each_run(int rank, F&& f) const {
#else
  constexpr void for_each_run(int rank, F&& f) {
#endif
      f(seqpar::run{global_of(rank, 0), count_of(rank), 1});
}
}
;
static_assert(seqpar::explain_layout<mine>());
