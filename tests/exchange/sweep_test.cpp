// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What moves is what is wanted: every verb, every pair of layouts, every sense; elements and bytes.
#include <doctest/doctest.h>

#include <tests/exchange/harness.hpp>

using namespace exchange_test;

TEST_CASE("every verb and pair of layouts moves exactly what is wanted, and its adjoint is the transpose [H1]") {
  int turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t tokens : {0, 1, 5, 12, 23, 40}) {
      CAPTURE(ranks);
      CAPTURE(tokens);
      CHECK(broken_movements(tokens, ranks, ++turn) == "");
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
