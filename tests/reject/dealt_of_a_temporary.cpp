// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A view of a dealt layout that is gone at the semicolon.
// expect: a_view_must_not_outlive_its_table
#include <seqpar/cost/dealt.hpp>
#include <seqpar/layout/zigzag.hpp>

int main() {
  const seqpar::dealt layout = seqpar::dealt::from(seqpar::zigzag{.tokens = 8, .ranks = 2});
#ifdef TWIN
  const seqpar::segments view = layout.view();
#else
  const seqpar::segments view = seqpar::dealt(layout).view();
#endif
  return view.problem() != nullptr;
}
