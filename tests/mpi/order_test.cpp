// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tests/mpi/engine.hpp>
#include <tests/support/small_rank.hpp>

TEST_CASE("both axes of a mesh over MPI in a loop, ranks late at random: no hang, and the same bits each time [O3]") {
  if (mpi_test::here().size() != 4) return;  // once is enough
  mpi_test::on_mpi{}.run({.ranks = 4}, [](seqpar::mpi::transport t) {
    seqpar::test::small_rank<seqpar::mpi::transport> rank(t, {2, 2});
    if (!seqpar::test::stays_the_same(rank, 300, t.rank()))
      seqpar::raise(seqpar::error(seqpar::errc::invalid_argument, "another result"));
  });
}
