// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A second unit beside consumer.cpp.
#include <seqpar/seqpar.hpp>

seqpar::index_t tokens_of_other_unit();
seqpar::index_t tokens_of_other_unit() {
  return seqpar::zigzag{.tokens = 16, .ranks = 4}.token_count();
}
