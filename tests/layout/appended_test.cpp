// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A growing cache is a layout at every length, and growing moves no row.
#include <doctest/doctest.h>
#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/explain.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <string>
#include "tests/layout/shards.hpp"

using namespace seqpar;
using namespace layout_test;

namespace {

using cache = appended<zigzag>;
static_assert(sequence_layout<cache> && explain_layout<cache>() && has_runs<cache> && resizable_layout<cache>);
static_assert(broken_layout_law(appended{zigzag{.tokens = 7, .ranks = 3}, 11, 2}) == nullptr);
static_assert(appended{zigzag{.tokens = 7, .ranks = 3}}.token_count() == 7);
static_assert(appended{zigzag{.tokens = 7, .ranks = 3}, 2}.grown(3) == appended{zigzag{.tokens = 7, .ranks = 3}, 5});

template <class L>
void keeps_laws(const L& layout) {
  const char* law = broken_layout_law(layout);
  if (law == nullptr) law = broken_layout_law_sampled(layout, 3, 5);
  CAPTURE(layout.token_count());
  CAPTURE(layout.rank_count());
  REQUIRE_MESSAGE(law == nullptr, std::string(law == nullptr ? "" : law));
}

/// f(cache) for any prefill, length and granule, P = 1 … 8.
template <class F>
void for_all_caches(F f) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t prefill : {0, 1, 5, 16, 33})
      for (index_t added : {0, 1, 2, 9, 20, 64})
        for (index_t granule : {1, 2, 5}) {
          f(appended{contiguous{.tokens = prefill, .ranks = ranks}, added, granule});
          f(appended{zigzag{.tokens = prefill, .ranks = ranks}, added, granule});
          f(appended{striped{.tokens = prefill, .ranks = ranks}, added, granule});
        }
}

}  // namespace

TEST_CASE("a cache keeps the layout laws behind every prefill, at every length and granule") {
  for_all_caches([](const auto& layout) {
    keeps_laws(layout);
    for (int rank = 0; rank < layout.rank_count(); ++rank)  // the seam costs no run
      REQUIRE(runs_of(layout, rank) <= runs_of(layout.prefill, rank) +
                                           runs_of(striped{layout.added, layout.rank_count(), layout.granule}, rank));
  });
  keeps_laws(appended{nested{zigzag{.tokens = 19, .ranks = 2}, contiguous{.tokens = 0, .ranks = 3}}, 10, 2});
  keeps_laws(appended{appended{zigzag{.tokens = 9, .ranks = 4}, 6, 1}, 10, 3});
}

TEST_CASE("a cache of 2^40 tokens keeps the laws by sample") {
  const index_t n = index_t{1} << 40;
  for (index_t granule : {1, 16}) {
    const appended layout{zigzag{.tokens = n, .ranks = 7}, n + 3, granule};
    const char* law = broken_layout_law_sampled(layout, 11, 1000);
    CHECK_MESSAGE(law == nullptr, std::string(law == nullptr ? "" : law));
  }
  CHECK(broken_run_law(appended{zigzag{.tokens = n, .ranks = 7}, n + 3}) == nullptr);
}

TEST_CASE("growing moves no row: what a rank held it holds at the same rows, and the new tokens stand behind") {
  for_all_caches([](const auto& before) {
    const auto after = before.grown(7);
    REQUIRE(after.token_count() == before.token_count() + 7);
    for (int rank = 0; rank < before.rank_count(); ++rank)
      for (index_t i = 0; i < before.count_of(rank); ++i)
        REQUIRE(after.global_of(rank, i) == before.global_of(rank, i));
    for (index_t t = before.token_count(); t < after.token_count(); ++t) {
      REQUIRE(before.place_of(t) == after.place_of(t));  // known before they come
      REQUIRE(after.place_of(t).local >= before.count_of(after.place_of(t).rank));
    }
  });
}

TEST_CASE("appended tokens go round the ranks from rank 0 in granules, whatever the prefill left") {
  const appended one{contiguous{.tokens = 5, .ranks = 3}, 7};
  CHECK(shards_of(one) == std::vector<shard>{{0, 1, 5, 8, 11}, {2, 3, 6, 9}, {4, 7, 10}});
  const appended two{zigzag{.tokens = 6, .ranks = 3}, 7, 2};
  CHECK(shards_of(two) == std::vector<shard>{{0, 5, 6, 7, 12}, {1, 4, 8, 9}, {2, 3, 10, 11}});
}

TEST_CASE("rows_for is the most rows any rank holds at that length") {
  for_all_caches([](const auto& layout) {
    for (index_t more : {0, 1, 10}) {
      const index_t rows = layout.rows_for(layout.token_count() + more);
      index_t most = 0;
      for (index_t n : counts_of(layout.grown(more))) most = std::max(most, n);
      REQUIRE(rows == most);
    }
  });
  CHECK(appended{zigzag{.tokens = 10, .ranks = 4}}.rows_for(10 + 9) == 6);  // rank 0: 3 and 3
}

TEST_CASE("a cache with a wrong size says so in one sentence") {
  CHECK(appended{zigzag{.tokens = 4, .ranks = 2}, 3, 2}.problem() == nullptr);
  CHECK(appended{zigzag{.tokens = -4, .ranks = 2}}.problem() != nullptr);
  CHECK(appended{zigzag{.tokens = 4, .ranks = 2}, -1}.problem() != nullptr);
  CHECK(appended{zigzag{.tokens = 4, .ranks = 2}, 1, 0}.problem() != nullptr);
  CHECK(appended{zigzag{.tokens = 4, .ranks = 0}, 1}.problem() != nullptr);
  CHECK(appended{zigzag{.tokens = 4, .ranks = 2}, unbounded - 4}.problem() == nullptr);
  CHECK(appended{zigzag{.tokens = 4, .ranks = 2}, unbounded - 3}.problem() != nullptr);
  static_assert(appended{zigzag{.tokens = unbounded, .ranks = 2}, unbounded}.problem() != nullptr);  // no overflow
}
