// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Published index tables, row by row.
#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include "tests/layout/shards.hpp"

using namespace seqpar;
using namespace layout_test;
using shards = std::vector<shard>;

TEST_CASE("contiguous, zigzag and striped deal sixteen tokens over four ranks as published [G6]") {
  CHECK(shards_of(contiguous{.tokens = 16, .ranks = 4}) ==
        shards{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
  CHECK(shards_of(zigzag{.tokens = 16, .ranks = 4}) ==
        shards{{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}});
  CHECK(shards_of(striped{.tokens = 16, .ranks = 4}) ==
        shards{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
}

TEST_CASE("rotary positions of packed documents restart at each document [G6]") {
  const std::array<index_t, 3> bounds{0, 6, 16};
  const per_document layout{bounds, contiguous{.tokens = 0, .ranks = 4}};
  CHECK(time_of(layout, 5) == 5);
  CHECK(time_of(layout, 6) == 0);
  CHECK(time_of(layout, 15) == 9);
  const std::array<index_t, 5> with_empty{0, 0, 6, 6, 16};
  CHECK(time_of(per_document{with_empty, zigzag{.tokens = 0, .ranks = 4}}, 6) == 0);
}

TEST_CASE("eleven tokens over four ranks follow the uneven rule that was asked for") {
  using list = std::vector<index_t>;
  CHECK(counts_of(contiguous{.tokens = 11, .ranks = 4}) == list{3, 3, 3, 2});
  CHECK(counts_of(contiguous{.tokens = 11, .ranks = 4, .rule = uneven::last_takes_rest}) == list{2, 2, 2, 5});
  CHECK(counts_of(contiguous{.tokens = 11, .ranks = 4, .rule = uneven::ceil_each}) == list{3, 3, 3, 2});
  CHECK(counts_of(contiguous{.tokens = 9, .ranks = 4, .rule = uneven::ceil_each}) == list{3, 3, 3, 0});
  CHECK(counts_of(striped{.tokens = 11, .ranks = 4}) == list{3, 3, 3, 2});
}

TEST_CASE("zigzag of eleven tokens keeps its odd pieces [B2]") {
  CHECK(shards_of(zigzag{.tokens = 11, .ranks = 2}) == shards{{0, 1, 2, 9, 10}, {3, 4, 5, 6, 7, 8}});
  CHECK(shards_of(zigzag{.tokens = 11, .ranks = 4}) == shards{{0, 1, 10}, {2, 3, 9}, {4, 5, 8}, {6, 7}});
}

TEST_CASE("a sequence shorter than the number of pieces keeps every token [B6]") {
  CHECK(shards_of(contiguous{.tokens = 0, .ranks = 4}) == shards{{}, {}, {}, {}});
  CHECK(shards_of(contiguous{.tokens = 1, .ranks = 4}) == shards{{0}, {}, {}, {}});
  CHECK(shards_of(contiguous{.tokens = 3, .ranks = 4}) == shards{{0}, {1}, {2}, {}});
  CHECK(shards_of(zigzag{.tokens = 0, .ranks = 4}) == shards{{}, {}, {}, {}});
  CHECK(shards_of(zigzag{.tokens = 1, .ranks = 4}) == shards{{0}, {}, {}, {}});
  CHECK(shards_of(zigzag{.tokens = 3, .ranks = 4}) == shards{{0}, {1}, {2}, {}});
}

TEST_CASE("frames that do not divide are split as tokens, or kept whole when asked [B8]") {
  using list = std::vector<index_t>;
  CHECK(counts_of(contiguous{.tokens = 84, .ranks = 8}) == list{11, 11, 11, 11, 10, 10, 10, 10});
  CHECK(counts_of(contiguous{.tokens = 84, .ranks = 8, .granule = 4}) == list{12, 12, 12, 12, 12, 8, 8, 8});
}

TEST_CASE("zigzag shards in rank order are not the sequence, placed by position they are [F4]") {
  const zigzag layout{.tokens = 8, .ranks = 2};
  CHECK(joined(rows_of(layout, 0), rows_of(layout, 1)) == shard{0, 1, 6, 7, 2, 3, 4, 5});
  shard gathered(8, -1);
  for (int rank = 0; rank < 2; ++rank)
    for (const index_t x : rows_of(layout, rank)) gathered[static_cast<std::size_t>(x)] = x;
  CHECK(gathered == from_to(0, 7));
  const contiguous plain{.tokens = 8, .ranks = 2};
  CHECK(joined(rows_of(plain, 0), rows_of(plain, 1)) == from_to(0, 7));
}

TEST_CASE("nested<zigzag, contiguous> with all-to-all inside is USP's zigzag with low placement") {
  const auto usp = [](index_t n, index_t ring, index_t all_to_all) {
    return nested{zigzag{.tokens = n, .ranks = ring}, contiguous{.tokens = n, .ranks = all_to_all}};
  };
  CHECK(shards_of(usp(16, 2, 2)) == shards{from_to(0, 3), from_to(12, 15), from_to(4, 7), from_to(8, 11)});
  CHECK(shards_of(usp(32, 4, 2)) == shards{from_to(0, 3), from_to(28, 31), from_to(4, 7), from_to(24, 27),
                                           from_to(8, 11), from_to(20, 23), from_to(12, 15), from_to(16, 19)});
  CHECK(shards_of(usp(32, 2, 4)) == shards{from_to(0, 3), from_to(4, 7), from_to(24, 27), from_to(28, 31),
                                           from_to(8, 11), from_to(12, 15), from_to(16, 19), from_to(20, 23)});
}

TEST_CASE("nested<zigzag, contiguous> with the ring inside is USP's zigzag with high placement") {
  const nested high{zigzag{.tokens = 16, .ranks = 2}, contiguous{.tokens = 16, .ranks = 2}, axis::ring};
  CHECK(shards_of(high) == shards{from_to(0, 3), from_to(4, 7), from_to(12, 15), from_to(8, 11)});
}

TEST_CASE("an all-to-all group of three cuts pieces inside a chunk and its union is still the ring's share") {
  const zigzag ring{.tokens = 24, .ranks = 2};
  const nested usp{ring, contiguous{.tokens = 24, .ranks = 3}};
  CHECK(rows_of(usp, 1) == shard{4, 5, 18, 19});
  for (int r = 0; r < 2; ++r)
    CHECK(joined(rows_of(usp, 3 * r), rows_of(usp, 3 * r + 1), rows_of(usp, 3 * r + 2)) == rows_of(ring, r));
}

TEST_CASE("nested<striped, contiguous> is USP's strip") {
  const nested strip{striped{.tokens = 16, .ranks = 2}, contiguous{.tokens = 16, .ranks = 2}};
  CHECK(shards_of(strip) == shards{{0, 2, 4, 6}, {8, 10, 12, 14}, {1, 3, 5, 7}, {9, 11, 13, 15}});
}

TEST_CASE("for an even all-to-all degree every rank holds two consecutive of 2P chunks, as in LoongTrain") {
  for (const int all_to_all : {2, 4})
    for (const int ring : {1, 2, 4}) {
      const index_t chunk = 3, n = chunk * 2 * ring * all_to_all;
      const nested layout{zigzag{.tokens = n, .ranks = ring}, contiguous{.tokens = n, .ranks = all_to_all}};
      for (int rank = 0; rank < layout.rank_count(); ++rank) {
        const index_t first = layout.global_of(rank, 0);
        CHECK(first % (2 * chunk) == 0);
        CHECK(rows_of(layout, rank) == from_to(first, first + 2 * chunk - 1));
      }
    }
}

TEST_CASE("TransformerEngine's flat zigzag is zigzag over all ranks, and a permutation makes it the ring's zigzag") {
  const zigzag flat{.tokens = 16, .ranks = 8};  // one token a chunk
  CHECK(rows_of(flat, 0) == shard{0, 15});
  CHECK(rows_of(flat, 1) == shard{1, 14});
  CHECK(joined(rows_of(flat, 0), rows_of(flat, 1), rows_of(flat, 2), rows_of(flat, 3)) ==
        shard{0, 15, 1, 14, 2, 13, 3, 12});
  const auto permuted = [&](int group, int members, const std::vector<int>& order) {
    shard gathered, sorted;
    for (int u = 0; u < members; ++u) gathered = joined(gathered, rows_of(flat, group * members + u));
    for (const int i : order) sorted.push_back(gathered[static_cast<std::size_t>(i)]);
    return sorted;
  };
  CHECK(permuted(0, 2, {0, 2, 3, 1}) == rows_of(zigzag{.tokens = 16, .ranks = 4}, 0));
  CHECK(permuted(0, 4, {0, 2, 4, 6, 7, 5, 3, 1}) == shard{0, 1, 2, 3, 12, 13, 14, 15});
  for (int group = 0; group < 4; ++group)
    CHECK(permuted(group, 2, {0, 2, 3, 1}) == rows_of(zigzag{.tokens = 16, .ranks = 4}, group));
}

TEST_CASE("zigzag inside a mesh of all-to-all 4 and ring 2 gives every ring member ascending positions [O2]") {
  const nested layout{zigzag{.tokens = 16, .ranks = 2}, contiguous{.tokens = 16, .ranks = 4}};
  CHECK(shards_of(layout) == shards{{0, 1}, {2, 3}, {12, 13}, {14, 15}, {4, 5}, {6, 7}, {8, 9}, {10, 11}});
  for (int ring = 0; ring < 2; ++ring) {
    shard seen;
    for (int u = 0; u < 4; ++u) seen = joined(seen, rows_of(layout, layout.rank_at(ring, u)));
    CHECK(std::is_sorted(seen.begin(), seen.end()));
  }
}

TEST_CASE("ring_of, all_to_all_of and rank_at number the members as the published group lists do") {
  const auto group_of = [](axis inside, int ring, int all_to_all, int r) {
    const nested layout{zigzag{.tokens = 0, .ranks = ring}, contiguous{.tokens = 0, .ranks = all_to_all}, inside};
    std::vector<int> members;
    for (int u = 0; u < all_to_all; ++u) {
      const int rank = layout.rank_at(r, u);
      CHECK(layout.ring_of(rank) == r);
      CHECK(layout.all_to_all_of(rank) == u);
      members.push_back(rank);
    }
    return members;
  };
  using list = std::vector<int>;
  CHECK(group_of(axis::all_to_all, 4, 2, 1) == list{2, 3});
  CHECK(group_of(axis::ring, 4, 2, 1) == list{1, 5});
  CHECK(group_of(axis::all_to_all, 2, 4, 1) == list{4, 5, 6, 7});
  CHECK(group_of(axis::ring, 2, 4, 1) == list{1, 3, 5, 7});
}

TEST_CASE("packed zigzag cuts every document by itself") {
  const std::array<index_t, 5> bounds{0, 8, 16, 24, 40};
  const per_document layout{bounds, zigzag{.tokens = 0, .ranks = 4}};
  CHECK(shards_of(layout) == shards{{0, 7, 8, 15, 16, 23, 24, 25, 38, 39},
                                    {1, 6, 9, 14, 17, 22, 26, 27, 36, 37},
                                    {2, 5, 10, 13, 18, 21, 28, 29, 34, 35},
                                    {3, 4, 11, 12, 19, 20, 30, 31, 32, 33}});
  shard times;
  for (const index_t g : rows_of(layout, 0)) times.push_back(time_of(layout, g));
  CHECK(times == shard{0, 7, 0, 7, 0, 7, 0, 1, 14, 15});
}

TEST_CASE("a grid deals tiles of height times width with w fastest") {
  const auto tiles = [](index_t h, index_t w) {
    return shards_of(grid{.frames = 1, .height = 4, .width = 4, .split_h = h, .split_w = w});
  };
  CHECK(tiles(2, 2) == shards{{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}});
  CHECK(tiles(1, 4) == shards{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  CHECK(tiles(2, 4) == shards{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}});
}

TEST_CASE("a grid keeps t, h, w order inside a tile and every frame on every rank [N4]") {
  const grid layout{.frames = 2, .height = 4, .width = 6, .split_h = 2, .split_w = 2};
  CHECK(rows_of(layout, 1) == shard{3, 4, 5, 9, 10, 11, 27, 28, 29, 33, 34, 35});
  shard all = joined(rows_of(layout, 0), rows_of(layout, 1), rows_of(layout, 2), rows_of(layout, 3));
  CHECK(all != from_to(0, 47));  // tile-major
  std::sort(all.begin(), all.end());
  CHECK(all == from_to(0, 47));
}

TEST_CASE("height and width that do not divide give uneven tiles, the first larger [N5]") {
  const grid layout{.frames = 1, .height = 5, .width = 7, .split_h = 2, .split_w = 3};
  CHECK(layout.h_span(0) == interval{0, 3});
  CHECK(layout.h_span(3) == interval{3, 5});
  CHECK(layout.w_span(0) == interval{0, 3});
  CHECK(layout.w_span(1) == interval{3, 5});
  CHECK(layout.w_span(2) == interval{5, 7});
  CHECK(rows_of(layout, 4) == shard{24, 25, 31, 32});
}

TEST_CASE("near_square is LongCat's factor pair for every published size") {
  const index_t pairs[][3] = {{1, 1, 1},   {2, 1, 2},  {3, 1, 3},  {4, 2, 2},  {5, 1, 5},   {6, 2, 3},
                              {7, 1, 7},   {8, 2, 4},  {9, 3, 3},  {10, 2, 5}, {11, 1, 11}, {12, 3, 4},
                              {13, 1, 13}, {14, 2, 7}, {15, 3, 5}, {16, 4, 4}, {24, 4, 6},  {32, 4, 8}};
  for (const auto& p : pairs) CHECK(near_square(p[0]) == grid_split{p[1], p[2]});
}

TEST_CASE("near_square divides exactly the published latent shapes") {
  const auto ok = [](index_t h, index_t w) {
    std::vector<bool> fits;
    for (const index_t ranks : {2, 4, 6, 8, 16}) {
      const grid_split s = near_square(ranks);
      fits.push_back(h % s.h == 0 && w % s.w == 0);
    }
    return fits;
  };
  using list = std::vector<bool>;
  CHECK(ok(30, 52) == list{true, true, false, true, false});
  CHECK(ok(45, 80) == list{true, false, false, false, false});
  for (const auto& [h, w] : {std::pair{60, 104}, {44, 80}, {48, 80}, {32, 56}})
    CHECK(ok(h, w) == list{true, true, false, true, true});
  for (const auto& [h, w] : {std::pair{22, 40}, {90, 160}}) CHECK(ok(h, w) == list{true, true, false, true, false});
}

TEST_CASE("best_split finds a dividing split wherever there is one, landscape and portrait") {
  const auto is = [](index_t height, index_t width, index_t ranks, grid_split want) {
    CAPTURE(height);
    CAPTURE(width);
    CAPTURE(ranks);
    CHECK(best_split(height, width, ranks) == want);
  };
  is(45, 80, 4, {1, 4});
  is(45, 80, 6, {3, 2});
  is(45, 80, 8, {1, 8});
  is(45, 80, 16, {1, 16});
  is(22, 40, 16, {2, 8});
  is(90, 160, 16, {2, 8});
  is(30, 52, 3, {3, 1});
  is(30, 52, 6, {3, 2});
  is(60, 104, 3, {3, 1});
  is(60, 104, 6, {3, 2});
  is(52, 30, 8, {4, 2});
  is(52, 30, 12, {4, 3});
  is(80, 45, 2, {2, 1});
  is(80, 45, 4, {4, 1});
  is(80, 45, 8, {8, 1});
  is(80, 45, 12, {4, 3});
  is(80, 45, 16, {16, 1});
  is(8, 8, 8, {2, 4});  // of equals the one with fewer rows
  is(6, 6, 1, {1, 1});
}

TEST_CASE("best_split answers with uneven tiles where no split divides") {
  for (const auto& [height, width, ranks] :
       {std::array<index_t, 3>{30, 52, 16}, {44, 80, 3}, {44, 80, 6}, {44, 80, 12}, {7, 5, 11}, {1, 1, 6}}) {
    const grid_split best = best_split(height, width, ranks);
    CHECK(best.h * best.w == ranks);
    index_t least = height + width + 1;
    for (index_t h = 1; h <= ranks; ++h) {
      if (ranks % h != 0) continue;
      CHECK((height % h != 0 || width % (ranks / h) != 0));
      least = std::min(least, (height + h - 1) / h + (width + ranks / h - 1) / (ranks / h));
    }
    CHECK((height + best.h - 1) / best.h + (width + best.w - 1) / best.w == least);
  }
  CHECK(best_split(30, 52, 16) == grid_split{4, 4});
}

TEST_CASE("paired holds clean and noisy of the same frames at the same time positions [P1]") {
  const paired layout{contiguous{.tokens = 8, .ranks = 2, .granule = 2}};  // four frames of two tokens
  const auto times = [&](const auto& l, int rank) {
    shard t;
    for (const index_t g : rows_of(l, rank)) t.push_back(time_of(l, g));
    return t;
  };
  CHECK(times(layout, 1) == shard{4, 5, 6, 7, 4, 5, 6, 7});
  CHECK(rows_of(layout, 1) == shard{4, 5, 6, 7, 12, 13, 14, 15});
  const paired balanced{zigzag{.tokens = 8, .ranks = 2, .granule = 2}};
  CHECK(times(balanced, 0) == shard{0, 1, 6, 7, 0, 1, 6, 7});
  CHECK(times(balanced, 1) == shard{2, 3, 4, 5, 2, 3, 4, 5});
  // Allowed keys per row: noisy frame i sees clean frames < i and itself; pairs per rank follow.
  const auto allows = [](index_t q, index_t k) {
    const index_t fq = q % 8 / 2, fk = k % 8 / 2;
    return k < 8 ? (q < 8 ? fk <= fq : fk < fq) : (q >= 8 && fk == fq);
  };
  CHECK(pairs_of(layout, allows) == std::vector<index_t>{24, 56});
  CHECK(pairs_of(balanced, allows) == std::vector<index_t>{40, 40});
}

TEST_CASE("paired contiguous in rank order decodes as LongLive's balanced SP does") {
  for (const auto& [frames, tokens_per_frame, per_block, ranks] :
       {std::array<index_t, 4>{4, 1, 1, 2}, {8, 3, 2, 4}, {96, 2, 8, 4}}) {
    const index_t clean = frames * tokens_per_frame, local_frames = frames / ranks;
    const paired layout{contiguous{.tokens = clean, .ranks = ranks, .granule = tokens_per_frame * per_block}};
    index_t i = 0;
    for (int rank = 0; rank < layout.rank_count(); ++rank)
      for (const index_t g : rows_of(layout, rank)) {
        const index_t per_rank = 2 * local_frames * tokens_per_frame, j = i % per_rank;
        REQUIRE(i / per_rank == rank);
        REQUIRE(layout.is_noisy(g) == (j >= per_rank / 2));
        REQUIRE(time_of(layout, g) / tokens_per_frame == rank * local_frames + j % (per_rank / 2) / tokens_per_frame);
        ++i;
      }
    CHECK(i == 2 * clean);
  }
  // F = 4 over two ranks: C0 C1 N0 N1 | C2 C3 N2 N3 of [C0 … C3 ; N0 … N3].
  CHECK(shards_of(paired{contiguous{.tokens = 4, .ranks = 2}}) == shards{{0, 1, 4, 5}, {2, 3, 6, 7}});
}

TEST_CASE("reordered deals the new numbering") {
  const reordered layout{backwards{8}, zigzag{.tokens = 8, .ranks = 2}};
  CHECK(shards_of(layout) == shards{{7, 6, 1, 0}, {5, 4, 3, 2}});
  CHECK(layout.place_of(7) == place{0, 0});
}

TEST_CASE("segments give each rank the runs of the caller's table") {
  // Two-stage sharding: rank 0 has the first image and the text, rank 1 every other token of the rest.
  const std::array<run, 4> runs{{{0, 3, 1}, {8, 2, 1}, {3, 0, 1}, {7, 5, -1}}};
  const std::array<index_t, 4> offsets{0, 2, 4, 4};
  const segments layout{runs, offsets};
  CHECK(layout.problem() == nullptr);
  CHECK(shards_of(layout) == shards{{0, 1, 2, 8, 9}, {7, 6, 5, 4, 3}, {}});
  CHECK(layout.place_of(9) == place{0, 4});
  CHECK(layout.place_of(4) == place{1, 3});
  CHECK(layout.place_of(10) == place{-1, -1});
}
