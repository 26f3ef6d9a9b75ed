// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every shipped layout keeps the laws at every small size, and by sample at 2^40 tokens; broken ones are told which.
#include <doctest/doctest.h>
#include <array>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <string>
#include "tests/layout/shards.hpp"

using namespace seqpar;
using namespace layout_test;

namespace {

constexpr int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 14, 16};
constexpr uneven rules[] = {uneven::first_get_more, uneven::last_takes_rest, uneven::ceil_each};

template <class L>
void keeps_laws(const L& layout) {
  const char* law = broken_layout_law(layout);
  if (law == nullptr) law = broken_layout_law_sampled(layout, 7, 5);
  CAPTURE(layout.token_count());
  CAPTURE(layout.rank_count());
  REQUIRE_MESSAGE(law == nullptr, std::string(law == nullptr ? "" : law));
}

template <class L>
void has_fewest_runs(const L& layout) {
  for (int rank = 0; rank < layout.rank_count(); ++rank)
    REQUIRE(runs_of(layout, rank) == fewest_runs(rows_of(layout, rank)));
}

/// f(tokens, ranks, granule, rule) over the whole sweep.
template <class F>
void for_all_sizes(F f) {
  for (const int ranks : rank_counts)
    for (index_t tokens = 0; tokens <= 40; ++tokens)
      for (const index_t granule : {1, 2, 3})
        for (const uneven rule : rules) f(tokens, ranks, granule, rule);
}

/// Striped with each rank's rows from the last to the first: runs with a negative step.
struct mirrored {
  striped turn;
  constexpr index_t token_count() const { return turn.token_count(); }
  constexpr int rank_count() const { return turn.rank_count(); }
  constexpr index_t count_of(int rank) const { return turn.count_of(rank); }
  constexpr index_t global_of(int rank, index_t local) const { return turn.global_of(rank, mirror(rank, local)); }
  constexpr place place_of(index_t global) const {
    const place p = turn.place_of(global);
    return {p.rank, mirror(p.rank, p.local)};
  }
  constexpr mirrored resized(index_t n) const { return {turn.resized(n)}; }
  friend constexpr bool operator==(const mirrored&, const mirrored&) = default;

 private:
  constexpr index_t mirror(int rank, index_t local) const { return turn.count_of(rank) - 1 - local; }
};

/// Counts how often it is asked for a row, and the runs that it tells.
struct counting {
  striped deal;
  index_t* steps;
  index_t token_count() const { return deal.token_count(); }
  int rank_count() const { return deal.rank_count(); }
  index_t count_of(int rank) const { return deal.count_of(rank); }
  index_t global_of(int rank, index_t local) const { return ++*steps, deal.global_of(rank, local); }
  place place_of(index_t global) const { return ++*steps, deal.place_of(global); }
  template <class F>
  void for_each_run(int rank, F&& f) const {
    deal.for_each_run(rank, [&](run r) { ++*steps, f(r); });
  }
  bool operator==(const counting&) const = default;
};

constexpr std::array<index_t, 6> bounds{0, 3, 3, 10, 11, 19};
constexpr std::array<run, 3> table{{{0, 5, 2}, {9, 5, -2}, {10, 2, 1}}};
constexpr std::array<index_t, 4> offsets{0, 1, 1, 3};

// The same in constant expressions.
static_assert(broken_layout_law(contiguous{.tokens = 19, .ranks = 4, .granule = 3}) == nullptr);
static_assert(broken_layout_law(zigzag{.tokens = 19, .ranks = 4}) == nullptr);
static_assert(broken_layout_law(striped{.tokens = 19, .ranks = 4, .granule = 2}) == nullptr);
static_assert(broken_layout_law(paired{zigzag{.tokens = 19, .ranks = 4}}) == nullptr);
static_assert(broken_layout_law(grid{.frames = 2, .height = 5, .width = 3, .split_h = 3, .split_w = 2}) == nullptr);
static_assert(broken_layout_law(nested{zigzag{.tokens = 19, .ranks = 2}, striped{.tokens = 0, .ranks = 3}}) == nullptr);
static_assert(broken_layout_law(reordered{backwards{19}, zigzag{.tokens = 19, .ranks = 4}}) == nullptr);
static_assert(broken_layout_law(per_document{bounds, zigzag{.tokens = 0, .ranks = 4}}) == nullptr);
static_assert(broken_layout_law(segments{table, offsets}) == nullptr);

}  // namespace

