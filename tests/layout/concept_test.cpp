// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is a layout and what narrowly is not.
#include <doctest/doctest.h>
#include <array>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/explain.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <string_view>
#include <utility>
#include "tests/layout/shards.hpp"

using namespace seqpar;

namespace near_miss {

/// The least that is a layout: three tokens on one rank.
struct archetype {
  constexpr index_t token_count() const { return 3; }
  constexpr int rank_count() const { return 1; }
  constexpr index_t count_of(int) const { return 3; }
  constexpr index_t global_of(int, index_t local) const { return local; }
  constexpr place place_of(index_t global) const { return {0, global}; }
  friend constexpr bool operator==(const archetype&, const archetype&) = default;
};
static_assert(sequence_layout<archetype> && explain_layout<archetype>());
static_assert(!has_runs<archetype> && !resizable_layout<archetype>);
static_assert(broken_layout_law(archetype{}) == nullptr);
static_assert(broken_layout_law_sampled(archetype{}, 1, 10) == nullptr);
static_assert(problem_of(archetype{}) == nullptr);
static_assert(!has_documents<archetype> && document_at(archetype{}, 1) == interval{0, 3});

// One requirement short, each.
struct not_copyable : archetype {
  not_copyable(const not_copyable&) = delete;
};
struct not_comparable : archetype {
  friend bool operator==(const not_comparable&, const not_comparable&) = delete;
};
struct without_token_count : archetype {
  index_t token_count() const = delete;
};
struct token_count_not_const : archetype {
  constexpr index_t token_count() { return 3; }
};
struct without_rank_count : archetype {
  int rank_count() const = delete;
};
struct count_of_without_rank : archetype {
  constexpr index_t count_of() const { return 3; }
};
struct global_of_without_rank : archetype {
  constexpr index_t global_of(index_t local) const { return local; }
};
struct place_of_is_a_pair : archetype {
  constexpr std::pair<int, index_t> place_of(index_t global) const { return {0, global}; }
};
static_assert(!sequence_layout<not_copyable>);
static_assert(!sequence_layout<not_comparable>);
static_assert(!sequence_layout<without_token_count>);
static_assert(!sequence_layout<token_count_not_const>);
static_assert(!sequence_layout<without_rank_count>);
static_assert(!sequence_layout<count_of_without_rank>);
static_assert(!sequence_layout<global_of_without_rank>);
static_assert(!sequence_layout<place_of_is_a_pair>);

struct resized_to_another : archetype {
  constexpr archetype resized(index_t) const { return {}; }
};
static_assert(sequence_layout<resized_to_another> && !resizable_layout<resized_to_another>);

}  // namespace near_miss

namespace {

// The shipped ones, and which of them can be made in another size.
static_assert(explain_layout<contiguous>() && has_runs<contiguous> && resizable_layout<contiguous>);
static_assert(explain_layout<zigzag>() && has_runs<zigzag> && resizable_layout<zigzag>);
static_assert(explain_layout<striped>() && has_runs<striped> && resizable_layout<striped>);
static_assert(explain_layout<paired<zigzag>>() && has_runs<paired<zigzag>> && !resizable_layout<paired<zigzag>>);
static_assert(explain_layout<grid>() && has_runs<grid> && !resizable_layout<grid>);
using usp = nested<zigzag, contiguous>;
static_assert(explain_layout<usp>() && has_runs<usp> && resizable_layout<usp>);
static_assert(!resizable_layout<nested<grid, contiguous>>);
using hilbert_like = reordered<layout_test::backwards, zigzag>;
static_assert(explain_layout<hilbert_like>() && !has_runs<hilbert_like>);
static_assert(explain_layout<per_document<usp>>() && has_runs<per_document<usp>>);
static_assert(explain_layout<segments>() && has_runs<segments>);

// A forgotten size does not compile; options may be left out.
template <class L>
concept forgets_tokens = requires {
  L{.ranks = 4};
};
template <class L>
concept forgets_ranks = requires {
  L{.tokens = 4};
};
template <class L>
concept says_both = requires {
  L{.tokens = 4, .ranks = 4};
};
static_assert(!forgets_tokens<contiguous> && !forgets_ranks<contiguous> && says_both<contiguous>);
static_assert(!forgets_tokens<zigzag> && !forgets_ranks<zigzag> && says_both<zigzag>);
static_assert(!forgets_tokens<striped> && !forgets_ranks<striped> && says_both<striped>);

bool says(const char* problem, std::string_view words) {
  return problem != nullptr && std::string_view(problem).find(words) != std::string_view::npos;
}

template <class L>
void check_sizes_of() {
  CHECK(problem_of(L{.tokens = 0, .ranks = 1}) == nullptr);
  CHECK(problem_of(L{.tokens = unbounded, .ranks = 1}) == nullptr);
  // Who reports it says that it is of a layout.
  CHECK(std::string_view(problem_of(L{.tokens = -1, .ranks = 1})) == "tokens is negative; give 0 or more");
  CHECK(problem_of(L{.tokens = -1, .ranks = 1}).given == -1);
  CHECK(problem_of(L{.tokens = 1, .ranks = 0}).given == 0);
  CHECK(says(problem_of(L{.tokens = unbounded + 1, .ranks = 1}), "more than 2^62 tokens"));
  CHECK(says(problem_of(L{.tokens = 1, .ranks = 0}), "ranks is below 1"));
  CHECK(says(problem_of(L{.tokens = 1, .ranks = index_t{1} << 31}), "more ranks than an int"));
  CHECK(says(problem_of(L{.tokens = 1, .ranks = 1, .granule = 0}), "granule is below 1"));
  CHECK(says(broken_layout_law(L{.tokens = -1, .ranks = 1}), "tokens is negative"));
}

}  // namespace

