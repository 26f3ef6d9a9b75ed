// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The laws of every shipped mask by brute force, and that the laws bite.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

using namespace seqpar;

namespace {

/// Every pair of lengths up to `most`, and two larger ones.
template <class M>
void holds(const M& mask, index_t most = 9) {
  const auto try_lengths = [&](index_t q_tokens, index_t k_tokens) {
    const char* broken = broken_mask_law(mask, q_tokens, k_tokens, reach_law::exact);
    CAPTURE(q_tokens);
    CAPTURE(k_tokens);
    if (broken) FAIL_CHECK(std::string(broken));
  };
  for (index_t q = 0; q <= most; ++q)
    for (index_t k = 0; k <= most; ++k) try_lengths(q, k);
  try_lengths(12, 11);
  try_lengths(9, 12);
}

std::string broken(const char* law) {
  return law ? law : "none";
}

}  // namespace

TEST_CASE("full, causal and window obey the laws for all lengths and parameters") {
  holds(full{});
  for (const alignment align : {alignment::bottom_right, alignment::top_left}) {
    holds(causal{.align = align});
    for (index_t left = 0; left < 6; ++left)
      for (index_t right = 0; right < 6; ++right) holds(window{.left = left, .right = right, .align = align}, 8);
    holds(window{.left = unbounded, .right = 0, .align = align});
    holds(window{.left = 2, .right = INT64_MAX, .align = align});
    holds(window{.left = INT64_MAX, .right = INT64_MAX, .align = align});
  }
}

TEST_CASE("block causal and teacher forcing obey the laws for every block, ragged or not") {
  for (index_t block = 1; block < 9; ++block) {
    CAPTURE(block);
    holds(block_causal{.block = block});
    for (index_t clean = 0; clean < 8; ++clean) holds(teacher_forcing{.clean = clean, .block = block}, 9);
  }
  holds(block_causal{.block = unbounded});
  holds(teacher_forcing{.clean = 5, .block = INT64_MAX});
}

TEST_CASE("first keys, prefix and padding obey the laws for all sizes") {
  for (index_t n = 0; n < 9; ++n) {
    holds(first_keys{.count = n});
    holds(prefix_lm{.prefix = n});
    holds(valid{.keys = n});
    for (index_t queries = 0; queries < 9; ++queries) holds(valid{.queries = queries, .keys = n}, 8);
  }
  holds(first_keys{.count = unbounded});
  holds(valid{.keys = unbounded});
}

TEST_CASE("documents obey the laws for every packing of up to four documents, empty ones included") {
  for (index_t code = 0; code < 3 * 3 * 3 * 3; ++code) {
    const index_t a = code % 3, b = code / 3 % 3, c = code / 9 % 3, d = code / 27;
    const std::vector<index_t> bounds = pack({a, 2 * b, c, d}), others = pack({b, c, 2 * d, a});
    holds(documents{bounds}, 7);
    holds(documents{.q_bounds = bounds, .k_bounds = others}, 7);
  }
  const std::vector<index_t> none = pack({});
  holds(documents{none});
}

TEST_CASE("any mask inside documents obeys the laws") {
  const std::vector<index_t> bounds = pack({3, 0, 5, 1}), others = pack({2, 2, 4, 0}), pairs = pack({4, 6});
  for (const documents docs : {documents{bounds}, documents{.q_bounds = bounds, .k_bounds = others}}) {
    holds(within{docs, full{}}, 8);
    holds(within{docs, causal{}}, 8);
    holds(within{docs, causal{.align = alignment::top_left}}, 8);
    holds(within{docs, window{.left = 1, .right = 1}}, 8);
    holds(within{docs, block_causal{.block = 2}}, 8);
    holds(within{docs, first_keys{.count = 2}}, 8);
    holds(within{docs, prefix_lm{.prefix = 2}}, 8);
    holds(within{docs, valid{.queries = 2, .keys = 3}}, 8);
    holds(within{documents{pairs}, within{docs, causal{}}}, 8);
  }
  holds(within{documents{pairs}, teacher_forcing{.clean = 2, .block = 1}}, 8);
}

namespace {
/// Causal, and one mistake that a law must name.
struct right {
  constexpr bool allows(index_t q, index_t k) const { return k <= q; }
  constexpr interval_pair key_intervals(index_t q) const { return {{0, q + 1}, {}}; }
};
struct intervals_short : right {
  constexpr interval_pair key_intervals(index_t q) const { return {{0, q}, {}}; }
};
struct intervals_overlap : right {
  constexpr interval_pair key_intervals(index_t q) const { return {{0, q + 1}, {q, q + 1}}; }
};
struct intervals_too_many : right {
  static constexpr int max_intervals = 1;
  constexpr bool allows(index_t q, index_t k) const { return k == 0 || (k == q && q > 1); }
  constexpr interval_pair key_intervals(index_t q) const { return {{0, 1}, {q > 1 ? q : 0, q > 1 ? q + 1 : 0}}; }
};
struct covers_none_wrong : right {
  constexpr cover covers(interval q, interval k) const { return k.lo >= q.lo ? cover::none : cover::some; }
};
struct covers_all_wrong : right {
  constexpr cover covers(interval q, interval k) const { return k.lo <= q.lo ? cover::all : cover::some; }
};
struct reach_short : right {
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    f(interval{0, q.hi - 1});
  }
};
struct reach_wide : right {
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    f(interval{0, q.hi + 1});
  }
};
struct band_descends : right {
  constexpr bool allows(index_t q, index_t k) const { return q < 2 && k <= q; }
  constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr interval band(index_t q) const { return q < 2 ? interval{0, q + 1} : interval{}; }
};
}  // namespace

