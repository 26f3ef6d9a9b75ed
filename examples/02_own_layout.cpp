// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Your own layout in 15 lines: tokens dealt like a snake, 0 1 2 3 | 3 2 1 0 | 0 1 2 3 | …, which balances causal work
// to within one row, whatever the number of tokens. Returns 0 when the layout keeps the laws.
#include <cstdio>
#include <seqpar/layout/explain.hpp>
#include <seqpar/layout/laws.hpp>

// [snippet]
struct snake {
  seqpar::extent tokens, ranks;

  // Row i of a rank lies in sweep i; odd sweeps run backwards.
  constexpr seqpar::index_t seat(seqpar::index_t rank, seqpar::index_t sweep) const {
    return sweep % 2 == 0 ? rank : ranks - 1 - rank;
  }
  constexpr seqpar::index_t token_count() const { return tokens; }
  constexpr int rank_count() const { return static_cast<int>(ranks); }
  constexpr seqpar::index_t count_of(int rank) const {
    return tokens / ranks + (seat(rank, tokens / ranks) < tokens % ranks ? 1 : 0);
  }
  constexpr seqpar::index_t global_of(int rank, seqpar::index_t i) const { return i * ranks + seat(rank, i); }
  constexpr seqpar::place place_of(seqpar::index_t g) const {
    return {static_cast<int>(seat(g % ranks, g / ranks)), g / ranks};
  }
  friend constexpr bool operator==(const snake&, const snake&) = default;
};

static_assert(seqpar::explain_layout<snake>());  // names a missing member
static_assert(seqpar::broken_layout_law(snake{.tokens = 19, .ranks = 4}) == nullptr);
// [/snippet]

int main() {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (seqpar::index_t tokens = 0; tokens <= 40; ++tokens)
      if (const char* law = seqpar::broken_layout_law(snake{.tokens = tokens, .ranks = ranks})) {
        std::printf("%lld tokens over %d ranks: broken: %s\n", static_cast<long long>(tokens), ranks, law);
        return 1;
      }
  const snake layout{.tokens = 19, .ranks = 4};
  for (int rank = 0; rank < layout.rank_count(); ++rank) {
    std::printf("rank %d owns", rank);
    seqpar::index_t causal_pairs = 0;
    for (seqpar::index_t i = 0; i < layout.count_of(rank); ++i) {
      std::printf(" %2lld", static_cast<long long>(layout.global_of(rank, i)));
      causal_pairs += layout.global_of(rank, i) + 1;
    }
    std::printf("  and attends to %lld causal pairs\n", static_cast<long long>(causal_pairs));
  }
  return 0;
}
