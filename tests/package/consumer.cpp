// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The smallest user: which rank holds what, and what it may see.
#include <cstdio>
#include <seqpar/seqpar.hpp>

int main() {
  const auto layout = seqpar::zigzag{.tokens = 16, .ranks = 4};
  const auto mask = seqpar::bound(seqpar::causal{}, 16, 16);
  for (int rank = 0; rank < layout.rank_count(); ++rank)
    std::printf("rank %d holds %d tokens\n", rank, static_cast<int>(layout.count_of(rank)));
  return layout.place_of(15).rank == 0 && mask.allows(3, 3) && !mask.allows(3, 4) ? 0 : 1;
}
