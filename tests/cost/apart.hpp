// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several tests of costs compile alike, and therefore once: runs on paper in timeline_test.cpp.
#pragma once

#include <seqpar/cost/paper.hpp>
#include <tests/support/apart.hpp>

namespace seqpar::test {
using kernel_here = kernel_on_paper<host_fast>;
}
extern template struct seqpar::attention_apart<seqpar::bfloat16, seqpar::paper_transport, seqpar::on_paper,
                                               seqpar::test::kernel_here>;
