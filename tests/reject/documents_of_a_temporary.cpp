// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Documents that view bounds which are gone at the semicolon.
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
  const seqpar::documents mask{bounds};
#else
  const seqpar::documents mask{seqpar::pack({4, 4})};
#endif
  return mask.problem() != nullptr;
}