TEST_CASE("contiguous, zigzag and striped keep the laws at every size, rule and granule, with the fewest runs") {
  for_all_sizes([](index_t tokens, int ranks, index_t granule, uneven rule) {
    const contiguous front{.tokens = tokens, .ranks = ranks, .granule = granule, .rule = rule};
    const zigzag both{.tokens = tokens, .ranks = ranks, .granule = granule, .rule = rule};
    const striped turn{.tokens = tokens, .ranks = ranks, .granule = granule};
    keeps_laws(front);
    keeps_laws(both);
    keeps_laws(turn);
    has_fewest_runs(front);
    has_fewest_runs(both);
    has_fewest_runs(turn);
    // Two tokens of one granule never part.
    for (index_t g = 0; g < tokens; ++g) {
      REQUIRE(front.place_of(g).rank == front.place_of(g / granule * granule).rank);
      REQUIRE(both.place_of(g).rank == both.place_of(g / granule * granule).rank);
      REQUIRE(turn.place_of(g).rank == turn.place_of(g / granule * granule).rank);
    }
  });
}

TEST_CASE("striped of single tokens is one run on every rank") {
  for (const int ranks : rank_counts)
    for (int rank = 0; rank < ranks; ++rank) CHECK(runs_of(striped{.tokens = 40, .ranks = ranks}, rank) == 1);
}

TEST_CASE("paired keeps the laws over every inner, and no run crosses from clean to noisy") {
  for_all_sizes([](index_t tokens, int ranks, index_t granule, uneven rule) {
    const paired layout{zigzag{.tokens = tokens, .ranks = ranks, .granule = granule, .rule = rule}};
    keeps_laws(layout);
    keeps_laws(paired{contiguous{.tokens = tokens, .ranks = ranks, .granule = granule, .rule = rule}});
    keeps_laws(paired{striped{.tokens = tokens, .ranks = ranks, .granule = granule}});
    for (int rank = 0; rank < ranks; ++rank)
      for_each_run(layout, rank,
                   [&](run r) { REQUIRE(layout.is_noisy(r.first) == layout.is_noisy(r.at(r.count - 1))); });
  });
}

TEST_CASE("nested keeps the laws for every mesh of every size in both placements") {
  for (const int ranks : rank_counts)
    for (int ring = 1; ring <= ranks; ++ring) {
      if (ranks % ring != 0) continue;
      const index_t members = ranks / ring;
      for (const axis inside : {axis::ring, axis::all_to_all})
        for (index_t tokens = 0; tokens <= 40; ++tokens)
          for (const index_t granule : {1, 2, 3}) {
            const contiguous inner{.tokens = 0, .ranks = members};
            const striped turn{.tokens = 0, .ranks = members, .granule = granule};
            const zigzag outer{.tokens = tokens, .ranks = ring, .granule = granule};
            const nested usp{outer, inner, inside};
            keeps_laws(usp);
            has_fewest_runs(usp);
            keeps_laws(nested{outer, turn, inside});
            keeps_laws(nested{striped{.tokens = tokens, .ranks = ring, .granule = granule}, turn, inside});
            keeps_laws(nested{striped{.tokens = tokens, .ranks = ring}, zigzag{.tokens = 0, .ranks = members}, inside});
            // Whatever the inner does, the members of a group hold the outer's share.
            const nested any{outer, turn, inside};
            for (index_t g = 0; g < tokens; ++g) REQUIRE(any.ring_of(any.place_of(g).rank) == outer.place_of(g).rank);
          }
    }
}