TEST_CASE("a broken mask is told by the name of its law") {
  CHECK(broken(broken_mask_law(right{}, 6, 6, reach_law::exact)) == "none");
  CHECK(broken(broken_mask_law(intervals_short{}, 6, 6)) == mask_law::intervals);
  CHECK(broken(broken_mask_law(intervals_overlap{}, 6, 6)) == mask_law::normal);
  CHECK(broken(broken_mask_law(intervals_too_many{}, 6, 6)) == mask_law::normal);
  CHECK(broken(broken_mask_law(covers_none_wrong{}, 6, 6)) == mask_law::none);
  CHECK(broken(broken_mask_law(covers_all_wrong{}, 6, 6)) == mask_law::all);
  CHECK(broken(broken_mask_law(reach_short{}, 6, 6)) == mask_law::reach);
  CHECK(broken(broken_mask_law(reach_wide{}, 6, 6)) == "none");
  CHECK(broken(broken_mask_law(reach_wide{}, 6, 6, reach_law::exact)) == mask_law::exact_reach);
  CHECK(broken(broken_mask_law(band_descends{}, 6, 6)) == mask_law::band);
}

TEST_CASE("a wrong size is told by the mask") {
  const auto said = [](const auto& mask) { return broken(problem_of(mask)); };
  CHECK(said(full{}) == "none");
  CHECK(said(causal{}) == "none");
  CHECK(said(window{.left = 0, .right = 0}) == "none");
  CHECK(said(window{.left = -1, .right = 0}).starts_with("window: "));
  CHECK(said(window{.left = 0, .right = -1}).starts_with("window: "));
  CHECK(said(block_causal{.block = 0}).starts_with("block_causal: "));
  CHECK(said(teacher_forcing{.clean = -1, .block = 1}).starts_with("teacher_forcing: clean"));
  CHECK(said(teacher_forcing{.clean = 4, .block = 0}).starts_with("teacher_forcing: block"));
  CHECK(said(first_keys{.count = -1}).starts_with("first_keys: "));
  CHECK(said(prefix_lm{.prefix = -1}).starts_with("prefix_lm: "));
  CHECK(said(valid{.keys = -1}).starts_with("valid: "));
  CHECK(said(valid{.queries = -1, .keys = 1}).starts_with("valid: "));
  const std::vector<index_t> good = pack({2, 0, 3}), descends = pack({2, -1}), late{1, 2}, shorter = pack({5});
  CHECK(said(documents{good}) == "none");
  CHECK(said(documents{}).find("one more") != std::string::npos);
  CHECK(said(documents{.q_bounds = good, .k_bounds = shorter}).find("one more") != std::string::npos);
  CHECK(said(documents{late}).find("first bound") != std::string::npos);
  CHECK(said(documents{descends}).find("descend") != std::string::npos);
  CHECK(said(documents{.q_bounds = shorter, .k_bounds = late}).find("first bound") != std::string::npos);
  CHECK(said(within{documents{descends}, causal{}}).starts_with("documents: "));
  CHECK(said(within{documents{good}, block_causal{.block = 0}}).starts_with("block_causal: "));
}

TEST_CASE("masks are values that compare") {
  const std::vector<index_t> one = pack({2, 3}), same = pack({2, 3}), other = pack({3, 2});
  CHECK(documents{one} == documents{same});
  CHECK_FALSE(documents{one} == documents{other});
  CHECK(within{documents{one}, causal{}} == within{documents{same}, causal{}});
  CHECK_FALSE(window{.left = 1, .right = 0} == window{.left = 2, .right = 0});
  CHECK_FALSE(causal{} == causal{}.bound(2, 5));
}

TEST_CASE("a rebound mask reads the kept copy of its tables, one copy if both sides share one") {
  std::vector<index_t> bounds = pack({2, 3}), k_bounds = pack({4, 1});
  std::vector<std::vector<index_t>> kept;
  kept.reserve(4);
  const auto keep = [&](std::span<const index_t> table) {
    kept.emplace_back(table.begin(), table.end());
    return std::span<const index_t>(kept.back());
  };
  const auto shared = rebound(within{documents{bounds}, causal{}}, keep);
  CHECK(kept.size() == 1);
  const auto apart = rebound(within{documents{.q_bounds = bounds, .k_bounds = k_bounds}, causal{}}, keep);
  CHECK(kept.size() == 3);
  bounds.assign(bounds.size(), 0);
  k_bounds.assign(k_bounds.size(), 0);
  CHECK(shared.key_intervals(4) == interval_pair{{2, 5}, {}});
  CHECK(apart.key_intervals(1) == interval_pair{{0, 4}, {}});
}
