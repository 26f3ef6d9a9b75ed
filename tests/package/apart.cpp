// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one file that compiles it.
// [snippet]
#include <seqpar/seqpar.hpp>

template struct seqpar::planning_apart<>;
template struct seqpar::attention_apart<float, seqpar::threads::transport>;
// [/snippet]