TEST_CASE("the runs of a nested layout are cut from the outer's, each of which is asked for once") {
  for (const index_t tokens : {1 << 10, 1 << 13}) {
    index_t steps = 0;
    const counting outer{{.tokens = tokens, .ranks = 4, .granule = 2}, &steps};
    const auto asks_once = [&](const auto& inner) {
      for (const int rank : {0, 7}) {
        steps = 0;
        const index_t runs = runs_of(nested{outer, inner}, rank);
        CHECK(steps == tokens / 4 / 2);
        CHECK(runs == steps / 2);
      }
    };
    asks_once(contiguous{.tokens = 0, .ranks = 2});
    asks_once(zigzag{.tokens = 0, .ranks = 2});
    asks_once(striped{.tokens = 0, .ranks = 2, .granule = 2});
  }
}

TEST_CASE("families nest in one another") {
  for (index_t tokens = 0; tokens <= 40; ++tokens) {
    const contiguous inner{.tokens = 0, .ranks = 2};
    const zigzag outer{.tokens = tokens, .ranks = 3};
    keeps_laws(nested{paired{outer}, inner});
    keeps_laws(nested{reordered{backwards{tokens}, outer}, inner});
    keeps_laws(nested{outer, mirrored{{.tokens = 0, .ranks = 2}}});
    keeps_laws(nested{nested{outer, inner}, inner, axis::ring});
    keeps_laws(paired{nested{outer, inner}});
    keeps_laws(paired{reordered{backwards{tokens}, outer}});
    keeps_laws(reordered{backwards{tokens}, nested{outer, inner}});
  }
  keeps_laws(nested{per_document{bounds, zigzag{.tokens = 0, .ranks = 3}}, contiguous{.tokens = 0, .ranks = 2}});
  keeps_laws(nested{grid{.frames = 3, .height = 5, .width = 4, .split_h = 1, .split_w = 3},
                    contiguous{.tokens = 0, .ranks = 2}});
  keeps_laws(nested{segments{table, offsets}, striped{.tokens = 0, .ranks = 2}});
}

TEST_CASE("a grid keeps the laws for every shape, split and rule, with the fewest runs") {
  for (const index_t frames : {0, 1, 3})
    for (index_t height = 0; height <= 6; ++height)
      for (index_t width = 0; width <= 6; ++width)
        for (const index_t split_h : {1, 2, 3, 7})
          for (const index_t split_w : {1, 2, 4})
            for (const uneven rule : rules) {
              const grid layout{.frames = frames,
                                .height = height,
                                .width = width,
                                .split_h = split_h,
                                .split_w = split_w,
                                .rule = rule};
              keeps_laws(layout);
              has_fewest_runs(layout);
            }
}

TEST_CASE("reordered keeps the laws at every size") {
  for_all_sizes([](index_t tokens, int ranks, index_t granule, uneven rule) {
    keeps_laws(
        reordered{backwards{tokens}, zigzag{.tokens = tokens, .ranks = ranks, .granule = granule, .rule = rule}});
  });
}

TEST_CASE("documents of any lengths, dealt each by any layout, keep the laws") {
  const std::vector<std::vector<index_t>> packs{
      {0}, {0, 0}, {0, 7}, {0, 0, 5, 5}, {0, 3, 7, 9, 14, 16}, {0, 1, 8, 13, 16}, {0, 40}, {0, 8, 16, 24, 40}};
  for (const auto& pack : packs)
    for (const int ranks : rank_counts)
      for (const index_t granule : {1, 2, 3})
        for (const uneven rule : rules) {
          const zigzag both{.tokens = 0, .ranks = ranks, .granule = granule, .rule = rule};
          keeps_laws(per_document{pack, both});
          keeps_laws(per_document{pack, contiguous{.tokens = 0, .ranks = ranks, .granule = granule, .rule = rule}});
          keeps_laws(per_document{pack, striped{.tokens = 0, .ranks = ranks, .granule = granule}});
          keeps_laws(per_document{pack, nested{both, contiguous{.tokens = 0, .ranks = 2}}});
        }
}

