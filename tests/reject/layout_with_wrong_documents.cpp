// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An optional member whose result is not what is asked for would never be called.
// expect: [seqpar] document_at is: constexpr seqpar::interval document_at(index_t global) const
#include <seqpar/layout/explain.hpp>
#include <seqpar/layout/zigzag.hpp>

struct by_tens : seqpar::zigzag {
#ifdef TWIN
  constexpr seqpar::interval document_at(seqpar::index_t global) const {
    return {global / 10 * 10, global / 10 * 10 + 10};
  }
#else
  constexpr seqpar::index_t document_at(seqpar::index_t global) const {
    return global / 10;
  }
#endif
};
static_assert(seqpar::explain_layout<by_tens>());
