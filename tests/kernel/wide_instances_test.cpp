// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles what the kernel tests run, once.
#include "harness.hpp"

namespace seqpar::test {

FOR_EVERY_CALL(INSTANCE, basic_host_fast<64>)

}  // namespace seqpar::test
