// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout that views bounds which are gone at the semicolon.
// expect: a_view_must_not_outlive_its_table
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/documents.hpp>

int main() {
  const std::vector<seqpar::index_t> bounds = seqpar::pack({4, 4});
  const std::vector<seqpar::run> runs(2, seqpar::run{0, 8, 1});
  (void)runs;
#ifdef TWIN
  const seqpar::per_document layout{bounds, seqpar::zigzag{.tokens = 0, .ranks = 1}};
#else
  const seqpar::per_document layout{seqpar::pack({4, 4}), seqpar::zigzag{.tokens = 0, .ranks = 1}};
#endif
  return layout.problem() != nullptr;
}
