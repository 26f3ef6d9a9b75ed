// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: [seqpar] a layout needs: constexpr seqpar::place place_of(index_t global) const;
#include <seqpar/layout/explain.hpp>

struct all_on_one {
  seqpar::index_t tokens;
  constexpr seqpar::index_t token_count() const { return tokens; }
  constexpr int rank_count() const { return 1; }
  constexpr seqpar::index_t count_of(int) const { return tokens; }
  constexpr seqpar::index_t global_of(int, seqpar::index_t local) const { return local; }
#ifdef TWIN
  constexpr seqpar::place place_of(seqpar::index_t global) const {
    return {0, global};
  }
#endif
  friend constexpr bool operator==(const all_on_one&, const all_on_one&) = default;
};
static_assert(seqpar::explain_layout<all_on_one>());
