// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout whose place_of gives a pair instead of a seqpar::place.
// expect: [seqpar] a layout needs: constexpr seqpar::place place_of(index_t global) const
#include <seqpar/layout/explain.hpp>
#include <utility>

struct mine {
  constexpr seqpar::index_t token_count() const { return 4; }
  constexpr int rank_count() const { return 1; }
  constexpr seqpar::index_t count_of(int) const { return 4; }
  constexpr seqpar::index_t global_of(int, seqpar::index_t local) const { return local; }
#ifdef TWIN
  constexpr seqpar::place place_of(seqpar::index_t global) const {
    return {0, global};
  }
#else
  constexpr std::pair<int, seqpar::index_t> place_of(seqpar::index_t global) const {
    return {0, global};
  }
#endif
  friend constexpr bool operator==(const mine&, const mine&) = default;
};
static_assert(seqpar::explain_layout<mine>());
