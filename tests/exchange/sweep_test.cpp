// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What moves is what is wanted: every verb, every pair of layouts, every sense; elements and bytes.
#include <doctest/doctest.h>

#include <tests/exchange/harness.hpp>

using namespace exchange_test;

TEST_CASE("every verb and pair of layouts moves exactly what is wanted, and its adjoint is the transpose [H1]") {
  int turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t tokens : {0, 1, 5, 12, 23, 40}) {
      const layouts every(tokens, ranks);
      CAPTURE(ranks);
      CAPTURE(tokens);
      sweep_options o;
      ++turn;
      o.batch = 1 + turn % 2;
      o.columns = 1 + turn % 3;
      o.gap = turn % 2 == 0 ? 0 : 8;
      const auto list = all_movements(every, ranks, o.columns);
      if (turn % 3 == 0) CHECK(broken<float>(ranks, list, o) == "");
      if (turn % 3 == 1) CHECK(broken<bfloat16>(ranks, list, o) == "");
      if (turn % 3 == 2) CHECK(broken<float16>(ranks, list, o) == "");
    }
}

TEST_CASE("a batch of no items, and rows dealt over fewer tokens than ranks, move nothing wrong") {
  for (index_t tokens : {0, 1, 3}) {
    const layouts every(tokens, 4);
    sweep_options o;
    o.batch = tokens == 3 ? 0 : 1;
    CHECK(broken<float>(4, all_movements(every, 4), o) == "");
  }
}
