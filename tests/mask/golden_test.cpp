// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks against written-out matrices and counts.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

using namespace seqpar;

namespace {

using rows = std::vector<std::string>;

/// One string per query: '1' for a key that it may see.
template <class M>
rows matrix(const M& unbound_mask, index_t q_tokens, index_t k_tokens) {
  const auto mask = bound(unbound_mask, q_tokens, k_tokens);
  rows out;
  for (index_t q = 0; q < q_tokens; ++q) {
    std::string row;
    for (index_t k = 0; k < k_tokens; ++k) row += mask.allows(q, k) ? '1' : '.';
    out.push_back(row);
  }
  return out;
}

template <class M>
std::vector<index_t> keys_per_row(const M& mask, index_t q_tokens, index_t k_tokens) {
  std::vector<index_t> out;
  for (const std::string& row : matrix(mask, q_tokens, k_tokens)) {
    index_t n = 0;
    for (const char c : row) n += c == '1';
    out.push_back(n);
  }
  return out;
}

template <class M>
index_t pairs(const M& mask, index_t q_tokens, index_t k_tokens) {
  index_t n = 0;
  for (const index_t keys : keys_per_row(mask, q_tokens, k_tokens)) n += keys;
  return n;
}

const rows four_blocks_rank_major = {"1.......", "11......", "..1.....", "1..1....",
                                     "11..1...", "11..11..", "11....1.", "11..1..1"};

/// The mask with queries and keys in the order C0 C1 N0 N1 C2 C3 N2 N3 of two ranks.
template <class M>
rows rank_major(const M& mask) {
  constexpr index_t order[] = {0, 1, 4, 5, 2, 3, 6, 7};
  rows out;
  for (const index_t q : order) {
    std::string row;
    for (const index_t k : order) row += mask.allows(q, k) ? '1' : '.';
    out.push_back(row);
  }
  return out;
}

/// The planted mistake: a noisy token sees the clean copy of its own block.
struct not_strict {
  teacher_forcing right;
  constexpr bool allows(index_t q, index_t k) const {
    const index_t m = right.clean;
    return right.allows(q, k) || (q >= m && k < m && (q - m) / right.block == k / right.block);
  }
};

}  // namespace

TEST_CASE("teacher forcing is the published matrix of four blocks on two ranks") {
  const teacher_forcing mask{.clean = 4, .block = 1};
  CHECK(rank_major(mask) == four_blocks_rank_major);
  CHECK(rank_major(not_strict{mask}) != four_blocks_rank_major);
}

TEST_CASE("teacher forcing with blocks of two is the printed matrix [P2]") {
  const rows expected = {"11......", "11......", "1111....", "1111....",
                         "....11..", "....11..", "11....11", "11....11"};
  CHECK(matrix(teacher_forcing{.clean = 4, .block = 2}, 8, 8) == expected);
  CHECK(matrix(not_strict{{.clean = 4, .block = 2}}, 8, 8) != expected);
}

TEST_CASE("teacher forcing with blocks of one, with a short last block and with one block [P2]") {
  CHECK(matrix(teacher_forcing{.clean = 4, .block = 1}, 8, 8) ==
        rows{"1.......", "11......", "111.....", "1111....", "....1...", "1....1..", "11....1.", "111....1"});
  CHECK(matrix(teacher_forcing{.clean = 4, .block = 3}, 8, 8) ==
        rows{"111.....", "111.....", "111.....", "1111....", "....111.", "....111.", "....111.", "111....1"});
  CHECK(matrix(teacher_forcing{.clean = 4, .block = 4}, 8, 8) ==
        rows{"1111....", "1111....", "1111....", "1111....", "....1111", "....1111", "....1111", "....1111"});
}

TEST_CASE("a pair of four frames of two tokens allows 2 2 4 4 6 6 8 8 keys in both halves [P1]") {
  const teacher_forcing mask{.clean = 8, .block = 2};
  CHECK(keys_per_row(mask, 16, 16) == std::vector<index_t>{2, 2, 4, 4, 6, 6, 8, 8, 2, 2, 4, 4, 6, 6, 8, 8});
  // Rank r of two holds frames 2r and 2r + 1 of both halves: 24 and 56 pairs; frames {0, 3} and {1, 2}: 40 and 40.
  const auto on_frames = [&](std::initializer_list<index_t> frames) {
    index_t n = 0;
    for (const index_t frame : frames)
      for (index_t q = 0; q < 16; ++q)
        if (q % 8 / 2 == frame) n += mask.key_intervals(q).size();
    return n;
  };
  CHECK(on_frames({0, 1}) == 24);
  CHECK(on_frames({2, 3}) == 56);
  CHECK(on_frames({0, 3}) == 40);
  CHECK(on_frames({1, 2}) == 40);
}

TEST_CASE("B blocks of c tokens allow c·c·B(B+1) pairs under teacher forcing") {
  CHECK(pairs(teacher_forcing{.clean = 4, .block = 1}, 8, 8) == 20);
  CHECK(pairs(teacher_forcing{.clean = 8, .block = 1}, 16, 16) == 72);
  CHECK(pairs(teacher_forcing{.clean = 8, .block = 2}, 16, 16) == 80);
  CHECK(pairs(teacher_forcing{.clean = 16, .block = 4}, 32, 32) == 320);
  CHECK(pairs(not_strict{{.clean = 4, .block = 1}}, 8, 8) != 20);
}