TEST_CASE("segments made from the runs of another layout are that layout") {
  for (const int ranks : rank_counts)
    for (index_t tokens = 0; tokens <= 40; ++tokens) {
      const zigzag model{.tokens = tokens, .ranks = ranks, .granule = 2};
      std::vector<run> runs;
      std::vector<index_t> ends{0};
      for (int rank = 0; rank < ranks; ++rank) {
        for_each_run(model, rank, [&](run r) { runs.push_back(r); });
        ends.push_back(static_cast<index_t>(runs.size()));
      }
      const segments copy{runs, ends};
      keeps_laws(copy);
      REQUIRE(shards_of(copy) == shards_of(model));
    }
}

TEST_CASE("layouts keep the laws by sample at 2^40 tokens") {
  const index_t n = (index_t{1} << 40) + 12345;
  const auto holds = [](const auto& layout) { CHECK(broken_layout_law_sampled(layout, 2024, 2000) == nullptr); };
  const auto holds_and_runs = [&](const auto& layout) {
    holds(layout);
    CHECK(broken_run_law(layout, 1000) == nullptr);
  };
  for (const int ranks : {1, 7, 64}) {
    const contiguous inner{.tokens = 0, .ranks = 6};
    for (const index_t granule : {1, 3, 1560})
      for (const uneven rule : rules) {
        const zigzag both{.tokens = n, .ranks = ranks, .granule = granule, .rule = rule};
        holds_and_runs(both);
        holds_and_runs(contiguous{.tokens = n, .ranks = ranks, .granule = granule, .rule = rule});
        holds_and_runs(paired{both});
        holds_and_runs(nested{both, inner});
        holds_and_runs(nested{both, striped{.tokens = 0, .ranks = 6}, axis::ring});
        holds(striped{.tokens = n, .ranks = ranks, .granule = granule});
        holds(nested{striped{.tokens = n, .ranks = ranks, .granule = granule}, inner});
        holds(reordered{backwards{n}, both});
        const std::array<index_t, 4> pack{0, 5, n / 3, n};
        holds_and_runs(per_document{pack, both});
      }
    holds_and_runs(striped{.tokens = n, .ranks = ranks});
    holds_and_runs(nested{striped{.tokens = n, .ranks = ranks}, striped{.tokens = 0, .ranks = 6}});
  }
  holds(grid{.frames = (1 << 20) + 1, .height = 1023, .width = 1025, .split_h = 8, .split_w = 6});
  const std::array<run, 3> runs{{{0, n / 2, 2}, {n - 1, n - n / 2 * 2, 1}, {1, n / 2, 2}}};
  const std::array<index_t, 3> ends{0, 1, 3};
  holds_and_runs(segments{runs, ends});
}

