// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The solver: even work, equal tokens, few rows from elsewhere.
#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <seqpar/cost/balanced.hpp>
#include <seqpar/cost/needs.hpp>
#include <seqpar/layout/laws.hpp>
#include <tests/cost/documents.hpp>

namespace seqpar::test {
namespace {

constexpr index_t n = 2048;

struct figures {
  double load, rows;
};
template <class L, class M>
figures figures_of(const L& layout, const M& mask) {
  const needs w({.ring = layout.rank_count(), .all_to_all = 1}, layout, mask);
  std::vector<index_t> pairs;
  for (int r = 0; r < layout.rank_count(); ++r) pairs.push_back(w.pairs(r));
  return {detail::spread_of(pairs).most_over_mean(), w.of_full_ring().mean};
}
struct queries_up_to {  // sees only itself, and only the first ones do
  index_t count;
  bool allows(index_t q, index_t k) const { return q < count && k == q; }
  interval_pair key_intervals(index_t q) const { return q < count ? make_intervals({q, q + 1}) : interval_pair{}; }
};

}  // namespace

TEST_CASE("documents on 4, 8 and 16 ranks: at most 1.05 of the mean load, and fewer rows from elsewhere than striped") {
  for (int ranks : {4, 8, 16})
    for (index_t granule : {1, 8, 16}) {
      const std::vector<index_t> bounds = pack(document_lengths(ranks));
      const within mask{documents{bounds}, causal{}};
      const figures solved = figures_of(balanced(mask, {.tokens = n, .ranks = ranks, .granule = granule}), mask);
      CHECK(solved.load <= 1.05);
      CHECK(solved.rows <= (ranks == 16 ? .15 : .29) * figures_of(striped{.tokens = n, .ranks = ranks}, mask).rows);
    }
}

TEST_CASE("causal and teacher forcing come out even, with no more rows than zigzag") {
  for (int ranks : {4, 8, 16}) {
    const figures folded = figures_of(balanced(causal{}, {.tokens = n, .ranks = ranks, .granule = 8}), causal{});
    CHECK(folded.load <= 1.02);
    CHECK(folded.rows <= .75);
    const teacher_forcing mask{.clean = n / 2, .block = n / 64};
    const figures forced = figures_of(balanced(mask, {.tokens = n, .ranks = ranks, .granule = n / 64}), mask);
    CHECK(forced.load <= 1.05);
    CHECK(forced.rows <= figures_of(zigzag{.tokens = n, .ranks = ranks}, mask).rows);
  }
}

TEST_CASE("where big granules do not come out even, small ones fill up: a long document among a thousand short ones") {
  std::vector<index_t> lengths;
  std::uint32_t state = 1;
  index_t left = 1 << 20;
  for (int i = 0; i < 999; ++i) {
    state = state * 1664525u + 1013904223u;
    left -= lengths.emplace_back(200 + state % 1600);
  }
  lengths.push_back(left);
  const std::vector<index_t> bounds = pack(lengths);
  const within mask{documents{bounds}, causal{}};
  CHECK(figures_of(balanced(mask, {.tokens = 1 << 20, .ranks = 8, .granule = 1 << 11}), mask).load <= 1.02);
}

TEST_CASE("hundreds of ranks come out even, though each looks at few others, and documents stay near") {
  constexpr int ranks = 256;
  constexpr index_t tokens = 32 * ranks;
  CHECK(figures_of(balanced(causal{}, {.tokens = tokens, .ranks = ranks, .granule = 2}), causal{}).load <= 1.02);
  std::vector<index_t> lengths;
  for (index_t left = tokens; left > 0; left -= lengths.back())
    lengths.push_back(std::min<index_t>(left, lengths.size() % 8 == 0 ? 200 : 25));
  const std::vector<index_t> bounds = pack(lengths);
  const within mask{documents{bounds}, causal{}};
  const figures solved = figures_of(balanced(mask, {.tokens = tokens, .ranks = ranks, .granule = 2}), mask);
  CHECK(solved.load <= 1.02);
  CHECK(solved.rows <= .12 * figures_of(striped{.tokens = tokens, .ranks = ranks}, mask).rows);
}

TEST_CASE("a set of granules counts what an interval would add, as a table does") {
  std::uint32_t state = 1;
  const auto below = [&](index_t bound) {
    return static_cast<index_t>((state = state * 1664525u + 1013904223u) >> 8) % bound;
  };
  for (int round = 0; round < 50; ++round) {
    detail::granule_set set;
    std::array<bool, 60> in{};
    const auto outside = [&](interval i) { return std::count(in.begin() + i.lo, in.begin() + i.hi, false); };
    for (int i = 0; i < 30; ++i) {
      const index_t lo = below(60), hi = lo + 1 + below(std::min<index_t>(60 - lo, 8));
      REQUIRE(set.missing({lo, hi}) == outside({lo, hi}));
      set.add({lo, hi});
      std::fill(in.begin() + lo, in.begin() + hi, true);
      REQUIRE(set.size() == std::count(in.begin(), in.end(), true));
      REQUIRE(set.missing({0, 60}) == outside({0, 60}));
    }
  }
}

TEST_CASE("a window stays in consecutive pieces, and a mask that shows nothing is dealt all the same") {
  const window near{.left = 31, .right = 0};
  CHECK(figures_of(balanced(near, {.tokens = n, .ranks = 8, .granule = 8}), near).rows ==
        figures_of(contiguous{.tokens = n, .ranks = 8}, near).rows);
  const dealt blind = balanced(valid{.queries = 0, .keys = 0}, {.tokens = 100, .ranks = 8, .granule = 3});
  CHECK(broken_layout_law(blind) == nullptr);
  CHECK(blind.count_of(0) > 0);
}

TEST_CASE("every rank gets as many granules, one more or less, and every token one owner") {
  for (const auto& [tokens, ranks, granule] :
       {std::array<int, 3>{2048, 8, 16}, {2047, 7, 10}, {5, 8, 1}, {0, 3, 4}, {100, 1, 7}, {64, 8, 64}}) {
    const dealt layout = balanced(causal{}, {.tokens = tokens, .ranks = ranks, .granule = granule});
    CHECK(layout.problem() == nullptr);
    CHECK(broken_layout_law(layout) == nullptr);
    CHECK(layout.token_count() == tokens);
    const index_t granules = (tokens + granule - 1) / granule;
    for (int r = 0; r < ranks; ++r) {
      CHECK(layout.count_of(r) <= (granules / ranks + 1) * granule);
      CHECK(layout.count_of(r) > (granules / ranks - 1) * granule);
    }
  }
}

TEST_CASE("granules that see nothing fill up the ranks of those that do") {
  const queries_up_to mask{64};
  const dealt layout = balanced(mask, {.tokens = 256, .ranks = 4, .granule = 1});
  for (int r = 0; r < 4; ++r) CHECK(layout.count_of(r) == 64);
  CHECK(figures_of(layout, mask).load == 1);
  CHECK(figures_of(layout, mask).rows == 0);
}

TEST_CASE("costs of the caller's own are what is evened out") {
  std::vector<double> costs(64, 1.);
  for (std::size_t g = 0; g < 16; ++g) costs[g] = 9;
  const dealt layout =
      balanced(window{.left = 0, .right = 0}, {.tokens = 128, .ranks = 4, .granule = 2, .costs = costs});
  for (int r = 0; r < 4; ++r) {
    double sum = 0;
    for (index_t i = 0; i < layout.count_of(r); i += 2)
      sum += costs[static_cast<std::size_t>(layout.global_of(r, i) / 2)];
    CHECK(sum == 4 * 9 + 12);
  }
}

TEST_CASE("costs that are negative, not numbers or not as many as granules are refused, and so are sizes") {
  const auto says = [](std::vector<double> costs, const char* what) {
    CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = 4, .ranks = 2, .granule = 1, .costs = costs}),
                         doctest::Contains(what), error);
  };
  says({1, 2, -1, 3}, "the cost of granule 2 must be 0 or more, and finite, not -1");
  says({1, std::nan(""), 1, 3}, "the cost of granule 1");
  says({1, 1, 1, std::numeric_limits<double>::infinity()}, "the cost of granule 3");
  says({1, 1e308, 1, 1e308}, "the costs up to granule 3 have an infinite sum; give them in a larger unit");
  says({1, 1, 1}, "there are 3 costs for 4 granules");
  CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = -1, .ranks = 2, .granule = 1}),
                       doctest::Contains("tokens is negative"), error);
  CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = 4, .ranks = 0, .granule = 1}),
                       doctest::Contains("ranks is below 1"), error);
  CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = 4, .ranks = 2, .granule = 0}),
                       doctest::Contains("granule is below 1"), error);
  CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = 1 << 30, .ranks = 64, .granule = 1}),
                       doctest::Contains("give a larger granule"), error);
  CHECK_THROWS_WITH_AS(balanced(causal{}, {.tokens = 4, .ranks = 2, .granule = 1, .tolerance = -1}),
                       doctest::Contains("tolerance"), error);
}

template <class T>
concept gives_a_view = requires {
  std::declval<T>().view();
};
template <class T>
concept is_costs = requires {
  balance_options{.tokens = 1, .ranks = 1, .granule = 1, .costs = std::declval<T>()};
};
static_assert(gives_a_view<const dealt&> && !gives_a_view<dealt> && !gives_a_view<const dealt>);
static_assert(is_costs<const std::vector<double>&> && !is_costs<std::vector<double>>);

TEST_CASE("a dealt layout written down from another is that layout") {
  const auto same = [](const auto& layout) {
    const dealt copy = dealt::from(layout);
    CHECK(broken_layout_law(copy) == nullptr);
    for (index_t g = 0; g < layout.token_count(); ++g) CHECK(copy.place_of(g) == layout.place_of(g));
  };
  same(zigzag{.tokens = 37, .ranks = 4});
  same(striped{.tokens = 37, .ranks = 4, .granule = 3});
}

}  // namespace seqpar::test
