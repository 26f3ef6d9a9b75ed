// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tests/mpi/engine.hpp>

#include <tests/exchange/harness.hpp>

using namespace exchange_test;
using mpi_test::here;
using mpi_test::on_mpi;

TEST_CASE("every verb and pair of layouts moves over MPI exactly what is wanted, and its adjoint is the transpose") {
  const int ranks = here().size();
  int turn = ranks;
  for (index_t tokens : {0, 5, 23, 40}) {
    CAPTURE(tokens);
    CHECK(broken_movements<on_mpi>(tokens, ranks, ++turn) == "");
  }
}

TEST_CASE("exchanges move between some of MPI's ranks, in any order of theirs [O1]") {
  const int world = here().size();
  if (world < 4) return;
  for (std::vector<int> ranks : {std::vector{2, 3}, {3, 1}, {0, 3}}) {
    const layouts every(12, 2);
    sweep_options o;
    o.ranks = ranks;
    o.world = world;
    CHECK(broken<float, on_mpi>(2, all_movements<on_mpi>(every, 2), o) == "");
  }
}