// Planted mistakes: what a wrong layout is told.
namespace broken {
constexpr contiguous good{.tokens = 9, .ranks = 3};

struct loses_a_token : contiguous {
  constexpr index_t count_of(int rank) const { return contiguous::count_of(rank) - (rank == 2 ? 1 : 0); }
};
struct before_the_first : contiguous {
  constexpr index_t global_of(int rank, index_t local) const { return contiguous::global_of(rank, local) - 1; }
};
struct two_owners : contiguous {
  constexpr index_t global_of(int rank, index_t local) const {
    return rank == 1 && local == 1 ? 0 : contiguous::global_of(rank, local);
  }
};
struct rows_backwards : contiguous {
  constexpr place place_of(index_t global) const {
    const place p = contiguous::place_of(global);
    return {p.rank, count_of(p.rank) - 1 - p.local};
  }
};
struct no_such_rank : contiguous {
  constexpr place place_of(index_t global) const { return {contiguous::place_of(global).rank + 1, 0}; }
};
/// Rows 1, 0, 2 on one rank, and a wrong place for position 0 only, which is nobody's first or last row.
struct middle_misplaced {
  constexpr index_t token_count() const { return 3; }
  constexpr int rank_count() const { return 1; }
  constexpr index_t count_of(int) const { return 3; }
  constexpr index_t global_of(int, index_t local) const { return local == 2 ? 2 : 1 - local; }
  constexpr place place_of(index_t global) const { return {0, global == 1 ? 0 : 2}; }
  friend constexpr bool operator==(const middle_misplaced&, const middle_misplaced&) = default;
};
enum class mistake { swapped, last_missing, one_too_many, wrong_step, step_zero, negative };
template <mistake Kind>
struct wrong_runs : contiguous {
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    const index_t a = contiguous::global_of(rank, 0);  // the rank's rows are a, a + 1, a + 2
    if constexpr (Kind == mistake::swapped) f(run{a + 1, 2, 1}), f(run{a, 1, 1});
    if constexpr (Kind == mistake::last_missing) f(run{a, 2, 1});
    if constexpr (Kind == mistake::one_too_many) f(run{a, 4, 1});
    if constexpr (Kind == mistake::wrong_step) f(run{a, 3, 2});
    if constexpr (Kind == mistake::step_zero) f(run{a, 1, 1}), f(run{a + 1, 2, 0});
    if constexpr (Kind == mistake::negative) f(run{a, 4, 1}), f(run{a, -1, 1});
  }
};
/// Each run right, the last one first.
struct runs_backwards : striped {
  template <class F>
  constexpr void for_each_run(int rank, F&& f) const {
    std::vector<run> runs;
    striped::for_each_run(rank, [&](run r) { runs.push_back(r); });
    for (; !runs.empty(); runs.pop_back()) f(runs.back());
  }
  constexpr runs_backwards resized(index_t n) const { return {striped::resized(n)}; }
  friend constexpr bool operator==(const runs_backwards&, const runs_backwards&) = default;
};
/// One rank with `tokens` rows; `resized` and ranks are wrong as told.
template <int Resized, int Ranks>
struct resized_wrongly {
  index_t tokens;
  int ranks = 1;
  constexpr index_t token_count() const { return tokens; }
  constexpr int rank_count() const { return ranks; }
  constexpr index_t count_of(int rank) const { return rank == 0 ? tokens : 0; }
  constexpr index_t global_of(int, index_t local) const { return local; }
  constexpr place place_of(index_t global) const { return {0, global}; }
  constexpr resized_wrongly resized(index_t n) const { return {Resized ? n : tokens, ranks + Ranks}; }
  friend constexpr bool operator==(const resized_wrongly&, const resized_wrongly&) = default;
};

// LongVILA's published rule for zigzag on a mesh, one token a chunk: chunks r + 2Ru and P − 1 − r + 2Ru.
struct longvila {
  int all_to_all, ring;
  constexpr index_t token_count() const { return 2 * rank_count(); }
  constexpr int rank_count() const { return all_to_all * ring; }
  constexpr index_t count_of(int) const { return 2; }
  constexpr index_t global_of(int rank, index_t local) const {
    const int u = rank % all_to_all, r = rank / all_to_all;
    return u * 2 * ring + (local == 0 ? r : rank_count() - 1 - r);
  }
  constexpr place place_of(index_t global) const {
    for (int rank = 0; rank < rank_count(); ++rank)
      for (index_t i = 0; i < 2; ++i)
        if (global_of(rank, i) == global) return {rank, i};
    return {-1, -1};
  }
  friend constexpr bool operator==(const longvila&, const longvila&) = default;
};

}  // namespace broken
using namespace broken;

