// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks in pieces: right for every query, and few.
#include <doctest/doctest.h>
#include <seqpar/cost/pieces.hpp>

namespace seqpar::test {
namespace {

struct every_third {  // a bare functor
  bool allows(index_t q, index_t k) const { return (q + k) % 3 == 0; }
};
struct own_rule {  // intervals, and no word on how long they go on
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
  interval_pair key_intervals(index_t q) const { return make_intervals({q / 2, q / 2 + 2}, {9, 9 + q % 4}); }
};

/// Where the pieces differ from the mask, or "". `most` pieces are allowed.
template <class M>
std::string difference(const M& mask, index_t n, index_t k, std::size_t most) {
  const mask_pieces pieces(mask, n, k);
  const auto whole = bound(mask, n, k);
  if (pieces.pieces().size() > most) return std::to_string(pieces.pieces().size()) + " pieces";
  std::vector<std::vector<int>> seen(static_cast<std::size_t>(n), std::vector<int>(static_cast<std::size_t>(k)));
  index_t next = 0;
  for (const mask_pieces::piece& p : pieces.pieces()) {
    if (p.queries.lo != next || p.queries.empty()) return "a hole at " + std::to_string(next);
    next = p.queries.hi;
    for (index_t q = p.queries.lo; q < p.queries.hi; ++q)
      for (index_t i = 0; i < p.count; ++i) {
        const interval at = pieces.keys_of(p)[i].after(q - p.queries.lo);
        if (at.lo < 0 || at.hi > k || at.empty()) return "an end outside at query " + std::to_string(q);
        for (index_t x = at.lo; x < at.hi; ++x) ++seen[static_cast<std::size_t>(q)][static_cast<std::size_t>(x)];
      }
  }
  if (next != n) return "an end at " + std::to_string(next);
  for (index_t q = 0; q < n; ++q)
    for (index_t x = 0; x < k; ++x)
      if (seen[static_cast<std::size_t>(q)][static_cast<std::size_t>(x)] != (whole.allows(q, x) ? 1 : 0))
        return "query " + std::to_string(q) + ", key " + std::to_string(x);
  for (const run r :
       {run{0, n, 1}, run{n - 1, n / 2, -1}, run{1, (n + 1) / 3, 3}, run{n - 1, n / 5, -5}, run{2, 1, 7}}) {
    index_t pairs = 0;
    std::vector<int> reached(static_cast<std::size_t>(k));
    for (index_t i = 0; i < r.count; ++i)
      for (index_t x = 0; x < k; ++x)
        if (whole.allows(r.at(i), x)) {
          ++pairs;
          reached[static_cast<std::size_t>(x)] = 1;
        }
    if (pieces.pairs({r}) != pairs) return "pairs of a run with step " + std::to_string(r.step);
    detail::position_set set = pieces.reach({r});
    for (interval i : set.parts())
      for (index_t x = i.lo; x < i.hi; ++x) reached[static_cast<std::size_t>(x)] += 2;
    for (int x : reached)
      if (x == 1 || x == 2) return "the reach of a run with step " + std::to_string(r.step);
  }
  return "";
}

template <class M>
void check_steady(const M& mask, std::size_t most) {
  for (const auto& [n, k] : {std::pair<index_t, index_t>{40, 40}, {23, 40}, {40, 23}, {3, 40}})
    CHECK(difference(mask, n, k, most) == "");
}

}  // namespace

TEST_CASE("the pieces of a mask say exactly what it allows, and there are as few as it has corners") {
  check_steady(full{}, 1);
  check_steady(causal{}, 2);
  check_steady(causal{alignment::top_left}, 2);
  check_steady(window{.left = 5, .right = 0}, 4);
  check_steady(window{.left = 1, .right = 0}, 4);
  check_steady(window{.left = 3, .right = 0}, 4);
  check_steady(window{.left = 2, .right = 7, .align = alignment::top_left}, 4);
  check_steady(window{.left = unbounded, .right = 3}, 3);
  check_steady(window{.left = 0, .right = unbounded}, 3);
  check_steady(block_causal{.block = 7}, 6);
  check_steady(prefix_lm{.prefix = 11}, 3);
  check_steady(first_keys{.count = 4}, 1);
  check_steady(valid{.queries = 20, .keys = 18}, 2);
}

TEST_CASE("the pieces of combinations are those of their parts, cut where ends pass each other") {
  const std::vector<index_t> q = pack({9, 0, 14, 2, 15}), k = pack({9, 3, 8, 2, 18});
  check_steady(documents{q}, 5);
  check_steady(documents{q, k}, 5);
  check_steady(within{documents{q, k}, causal{}}, 9);
  check_steady(within{documents{q}, window{.left = 3, .right = 1}}, 16);
  check_steady(within{documents{q}, block_causal{.block = 4}}, 12);
  check_steady(all_of{causal{}, window{.left = 4, .right = unbounded}}, 6);
  check_steady(all_of{documents{q}, causal{}}, 9);
  check_steady(any_of{first_keys{.count = 3}, window{.left = 4, .right = 0}}, 10);
  check_steady(any_of{first_keys{.count = 3}, all_of{within{documents{q}, causal{}}, window{.left = 6, .right = 0}}},
               25);
  check_steady(all_of{any_of{first_keys{.count = 6}, window{.left = 2, .right = 2}}, causal{}}, 14);
  for (index_t block : {1, 3, 8}) {
    CHECK(difference(teacher_forcing{.clean = 20, .block = block}, 40, 40, 44) == "");
    CHECK(difference(all_of{teacher_forcing{.clean = 15, .block = block}, valid{.queries = 30, .keys = 30}}, 40, 40,
                     44) == "");
  }
}

TEST_CASE("a mask that only answers for single queries is asked for each, a bare functor for each pair") {
  CHECK(difference(own_rule{}, 40, 40, 40) == "");
  CHECK(difference(every_third{}, 24, 18, 24) == "");
}

TEST_CASE("pieces grow with a mask's corners, not with its tokens") {
  const index_t n = 1 << 30;
  CHECK(mask_pieces(causal{}, n, n).pieces().size() == 1);
  CHECK(mask_pieces(causal{}, n, n).pairs({{0, n, 1}}) == n / 2 * (n + 1));
  CHECK(mask_pieces(any_of{first_keys{.count = 3}, window{.left = 4096, .right = 0}}, n, n).pieces().size() <= 5);
  CHECK(mask_pieces(teacher_forcing{.clean = n / 2, .block = n / 64}, n, n).pieces().size() == 64);
  const std::vector<index_t> bounds = pack(std::vector<index_t>(1000, n / 1024));
  CHECK(mask_pieces(within{documents{bounds}, causal{}}, n, n).pieces().size() == 1001);
}

TEST_CASE("a bare functor over too many pairs is refused, and so are too many positions and a wrong mask") {
  CHECK_THROWS_WITH_AS(mask_pieces(every_third{}, 1 << 20, 1 << 20),
                       doctest::Contains("this mask knows no intervals, and asking all of 1048576 x 1048576 pairs"),
                       error);
  CHECK_THROWS_WITH_AS(mask_pieces(full{}, index_t{1} << 31, 1), doctest::Contains("2^31 - 1 positions"), error);
  CHECK_THROWS_WITH_AS(mask_pieces(block_causal{.block = 0}, 4, 4), doctest::Contains("block counts tokens"), error);
  CHECK_THROWS_WITH_AS(mask_pieces(teacher_forcing{.clean = 3, .block = 1}, 8, 8), doctest::Contains("clean is 3"),
                       error);
}

TEST_CASE("sums of floors and of rows below a moving end equal what a loop adds up") {
  for (const run r : {run{3, 10, 1}, run{0, 7, 4}, run{5, 1, 1}, run{2, 9, 3}})
    for (index_t x = -9; x < 50; ++x)
      for (index_t step : {0, 1, 2, 3, 8})
        for (index_t n : {0, 1, 2, 13}) {
          index_t sum = 0;
          for (index_t i = 0; i < n; ++i)
            for (index_t j = 0; j < r.count; ++j) sum += r.at(j) < x + i * step;
          REQUIRE(detail::sum_rows_below(r, x, step, n) == sum);
        }
}

}  // namespace seqpar::test