TEST_CASE("a layout with impossible sizes says which and what to give") {
  check_sizes_of<contiguous>();
  check_sizes_of<zigzag>();
  check_sizes_of<striped>();
  CHECK(says(problem_of(paired{zigzag{.tokens = 4, .ranks = 0}}), "ranks is below 1"));
  CHECK(says(problem_of(paired{zigzag{.tokens = unbounded, .ranks = 1}}), "2^61"));
  CHECK(says(problem_of(nested{zigzag{.tokens = -1, .ranks = 2}, contiguous{.tokens = 0, .ranks = 2}}), "tokens"));
  CHECK(says(problem_of(nested{zigzag{.tokens = 1, .ranks = 2}, contiguous{.tokens = 0, .ranks = 0}}), "ranks"));
  CHECK(says(problem_of(nested{zigzag{.tokens = 1, .ranks = 1 << 20}, contiguous{.tokens = 0, .ranks = 1 << 20}}),
             "more ranks"));
  CHECK(problem_of(nested{zigzag{.tokens = 1, .ranks = 2}, contiguous{.tokens = -7, .ranks = 2}}) == nullptr);
  CHECK(says(problem_of(reordered{layout_test::backwards{4}, zigzag{.tokens = 4, .ranks = 0}}), "ranks"));
}

TEST_CASE("a grid with impossible sizes says which and what to give") {
  const auto problem = [](index_t t, index_t h, index_t w, index_t split_h, index_t split_w) {
    return problem_of(grid{.frames = t, .height = h, .width = w, .split_h = split_h, .split_w = split_w});
  };
  CHECK(problem(0, 0, 0, 1, 1) == nullptr);
  CHECK(problem(2, 3, 5, 7, 11) == nullptr);
  CHECK(says(problem(-1, 3, 5, 1, 1), "negative"));
  CHECK(says(problem(1, -3, 5, 1, 1), "negative"));
  CHECK(says(problem(1, 3, -5, 1, 1), "negative"));
  CHECK(says(problem(1, 3, 5, 0, 1), "split_h"));
  CHECK(says(problem(1, 3, 5, 1, 0), "split_w"));
  CHECK(says(problem(1 << 30, 1 << 30, 1 << 30, 1, 1), "2^62"));
  CHECK(says(problem(1, 3, 5, 1 << 20, 1 << 20), "more ranks"));
}

TEST_CASE("documents with impossible bounds say what is wrong") {
  const auto problem = [](std::span<const index_t> bounds, index_t ranks = 2) {
    return problem_of(per_document{bounds, zigzag{.tokens = 0, .ranks = ranks}});
  };
  const std::array<index_t, 4> good{0, 3, 3, 9}, late{1, 3, 3, 9}, falling{0, 5, 3, 9};
  CHECK(problem(good) == nullptr);
  CHECK(problem(std::span(good).first(1)) == nullptr);
  CHECK(says(problem({}), "begin with 0"));
  CHECK(says(problem(late), "begin with 0"));
  CHECK(says(problem(falling), "ascend"));
  CHECK(says(problem(good, 0), "ranks"));
}

TEST_CASE("segments with an impossible table say what is wrong") {
  const std::array<run, 2> good{{{0, 2, 1}, {2, 2, 1}}}, beyond{{{0, 2, 1}, {3, 2, 1}}}, still{{{0, 2, 0}, {2, 2, 1}}},
      negative{{{0, -2, 1}, {2, 2, 1}}};
  const std::array<index_t, 2> no_runs{0, 0};
  const std::array<index_t, 3> offsets{0, 1, 2}, wrong_end{0, 1, 3}, falling{0, 3, 2};
  CHECK(problem_of(segments{good, offsets}) == nullptr);
  CHECK(problem_of(segments{{}, no_runs}) == nullptr);
  CHECK(says(problem_of(segments{good, {}}), "one entry more"));
  CHECK(says(problem_of(segments{good, wrong_end}), "ascend from 0"));
  CHECK(says(problem_of(segments{good, falling}), "ascend from 0"));
  CHECK(says(problem_of(segments{beyond, offsets}), "leaves 0"));
  CHECK(says(problem_of(segments{still, offsets}), "step"));
  CHECK(says(problem_of(segments{negative, offsets}), "count"));
}

TEST_CASE("layouts are equal when they deal alike, whatever the tokens of a prototype or the place of a table") {
  const std::array<index_t, 3> a{0, 3, 9}, b{0, 3, 9}, c{0, 4, 9};
  const auto documents = [](const auto& bounds, index_t tokens) {
    return per_document{bounds, zigzag{.tokens = tokens, .ranks = 2}};
  };
  CHECK(documents(a, 0) == documents(b, 5));
  CHECK(documents(a, 0) != documents(c, 0));
  const auto mesh = [](index_t tokens, axis inside) {
    return nested{zigzag{.tokens = 16, .ranks = 2}, contiguous{.tokens = tokens, .ranks = 2}, inside};
  };
  CHECK(mesh(0, axis::ring) == mesh(16, axis::ring));
  CHECK(mesh(0, axis::ring) != mesh(0, axis::all_to_all));
  const std::array<run, 1> r{{{0, 4, 1}}}, s{{{0, 4, 1}}}, t{{{3, 4, -1}}};
  const std::array<index_t, 2> offsets{0, 1};
  CHECK(segments{r, offsets} == segments{s, offsets});
  CHECK(segments{r, offsets} != segments{t, offsets});
  CHECK(zigzag{.tokens = 8, .ranks = 2} != zigzag{.tokens = 8, .ranks = 2, .rule = uneven::ceil_each});
}
