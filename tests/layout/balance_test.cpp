// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many query-key pairs each rank attends to: what a layout is chosen for.
#include <doctest/doctest.h>
#include <algorithm>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include "tests/layout/shards.hpp"

using namespace seqpar;
using namespace layout_test;
using list = std::vector<index_t>;

namespace {
constexpr auto causal_pairs = [](index_t q, index_t k) { return k <= q; };

/// Teacher forcing over blocks, [clean 0 … B−1 ; noisy 0 … B−1]; bidirectional inside a block.
struct teacher_forcing_blocks {
  index_t blocks;
  bool operator()(index_t q, index_t k) const {
    const bool noisy_q = q >= blocks, noisy_k = k >= blocks;
    const index_t bq = q % blocks, bk = k % blocks;
    if (!noisy_q) return !noisy_k && bk <= bq;
    return noisy_k ? bk == bq : bk < bq;
  }
};
template <class L>
list block_pairs(const L& layout) {
  return pairs_of(layout, teacher_forcing_blocks{layout.token_count() / 2});
}
}  // namespace

TEST_CASE("causal pairs per rank are the published ones and follow the closed forms") {
  CHECK(pairs_of(contiguous{.tokens = 16, .ranks = 4}, causal_pairs) == list{10, 26, 42, 58});
  CHECK(pairs_of(zigzag{.tokens = 16, .ranks = 4}, causal_pairs) == list{34, 34, 34, 34});
  CHECK(pairs_of(striped{.tokens = 16, .ranks = 4}, causal_pairs) == list{28, 32, 36, 40});
  for (const index_t p : {1, 2, 3, 5, 8})
    for (const index_t each : {2, 4, 6}) {
      const index_t n = p * each;
      list front, even, turn;
      for (index_t r = 0; r < p; ++r) {
        front.push_back(each * r * each + each * (each + 1) / 2);
        even.push_back(n * (n + 1) / 2 / p);
        turn.push_back((r + 1) * each * (each + 1) / 2 + (p - 1 - r) * each * (each - 1) / 2);
      }
      CHECK(pairs_of(contiguous{.tokens = n, .ranks = p}, causal_pairs) == front);
      CHECK(pairs_of(zigzag{.tokens = n, .ranks = p}, causal_pairs) == even);
      CHECK(pairs_of(striped{.tokens = n, .ranks = p}, causal_pairs) == turn);
    }
}

TEST_CASE("paired contiguous balances noisy blocks but not attention") {
  CHECK(block_pairs(paired{contiguous{.tokens = 8, .ranks = 4}}) == list{6, 14, 22, 30});
  CHECK(block_pairs(paired{contiguous{.tokens = 12, .ranks = 4}}) == list{12, 30, 48, 66});
  CHECK(block_pairs(paired{contiguous{.tokens = 16, .ranks = 8}}) == list{6, 14, 22, 30, 38, 46, 54, 62});
}

TEST_CASE("clean then noisy cut contiguously balances neither") {
  CHECK(block_pairs(contiguous{.tokens = 16, .ranks = 4}) == list{10, 26, 10, 26});
}

TEST_CASE("paired zigzag and plain zigzag balance attention when 2P divides the blocks") {
  CHECK(block_pairs(paired{zigzag{.tokens = 8, .ranks = 4}}) == list(4, 18));
  CHECK(block_pairs(zigzag{.tokens = 16, .ranks = 4}) == list(4, 18));
  CHECK(block_pairs(paired{zigzag{.tokens = 16, .ranks = 8}}) == list(8, 34));
  CHECK(block_pairs(zigzag{.tokens = 32, .ranks = 8}) == list(8, 34));
}

TEST_CASE("paired zigzag of twelve blocks over four ranks attends to 30, 36, 42 and 48 block pairs") {
  CHECK(block_pairs(paired{zigzag{.tokens = 12, .ranks = 4}}) == list{30, 36, 42, 48});
}

TEST_CASE("every rank of a paired layout has as many noisy blocks as clean ones") {
  const auto noisy = [](const auto& layout) {
    list n;
    for (int rank = 0; rank < layout.rank_count(); ++rank) {
      const shard rows = rows_of(layout, rank);
      n.push_back(std::count_if(rows.begin(), rows.end(), [&](index_t g) { return g >= layout.token_count() / 2; }));
    }
    return n;
  };
  CHECK(noisy(paired{contiguous{.tokens = 8, .ranks = 4}}) == list{2, 2, 2, 2});
  CHECK(noisy(paired{zigzag{.tokens = 8, .ranks = 4}}) == list{2, 2, 2, 2});
  CHECK(noisy(zigzag{.tokens = 16, .ranks = 4}) == list{2, 2, 2, 2});
  CHECK(noisy(contiguous{.tokens = 16, .ranks = 4}) == list{0, 0, 4, 4});
  CHECK(noisy(paired{contiguous{.tokens = 12, .ranks = 4}}) == list{3, 3, 3, 3});
}

TEST_CASE("a granule keeps the balance of blocks at token level") {
  const index_t block = 3, clean = 12 * block;
  const teacher_forcing_blocks blocks{12};
  const auto allows = [&](index_t q, index_t k) { return blocks(q / block, k / block); };
  const paired layout{zigzag{.tokens = clean, .ranks = 4, .granule = block}};
  const index_t s = block * block;
  CHECK(pairs_of(layout, allows) == list{30 * s, 36 * s, 42 * s, 48 * s});
}
