// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any number of heads and kv heads over any number of ranks, any head width.
#include <tests/attention/cases.hpp>
#include <tests/support/sanitized.hpp>

namespace seqpar::test {
namespace {

const golden h7{1.41809857, 76.01213432, 0.86268363, 0.29003217, -0.34592592};
const golden h20{1.29228403, 340.61620611, 1.54341230, -0.94510912, 0.28292287};
const golden g8_2{2.18223451, 84.83947897, -0.87461811, -0.88841860, -3.68141009};
const golden g28_7{-2.29018385, 308.42570081, 0.04741337, -0.65704413, -2.73281605};
const golden mla8{3.23131083, 43.70503619, -0.36019328, -0.24992049, 0.97892209};
const golden d72{-5.63022935, 13.03035819, 1.10802500, 0.25650144, -4.42803085};
const golden d96{-0.89105938, 14.42978384, -1.89493269, 0.48934821, -9.49858310};
const golden d192{-3.92227917, 14.19861631, -3.80515102, 3.38695997, -2.07166849};
const golden d256{-0.35446736, 13.29081929, -0.46402027, -0.81839128, 11.66425323};

/// Heads and kv heads of every member of an all-to-all over `ranks`.
std::vector<std::pair<interval, interval>> heads_over(int ranks, index_t heads, index_t kv_heads) {
  std::vector<std::pair<interval, interval>> all;
  for (int r = 0; r < ranks; ++r) {
    std::vector<recorded_message> log;
    const auto plan = plan_attention<float>(all_to_all(recorder(r, ranks, log)), contiguously(8, ranks), see_past,
                                            {.heads = heads, .kv_heads = kv_heads, .head_dim = 4});
    all.push_back({plan.setup().heads, plan.setup().kv_heads});
  }
  return all;
}

attention_case of(index_t tokens, index_t heads, index_t kv_heads, index_t dim, any_mask mask, golden sums) {
  return {.tokens = tokens,
          .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim},
          .mask = std::move(mask),
          .sums = sums};
}

}  // namespace

TEST_CASE("heads that do not divide are shared out once each, the first members take one more [C1]") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t heads = 1; heads <= 20; ++heads) {
      const auto all = heads_over(ranks, heads, heads);
      index_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const interval mine = all[static_cast<std::size_t>(r)].first;
        CHECK(mine.size() == heads / ranks + (r < heads % ranks));
        if (!mine.empty()) CHECK(mine.lo == next);
        next += mine.size();
      }
      CHECK(next == heads);
    }
  attention_case c = of(8, 7, 7, 4, see_past, h7);
  c.ranks = {1, 2, 4, 8};
  check_everywhere(c);
  c = of(8, 20, 20, 4, see_all, h20);
  c.ranks = {3, 8};
  check_everywhere(c);
}

TEST_CASE("a problem gives the same bits whatever other head counts the process has seen before [C2]") {
  const std::vector<std::pair<index_t, index_t>> heads{{7, 7}, {12, 3}, {12, 12}};
  std::vector<outcome<float>> first;
  for (int again = 0; again < 3; ++again)
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const attention_case c{.tokens = 8,
                             .shape = {.heads = heads[i].first, .kv_heads = heads[i].second, .head_dim = 4},
                             .mask = see_past};
      const problem p = c.at(contiguously, 4, {.ring = 1, .all_to_all = 4}, schedule::direct);
      const tensors in = recipe_tensors(p);
      const outcome<float> got = run_problem<float>(p, in);
      CHECK(fault_of(p, got, definition<float>(p, in)) == "");
      if (again == 0)
        first.push_back(got);
      else
        CHECK(same_bits(got, first[i]));
    }
  for (const auto& [mine, kv] : heads_over(4, 12, 12)) CHECK((mine.size() == 3 && kv == mine));
  for (const auto& [mine, kv] : heads_over(4, 12, 3)) CHECK(mine.size() == 3);
}