namespace {
bool is(const char* said, const char* law) {
  return said != nullptr && std::string(said) == law;
}

template <class L>
void breaks(const L& layout, const char* law) {
  CHECK(is(broken_layout_law(layout), law));
}
}  // namespace

TEST_CASE("a broken layout is told the law that it breaks") {
  keeps_laws(good);
  breaks(loses_a_token{good}, layout_law::counts);
  breaks(before_the_first{good}, layout_law::inside);
  breaks(two_owners{good}, layout_law::one_owner);
  breaks(rows_backwards{good}, layout_law::place);
  breaks(no_such_rank{good}, layout_law::place);
  breaks(middle_misplaced{}, layout_law::place);
  breaks(wrong_runs<mistake::swapped>{good}, layout_law::runs);
  breaks(wrong_runs<mistake::last_missing>{good}, layout_law::runs);
  breaks(wrong_runs<mistake::one_too_many>{good}, layout_law::runs);
  breaks(wrong_runs<mistake::wrong_step>{good}, layout_law::runs);
  breaks(wrong_runs<mistake::step_zero>{good}, layout_law::runs);
  breaks(wrong_runs<mistake::negative>{good}, layout_law::runs);
  keeps_laws(resized_wrongly<1, 0>{4});
  breaks(resized_wrongly<0, 0>{4}, layout_law::resized);
  breaks(resized_wrongly<1, 1>{4}, layout_law::resized);
  static_assert(broken_layout_law(two_owners{good}) != nullptr);
}

TEST_CASE("the sampled laws find the same mistakes") {
  const auto breaks_sampled = [](const auto& layout, index_t samples, const char* law) {
    CHECK(is(broken_layout_law_sampled(layout, 1, samples), law));
  };
  breaks_sampled(loses_a_token{good}, 0, layout_law::counts);
  breaks_sampled(before_the_first{good}, 0, layout_law::inside);
  breaks_sampled(rows_backwards{good}, 0, layout_law::place);
  CHECK(broken_layout_law_sampled(two_owners{good}, 1, 100) != nullptr);  // by row or by position
  breaks_sampled(middle_misplaced{}, 0, layout_law::global);
  breaks_sampled(resized_wrongly<0, 0>{4}, 0, layout_law::resized);
  breaks_sampled(wrong_runs<mistake::swapped>{good}, 0, layout_law::runs);
  breaks_sampled(wrong_runs<mistake::last_missing>{good}, 0, layout_law::runs);
  breaks_sampled(runs_backwards{{.tokens = index_t{1} << 40, .ranks = 4, .granule = 16}}, 0, layout_law::runs);
  // One wrong row among 2^40 is not found by sample; a wrong share is.
  const contiguous large{.tokens = index_t{1} << 40, .ranks = 4};
  breaks_sampled(rows_backwards{large}, 0, layout_law::place);
  breaks_sampled(before_the_first{large}, 0, layout_law::inside);
}

TEST_CASE("LongVILA's hybrid zigzag covers every token once for two all-to-all members and not for four") {
  keeps_laws(longvila{2, 2});
  keeps_laws(longvila{2, 4});
  breaks(longvila{4, 2}, layout_law::inside);
  CHECK(broken_layout_law(longvila{8, 1}) != nullptr);
}

TEST_CASE("an order that is no bijection of the tokens is found") {
  CHECK(broken_layout_law(reordered{backwards{8}, zigzag{.tokens = 9, .ranks = 2}}) != nullptr);
}

TEST_CASE("a table with two owners of one row is found") {
  const std::array<run, 2> twice{{{0, 3, 1}, {2, 1, 1}}};
  const std::array<index_t, 3> ends{0, 1, 2};
  CHECK(segments{twice, ends}.problem() == nullptr);
  breaks(segments{twice, ends}, layout_law::one_owner);
}
