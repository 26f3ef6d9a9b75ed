// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sets of positions.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <seqpar/attention/position_set.hpp>

namespace seqpar::test {
namespace {

constexpr index_t positions = 400;

struct numbers_drawn {
  std::uint32_t state = 12345;
  index_t below(index_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<index_t>(state >> 8) % n;
  }
};

std::vector<index_t> spelled(const std::vector<run>& runs) {
  std::vector<index_t> rows;
  for (const run& r : runs)
    for (index_t i = 0; i < r.count; ++i) rows.push_back(r.at(i));
  return rows;
}

}  // namespace

TEST_CASE("a set holds what was added in any order; a block's rows in it come in the block's order") {
  numbers_drawn draw;
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    detail::position_set set;
    std::vector<bool> in(positions);
    for (index_t families = draw.below(4); families >= 0; --families) {
      const index_t step = 1 + draw.below(12), size = draw.below(step + 3), first = draw.below(60);
      const index_t count = draw.below((positions - 80) / step);
      const bool backwards = draw.below(3) == 0, together = size > 0 && size < step && draw.below(3) == 0;
      if (together && count > 0) set.add({{first, first + size}, step, count});
      for (index_t i = 0; i < count; ++i) {
        const index_t lo = first + (backwards ? count - 1 - i : i) * step;
        if (!together) set.add({lo, lo + size});
        for (index_t k = lo; k < lo + size; ++k) in[static_cast<std::size_t>(k)] = true;
      }
      if (draw.below(2) == 0) set.combs();  // asked in between
    }
    std::vector<bool> parts(positions);
    index_t end = -1;
    for (const interval& i : set.parts()) {
      REQUIRE(i.lo > end);
      REQUIRE(!i.empty());
      end = i.hi;
      for (index_t k = i.lo; k < i.hi; ++k) parts[static_cast<std::size_t>(k)] = true;
    }
    CHECK(parts == in);

    std::vector<run> block;
    for (index_t runs = draw.below(5); runs >= 0; --runs) {
      const index_t step = 1 + draw.below(13), count = draw.below(positions / step);
      const index_t first = draw.below(positions - std::max<index_t>(0, count - 1) * step);
      block.push_back(draw.below(2) == 0 ? run{first, count, step} : run{first + (count - 1) * step, count, -step});
    }
    std::vector<index_t> wanted;
    for (const index_t row : spelled(block))
      if (in[static_cast<std::size_t>(row)]) wanted.push_back(row);
    CHECK(spelled(detail::rows_in(block, set)) == wanted);
  }
}

TEST_CASE("a set that repeats evenly, and a block's rows in it, take room for one, whatever their number") {
  detail::position_set set;
  for (index_t i = 0; i < 1000; ++i)
    for (index_t k = 0; k < 4; ++k) set.add({64 * i + k, 64 * i + k + 1});
  CHECK(set.combs().size() == 1);
  CHECK(set.parts().size() == 1000);
  CHECK(detail::rows_in({{2, 1000, 64}}, set) == std::vector<run>{{2, 1000, 64}});
  CHECK(detail::rows_in({{4, 1000, 64}}, set).empty());
  CHECK(detail::rows_in({{63'937, 500, -128}}, set) == std::vector<run>{{63'937, 500, -128}});
  CHECK(detail::rows_in({{0, 6400, 10}}, set).size() > 100);
  set.clear();
  set.add({{0, 2}, 4, 3});
  set.add({{10, 11}, 4, 3});  // goes on where the other ends
  CHECK(set.parts() == std::vector<interval>{{0, 2}, {4, 6}, {8, 11}, {14, 15}, {18, 19}});
}

}  // namespace seqpar::test
