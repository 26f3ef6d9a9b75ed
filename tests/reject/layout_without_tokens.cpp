// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No static_assert can speak here; the type's name, extent, is what leads to "an option that must be given".
// expect: extent
#include <seqpar/layout/zigzag.hpp>

#ifdef TWIN
constexpr auto layout = seqpar::zigzag{.tokens = 16, .ranks = 4};
#else
constexpr auto layout = seqpar::zigzag{.ranks = 4};
#endif
