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
    const layouts every(tokens, ranks);
    CAPTURE(tokens);
    sweep_options o;
    ++turn;
    o.batch = 1 + turn % 2;
    o.columns = 1 + turn % 3;
    o.gap = turn % 2 == 0 ? 0 : 8;
    const auto list = all_movements<on_mpi>(every, ranks, o.columns);
    if (turn % 2 == 0) CHECK(broken<float, on_mpi>(ranks, list, o) == "");
    if (turn % 2 == 1) CHECK(broken<bfloat16, on_mpi>(ranks, list, o) == "");
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
