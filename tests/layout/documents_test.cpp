// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Documents and copies pass through every layout that contains another.
#include <doctest/doctest.h>
#include <array>
#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <string>
#include <vector>
#include "tests/layout/shards.hpp"
#include "tests/support/layouts.hpp"

using namespace seqpar;
using seqpar::test::swapped;

namespace {

constexpr std::array<index_t, 5> bounds{0, 5, 5, 11, 12};
constexpr per_document<zigzag> dealt{bounds, {.tokens = 0, .ranks = 2}};
constexpr contiguous members{.tokens = 0, .ranks = 3};
using list = std::vector<index_t>;

template <class L>
list documents_of(const L& layout) {
  const char* law = broken_layout_law(layout);
  REQUIRE_MESSAGE(law == nullptr, std::string(law == nullptr ? "" : law));
  list ends{0};
  while (ends.back() < layout.token_count()) ends.push_back(document_at(layout, ends.back()).hi);
  return ends;
}

/// Documents 0 1 2 and 2 3 share a position.
struct overlapping : zigzag {
  constexpr interval document_at(index_t g) const { return g < 2 ? interval{0, 3} : interval{2, 4}; }
};

static_assert(!has_documents<zigzag> && !has_documents<nested<zigzag, contiguous>> &&
              !has_documents<appended<zigzag>> && !has_documents<reordered<swapped, zigzag>>);
static_assert(!has_copies<zigzag> && !has_copies<nested<zigzag, contiguous>> &&
              has_copies<nested<paired<zigzag>, contiguous>>);
static_assert(time_of(paired<per_document<zigzag>>{dealt}, 12 + 5) == 0);

}  // namespace

TEST_CASE("a layout without documents is one, of all its tokens") {
  CHECK(documents_of(zigzag{.tokens = 7, .ranks = 2}) == list{0, 7});
  CHECK(documents_of(zigzag{.tokens = 0, .ranks = 2}) == list{0});
  CHECK(time_of(zigzag{.tokens = 7, .ranks = 2}, 6) == 6);
}

TEST_CASE("documents and copies pass through every layout that contains another") {
  const list once{0, 5, 11, 12}, twice{0, 5, 11, 12, 17, 23, 24};
  const paired<per_document<zigzag>> pair{dealt};
  CHECK(documents_of(dealt) == once);
  CHECK(documents_of(paired{zigzag{.tokens = 5, .ranks = 2}}) == list{0, 5, 10});
  CHECK(documents_of(pair) == twice);
  CHECK(documents_of(nested{dealt, members}) == once);
  CHECK(documents_of(nested{pair, members, axis::ring}) == twice);
  CHECK(documents_of(paired<nested<per_document<zigzag>, contiguous>>{{dealt, members}}) == twice);
  CHECK(documents_of(reordered{swapped{6, 9}, dealt}) == once);
  CHECK(documents_of(nested{reordered{swapped{6, 9}, dealt}, members}) == once);
  CHECK(documents_of(paired<paired<zigzag>>{paired<zigzag>{{.tokens = 3, .ranks = 2}}}) == list{0, 3, 6, 9, 12});
}

TEST_CASE("tokens behind a prefill go on with its last document, those to come as well") {
  const appended cache{dealt, 4};
  CHECK(documents_of(cache) == list{0, 5, 11, 16});
  CHECK(time_of(cache, 12) == 1);
  CHECK(time_of(cache, 20) == 9);
  CHECK(documents_of(appended{dealt}) == list{0, 5, 11, 12});
  CHECK(documents_of(appended{paired{zigzag{.tokens = 3, .ranks = 2}}, 2}) == list{0, 3, 8});
  const std::array<index_t, 2> none{0, 0};
  CHECK(documents_of(appended{per_document<zigzag>{none, {.tokens = 0, .ranks = 2}}, 3}) == list{0, 3});
}

TEST_CASE("which copy a token is of passes through a mesh") {
  const nested layout{paired<zigzag>{{.tokens = 6, .ranks = 2}}, members};
  for (index_t g = 0; g < 12; ++g) CHECK(layout.is_noisy(g) == (g >= 6));
}

TEST_CASE("documents that overlap, or that an order takes apart, break the law of documents") {
  CHECK(broken_layout_law(overlapping{{.tokens = 4, .ranks = 2}}) == layout_law::documents);
  CHECK(broken_layout_law(reordered{swapped{4, 6}, dealt}) == layout_law::documents);
  CHECK(broken_layout_law(reordered{layout_test::backwards{12}, dealt}) == layout_law::documents);
}
