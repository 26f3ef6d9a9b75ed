// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which queries must visit which block of keys.
#include <doctest/doctest.h>

#include <string>

#include <seqpar/attention/query_rounds.hpp>
#include <seqpar/seqpar.hpp>

namespace seqpar::test {
namespace {

using blocks = std::vector<std::vector<run>>;

template <class L>
blocks blocks_of(const L& layout) {
  blocks all(static_cast<std::size_t>(layout.rank_count()));
  for (int r = 0; r < layout.rank_count(); ++r)
    for_each_run(layout, r, [&](run x) { all[static_cast<std::size_t>(r)].push_back(x); });
  return all;
}

/// The first query that is found for a block though it sees none of its keys, or the other way round; "" if none.
template <class M, class L>
std::string fault_of(const M& unbound, index_t queries, const L& layout) {
  const index_t keys = layout.token_count();
  const auto mask = bound(unbound, queries, keys);
  const blocks all = blocks_of(layout);
  std::vector<std::vector<interval>> found;
  for (auto& set : detail::seer_search(mask, all, keys).among({0, queries})) found.push_back(set.parts());
  for (std::size_t b = 0; b < all.size(); ++b)
    for (index_t q = 0; q < queries; ++q) {
      bool sees = false, is_found = false;
      for (const run& r : all[b])
        for (index_t i = 0; i < r.count; ++i) sees = sees || mask.allows(q, r.at(i));
      for (const interval& i : found[b]) is_found = is_found || i.contains(q);
      if (sees != is_found) return "block " + std::to_string(b) + ", query " + std::to_string(q);
    }
  return "";
}
template <class M>
void check(const M& mask) {
  for (const index_t queries : {1, 7, 64, 130})
    for (const index_t keys : {0, 1, 5, 64, 97}) {
      CAPTURE(queries);
      CAPTURE(keys);
      CHECK(fault_of(mask, queries, zigzag{.tokens = keys, .ranks = 3}) == "");
      CHECK(fault_of(mask, queries, striped{.tokens = keys, .ranks = 5, .granule = 2}) == "");
    }
}

/// The same mask, which says intervals and nothing else.
template <class M>
struct by_intervals {
  M inner;
  bool allows(index_t q, index_t k) const { return inner.allows(q, k); }
  interval_pair key_intervals(index_t q) const { return inner.key_intervals(q); }
};
template <class M>
by_intervals(M) -> by_intervals<M>;

/// Counts how often it is asked.
template <class M>
struct counted {
  M inner;
  index_t* asked;
  bool allows(index_t q, index_t k) const { return inner.allows(q, k); }
  cover covers(interval q, interval k) const {
    ++*asked;
    return inner.covers(q, k);
  }
  template <class F>
  void reach(interval q, F&& f) const {
    ++*asked;
    inner.reach(q, f);
  }
};

}  // namespace

TEST_CASE("the queries that visit a block are those that may see one of its keys, and no other") {
  const std::vector<index_t> bounds = pack({20, 30, 50, 30});
  const documents docs{bounds};
  check(full{});
  check(causal{});
  check(window{.left = 5, .right = 0});
  check(window{.left = 3, .right = 2, .align = alignment::top_left});
  check(block_causal{.block = 4});
  check(prefix_lm{6});
  check(first_keys{3});
  check(valid{.queries = 50, .keys = 40});
  check(within{docs, causal{}});
  check(within{docs, all_of{causal{}, window{.left = 4, .right = 0}}});
  check(any_of{first_keys{2}, all_of{causal{}, window{.left = 6, .right = 0}}});
  check(all_of{docs, valid{.queries = 60, .keys = 44}, causal{}});
  for (const index_t block : {1, 4, 5, 48})
    CHECK(fault_of(teacher_forcing{.clean = 48, .block = block}, 96, zigzag{.tokens = 96, .ranks = 4}) == "");
}

TEST_CASE("the same queries visit where a mask says no more than the intervals of each query") {
  const std::vector<index_t> bounds = pack({20, 30, 50, 30});
  check(by_intervals{window{.left = 5, .right = 0}});
  check(by_intervals{window{.left = 3, .right = 2, .align = alignment::top_left, .offset = 9}});
  check(by_intervals{within{documents{bounds}, causal{}}});
  check(by_intervals{any_of{first_keys{2}, all_of{causal{}, window{.left = 6, .right = 0}}}});
}

TEST_CASE("who must visit is found by asking the mask a number of times that grows with runs, not with tokens") {
  for (const index_t tokens : {index_t{1} << 10, index_t{1} << 40}) {
    index_t asked = 0;
    const counted<causal> mask{{}, &asked};
    auto found = detail::seer_search(mask, blocks_of(zigzag{.tokens = tokens, .ranks = 64}), tokens).among({0, tokens});
    CHECK(found[63].parts() == std::vector<interval>{{63 * (tokens / 128), tokens}});
    CHECK(asked < 64 * 64);
  }
}

TEST_CASE("where queries see few of many blocks each, they are asked no more than twice in the mean") {
  index_t asked = 0;
  const index_t tokens = 1 << 14;
  const counted<window> mask{{.left = 3, .right = 0}, &asked};
  auto found = detail::seer_search(mask, blocks_of(striped{.tokens = tokens, .ranks = 64}), tokens).among({0, tokens});
  CHECK(found[5].parts().size() == tokens / 64);
  CHECK(found[5].parts()[1] == interval{64 + 5, 64 + 9});
  CHECK(asked < 2 * tokens);
}

TEST_CASE("the last row that is held in an interval is found among runs of any order and step") {
  const holding h = detail::packed_rows({{40, 5, -3}, {0, 4, 1}, {100, 10, 7}, {50, 1, 1}, {101, 3, 7}}, {0, 1});
  const detail::holding_index index(h);
  for (index_t lo = 0; lo < 180; ++lo)
    for (index_t hi = lo + 1; hi < 181; ++hi) {
      index_t last = -1;
      for (const row_piece& p : h.pieces)
        for (index_t i = 0; i < p.rows.count; ++i)
          if (p.rows.at(i) >= lo && p.rows.at(i) < hi) last = std::max(last, p.rows.at(i));
      if (index.last_in({lo, hi}) != last) FAIL_CHECK("[" << lo << ", " << hi << ")");
    }
}

}  // namespace seqpar::test
