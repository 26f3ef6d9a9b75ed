// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <seqpar/layout/pieces.hpp>
#include <vector>

using seqpar::index_t;
using seqpar::pieces;
using seqpar::uneven;

namespace {
std::vector<index_t> sizes(const pieces& cut) {
  std::vector<index_t> all;
  for (index_t i = 0; i < cut.count; ++i) all.push_back(cut.size_of(i));
  return all;
}
constexpr uneven rules[] = {uneven::first_get_more, uneven::last_takes_rest, uneven::ceil_each};
using list = std::vector<index_t>;
}  // namespace

TEST_CASE("eleven tokens over four pieces have the sizes of the public rules") {
  CHECK(sizes({11, 4}) == list{3, 3, 3, 2});
  CHECK(sizes({11, 4, 1, uneven::first_get_more}) == list{3, 3, 3, 2});
  CHECK(sizes({11, 4, 1, uneven::last_takes_rest}) == list{2, 2, 2, 5});
  CHECK(sizes({11, 4, 1, uneven::ceil_each}) == list{3, 3, 3, 2});
  CHECK(sizes({9, 4, 1, uneven::first_get_more}) == list{3, 2, 2, 2});
  CHECK(sizes({9, 4, 1, uneven::last_takes_rest}) == list{2, 2, 2, 3});
  CHECK(sizes({9, 4, 1, uneven::ceil_each}) == list{3, 3, 3, 0});
}

TEST_CASE("fewer tokens than pieces leave pieces empty") {
  CHECK(sizes({0, 3}) == list{0, 0, 0});
  CHECK(sizes({2, 4}) == list{1, 1, 0, 0});
  CHECK(sizes({2, 4, 1, uneven::last_takes_rest}) == list{0, 0, 0, 2});
  CHECK(sizes({2, 4, 1, uneven::ceil_each}) == list{1, 1, 0, 0});
}

TEST_CASE("granules are never cut apart and only the last one is partial") {
  CHECK(sizes({11, 2, 4}) == list{8, 3});
  CHECK(sizes({9, 3, 4}) == list{4, 4, 1});
  CHECK(sizes({21 * 4, 8, 4}) == list{12, 12, 12, 12, 12, 8, 8, 8});
  for (const uneven rule : rules)
    for (index_t n = 0; n <= 40; ++n)
      for (index_t p = 1; p <= 9; ++p)
        for (index_t granule = 1; granule <= 5; ++granule) {
          const pieces cut{n, p, granule, rule};
          CAPTURE(n);
          CAPTURE(p);
          CAPTURE(granule);
          REQUIRE(cut.begin_of(0) == 0);
          REQUIRE(cut.begin_of(p) == n);
          for (index_t i = 0; i < p; ++i) {
            REQUIRE(cut.size_of(i) >= 0);
            REQUIRE((cut.begin_of(i) % granule == 0 || cut.begin_of(i) == n));
            for (index_t t = cut.begin_of(i); t < cut.begin_of(i + 1); ++t) REQUIRE(cut.piece_of(t) == i);
          }
        }
}

TEST_CASE("pieces stay exact at sizes near the end of the index type") {
  for (const uneven rule : rules) {
    const pieces cut{seqpar::unbounded, 7, 3, rule};
    for (index_t i = 0; i < 7; ++i) {
      CHECK(cut.piece_of(cut.begin_of(i)) == i);
      CHECK(cut.piece_of(cut.begin_of(i + 1) - 1) == i);
    }
    const pieces one_granule{5, 4, seqpar::unbounded, rule};
    CHECK(one_granule.begin_of(4) == 5);
    CHECK(one_granule.size_of(one_granule.piece_of(0)) == 5);
  }
}
