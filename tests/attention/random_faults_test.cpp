// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <tests/support/random_faults.hpp>

namespace seqpar::test {

TEST_CASE("200 random faults: whoever waits is told in time, and the ranks are right again afterwards [J5] [J6]") {
  CHECK(fault_among<host_fast, host_site>(1, 201, [](const threads::transport& t) { return t; }) == "");
}

}  // namespace seqpar::test
