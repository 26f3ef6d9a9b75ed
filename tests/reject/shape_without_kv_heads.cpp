// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A required option left out: no static_assert can speak there, but the name of the deleted constructor's argument.
// expect: a_required_option_is_missing
#include <seqpar/attention/shape.hpp>

#ifdef TWIN
const seqpar::attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 64};
#else
const seqpar::attention_shape shape{.heads = 4, .head_dim = 64};
#endif
