// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A size left out: every layout's sizes are required.
// expect: a_required_option_is_missing
#include <seqpar/layout/zigzag.hpp>

#ifdef TWIN
constexpr auto layout = seqpar::zigzag{.tokens = 16, .ranks = 4};
#else
constexpr auto layout = seqpar::zigzag{.ranks = 4};
#endif
