// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention for files that do not want to compile it themselves.
// [snippet]
#pragma once
#include <seqpar/seqpar.hpp>

extern template struct seqpar::planning_apart<>;
extern template struct seqpar::attention_apart<float, seqpar::threads::transport>;
// [/snippet]
