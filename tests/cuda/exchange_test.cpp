// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exchanges whose copies and sums are the kernels of CUDA devices.
#include <doctest/doctest.h>

#include <tests/cuda/engine.hpp>
#include <tests/exchange/harness.hpp>

using seqpar::test::complaints;
using seqpar::test::on_kernels;

TEST_CASE("every verb and pair of layouts moves by kernels exactly what is wanted, and its adjoint is the transpose") {
  int turn = 0;
  for (const int ranks : {2, 3})
    for (const seqpar::index_t tokens : {5, 24}) {
      CAPTURE(ranks);
      CAPTURE(tokens);
      CHECK(exchange_test::broken_movements<seqpar::test::device_threads<on_kernels>>(tokens, ranks, ++turn) == "");
      CHECK(complaints() == "");
    }
  CHECK(exchange_test::broken_movements<seqpar::test::nccl_threads<on_kernels>>(
            24, std::min(3, seqpar::test::devices()), ++turn) == "");
  CHECK(complaints() == "");
}