TEST_CASE("fewer kv heads than ranks: members share one, and its gradient is the sum of their parts [C3]") {
  attention_case c = of(8, 8, 2, 4, see_past, g8_2);
  c.ranks = {2, 3, 4, 8};
  check_everywhere(c);
}

TEST_CASE("28 heads over 7 kv heads keep their ratio on ranks whose heads begin in the middle of a group [C4]") {
  attention_case c = of(6, 28, 7, 4, see_all, g28_7);
  c.ranks = {2, 3, 4, 8};
  check_everywhere(c);
}

TEST_CASE("query head h uses kv head h / (heads / kv heads), on every rank [C5]") {
  attention_case c{.tokens = 5, .shape = {.heads = 4, .kv_heads = 2, .head_dim = 3}, .mask = see_all};
  tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  std::fill(in.q.begin(), in.q.end(), 0.f);
  for (std::size_t i = 0; i < in.v.size(); ++i) in.v[i] = static_cast<float>(i / 3 % 2);
  c.inputs = in;
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    for (std::size_t i = 0; i < got.out.size(); ++i)
      if (std::abs(got.out[i] - static_cast<float>(i / 3 % 4 / 2)) > 1e-6f) return std::string("not interleaved");
    return std::string();
  });
  const auto members = heads_over(4, 8, 2);
  for (int r = 0; r < 4; ++r) CHECK(members[static_cast<std::size_t>(r)].second == interval{r / 2, r / 2 + 1});
  // a member's kv heads are exactly those that its query heads use
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t kv : {1, 2, 3, 4, 6, 12})
      for (const auto& [mine, used] : heads_over(ranks, 12, kv)) {
        const index_t ratio = 12 / kv;
        CHECK(used == (mine.empty() ? interval{} : interval{mine.lo / ratio, (mine.hi - 1) / ratio + 1}));
      }
}

TEST_CASE("every number of heads over every number of kv heads that divides it gives the definition [C1] [C3]") {
  int turn = 0;
  for (index_t heads = 1; heads <= 12; ++heads)
    for (index_t kv = 1; kv <= heads; ++kv) {
      if (heads % kv != 0) continue;
      attention_case c{.tokens = 7, .shape = {.heads = heads, .kv_heads = kv, .head_dim = 3}, .mask = see_past};
      c.deals = {every_deal[static_cast<std::size_t>(++turn % 3)]};
      c.ranks = {turn % 8 + 1};
      check_everywhere(c);
    }
}

TEST_CASE("values may be narrower or wider than queries and keys, with shared kv heads [C6]") {
  attention_case c = of(8, 4, 2, 6, see_past, mla8);
  c.shape.value_dim = 4;
  check_everywhere(c);
  c.sums = {};
  c.shape.value_dim = 11;
  check_everywhere(c);
}

TEST_CASE("head widths of 72, 96, 192 and 256 come out as published [C7]") {
  for (const auto& [dim, sums] : {std::pair{72, d72}, {96, d96}, {192, d192}, {256, d256}}) {
    attention_case c = of(6, 2, 2, dim, see_past, sums);
    c.ranks = {1, 2, 4};
    check_everywhere(c);
  }
}

TEST_CASE("every head width from 1 to 256 gives the definition [C7]") {
  for (index_t dim = 1; dim <= 256; dim += under_tsan ? 15 : 1) {  // ranks do the same at every width
    attention_case c{.tokens = 5, .shape = {.heads = 2, .kv_heads = 1, .head_dim = dim}, .mask = see_past};
    c.shape.value_dim = dim % 3 == 0 ? 257 - dim : 0;
    c.ranks = {dim % 2 == 0 ? 2 : 4};
    c.deals = {in_zigzag};
    if (dim > 40 && dim % 7 != 0) c.meshes = only_ring;
    check_everywhere(c);
  }
}

}  // namespace seqpar::test