TEST_CASE("causal with unequal lengths ends at the last key, by option begins at the first [I1]") {
  const causal top_left{.align = alignment::top_left};
  CHECK(matrix(causal{}, 2, 5) == rows{"1111.", "11111"});
  CHECK(matrix(causal{}, 5, 2) == rows{"..", "..", "..", "1.", "11"});
  CHECK(keys_per_row(causal{}, 4, 12) == std::vector<index_t>{9, 10, 11, 12});
  CHECK(matrix(top_left, 2, 5) == rows{"1....", "11..."});
  CHECK(matrix(top_left, 5, 2) == rows{"1.", "11", "11", "11", "11"});
  CHECK(matrix(causal{}, 3, 3) == matrix(top_left, 3, 3));
}

TEST_CASE("a window of three keys before the diagonal shows keys q-3 to q [I2]") {
  const window mask{.left = 3, .right = 0};
  for (index_t q = 0; q < 12; ++q)
    for (index_t k = 0; k < 12; ++k) CHECK(mask.allows(q, k) == (q - 3 <= k && k <= q));
  CHECK(pairs(mask, 12, 12) == 4 * 12 - 6);
  CHECK(pairs(mask, 12, 12) != pairs(causal{}, 12, 12));
  CHECK(matrix(window{.left = 1, .right = 1}, 2, 5) == rows{"..111", "...11"});
  CHECK(matrix(window{.left = 1, .right = 1, .align = alignment::top_left}, 2, 5) == rows{"11...", "111.."});
}

TEST_CASE("five packed documents are five causal triangles [F1]") {
  const std::vector<index_t> bounds = pack({3, 4, 2, 5, 2});
  CHECK(bounds == std::vector<index_t>{0, 3, 7, 9, 14, 16});
  const auto mask = within{documents{bounds}, causal{}};
  CHECK(keys_per_row(mask, 16, 16) == std::vector<index_t>{1, 2, 3, 1, 2, 3, 4, 1, 2, 1, 2, 3, 4, 5, 1, 2});
  for (index_t q = 0; q < 16; ++q) CHECK(mask.key_intervals(q).second.empty());
  CHECK(mask.key_intervals(8) == interval_pair{{7, 9}, {}});
}

TEST_CASE("documents of 1, 7, 5 and 3 tokens keep to themselves [F2]") {
  const std::vector<index_t> bounds = pack({1, 7, 5, 3});
  const auto mask = within{documents{bounds}, causal{}};
  CHECK(keys_per_row(mask, 16, 16) == std::vector<index_t>{1, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 1, 2, 3});
  CHECK(mask.key_intervals(7) == interval_pair{{1, 8}, {}});
  CHECK_FALSE(mask.allows(8, 7));
}

TEST_CASE("a document without queries is seen by nobody [F3]") {
  const std::vector<index_t> q_bounds{0, 3, 3, 6}, k_bounds{0, 2, 4, 6};
  const documents docs{.q_bounds = q_bounds, .k_bounds = k_bounds};
  CHECK(docs.problem() == nullptr);
  const rows expected = {"11....", "11....", "11....", "....11", "....11", "....11"};
  CHECK(matrix(docs, 6, 6) == expected);
  CHECK(matrix(within{docs, full{}}, 6, 6) == expected);
  CHECK(matrix(within{docs, causal{}}, 6, 6) == rows{"......", "1.....", "11....", "......", "....1.", "....11"});
  const documents swapped{.q_bounds = k_bounds, .k_bounds = q_bounds};
  CHECK(keys_per_row(swapped, 6, 6) == std::vector<index_t>{3, 3, 0, 0, 3, 3});
}

TEST_CASE("sinks and a causal window inside documents are one line") {
  const std::vector<index_t> bounds = pack({6, 0, 4});
  const documents docs{bounds};
  const auto mask = within{docs, all_of{causal{}, any_of{first_keys{.count = 1}, window{.left = 1, .right = 0}}}};
  static_assert(interval_mask<within<all_of<causal, any_of<first_keys, window>>>>);
  CHECK(matrix(mask, 11, 11) == rows{"1..........", "11.........", "111........", "1.11.......", "1..11......",
                                     "1...11.....", "......1....", "......11...", "......111..", "......1.11.",
                                     "..........."});
}

TEST_CASE("padding is seen by nobody and sees nothing") {
  CHECK(matrix(valid{.queries = 2, .keys = 3}, 3, 4) == rows{"111.", "111.", "...."});
  CHECK(matrix(all_of{valid{.keys = 2}, causal{}}, 4, 4) == rows{"1...", "11..", "11..", "11.."});
}

TEST_CASE("indices of a dense mask are 64-bit [D2]") {
  static_assert(detail::dense_index(46340, 46340, 46341) == 2147488280);
  static_assert(detail::dense_index((index_t{8} * 28 - 1) * 4096 + 4095, 4095, 4096) == 3758096383);
  static_assert(causal{}.allows(46340, 46340) && !causal{}.allows(46340, 46341));
  constexpr index_t far_out = index_t{1} << 40;
  static_assert(causal{}.bound(1, far_out).key_intervals(0) == interval_pair{{0, far_out}, {}});
  static_assert(window{.left = 3, .right = 0}.key_intervals(far_out) == interval_pair{{far_out - 3, far_out + 1}, {}});
  static_assert(window{.left = unbounded, .right = unbounded}.covers({0, far_out}, {0, far_out}) == cover::all);
  static_assert(teacher_forcing{.clean = far_out, .block = 880}.key_intervals(far_out + 880) ==
                interval_pair{{0, 880}, {far_out + 880, far_out + 1760}});
  static_assert(all_of{causal{}, any_of{first_keys{.count = 4}, window{.left = 1, .right = 0}}}.key_intervals(
                    far_out) == interval_pair{{0, 4}, {far_out - 1, far_out + 1}});
}
