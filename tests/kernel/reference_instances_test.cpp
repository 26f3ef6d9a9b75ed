// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles what the kernel tests run, once.
#include "harness.hpp"

namespace seqpar::test {

FOR_EVERY_CALL(INSTANCE, host_reference<float>)
FOR_EVERY_CALL(INSTANCE, host_reference<double>)

}  // namespace seqpar::test
