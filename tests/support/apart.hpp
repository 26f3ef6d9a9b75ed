// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the tests of many files compile alike, and therefore once: in apart.cpp. That headers are enough is shown by
// tests/package, the examples and the benches.
#pragma once

#include <seqpar/attention/apart.hpp>
#include <seqpar/transport/threads.hpp>

extern template struct seqpar::planning_apart<>;
extern template struct seqpar::attention_apart<float, seqpar::threads::transport>;
