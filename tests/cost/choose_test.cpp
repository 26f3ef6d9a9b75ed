// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which layout, mesh and schedule comes first, and why.
#include <doctest/doctest.h>
#include <cstdio>
#include <seqpar/cost.hpp>
#include <tests/cost/documents.hpp>
#include <tests/support/any.hpp>

namespace seqpar::test {
namespace {

machine box(double flops = 1e12, double bandwidth = 1e10, int per_node = 0) {
  return {.flops = flops, .inside = {1e-6, bandwidth}, .across = {5e-6, bandwidth / 8}, .ranks_per_node = per_node};
}
const attention_shape grouped{.heads = 8, .kv_heads = 2, .head_dim = 64};
const attention_shape plain{.heads = 8, .kv_heads = 8, .head_dim = 64};

struct sees_thirds {  // more intervals than a table has
  bool allows(index_t q, index_t k) const { return (q + k) % 3 == 0; }
};

const candidate& find(const std::vector<candidate>& all, const std::string& layout, index_t ring) {
  for (const candidate& c : all)
    if (c.layout == layout && c.team.ring == ring) return c;
  FAIL("no " << layout);
  return all.front();
}

}  // namespace

TEST_CASE("no run on paper is faster than its candidate's least time, on one node or several") {
  const std::vector<index_t> bounds = pack(document_lengths(4));
  const auto check = [&](const auto& mask, const attention_shape& shape, const machine& m) {
    const auto all = choose<bfloat16>(
        mask, shape, m, {.tokens = 2048, .ranks = 4, .attention = {.passes = forward_backward}, .simulate = 99});
    CHECK(all.size() > 8);
    double before = 0;
    for (const candidate& c : all) {
      INFO(c.why);
      CHECK(c.seconds >= c.least);
      CHECK(c.seconds >= before);
      CHECK(c.memory_bytes > 0);
      CHECK(c.balance >= 1);
      before = c.seconds;
    }
  };
  for (const machine& m : {box(), box(1e10), box(1e14, 1e9), box(1e12, 1e10, 2), box(1e16, 1e9, 2)})
    check(any_mask(within{documents{bounds}, causal{}}), grouped, m);
  check(any_mask(causal{}), plain, box(1e11, 1e10, 2));
  const auto by_queries =
      choose<bfloat16>(any_mask(causal{}), plain, box(1e14, 1e9),
                       {.tokens = 1024,
                        .ranks = 4,
                        .attention = {.passes = forward_backward, .moves = {side::queries, side::queries}},
                        .simulate = 99});
  for (const candidate& c : by_queries) CHECK((c.seconds == 0 || c.seconds >= c.least));
}

TEST_CASE(
    "where links cost nothing an even layout takes little more than the least time, and where computing does, too") {
  const attention_options both{.passes = forward_backward};
  for (const machine& m : {box(1e9, 1e30), box(1e30, 1e6)}) {
    machine still = m;
    still.inside.latency = 0;
    const auto all = choose<bfloat16>(any_mask(full{}), plain, still, {.tokens = 2048, .ranks = 4, .attention = both});
    CHECK(all.front().seconds < 1.3 * all.front().least);
    CHECK(find(all, "contiguous", 1).least > 0);
  }
}

TEST_CASE("on nodes a double ring has windows of a node, and what the library refuses is left out") {
  const auto all =
      choose<bfloat16>(any_mask(causal{}), grouped, box(1e14, 1e9, 4), {.tokens = 2048, .ranks = 8, .simulate = 99});
  int double_rings = 0;
  for (const candidate& c : all)
    if (c.schedule == schedule::double_ring) {
      ++double_rings;
      CHECK(c.team.ring * c.team.all_to_all == 8);
    }
  CHECK(double_rings > 0);
}

TEST_CASE("slow links: with 4 query heads to a kv head the ring moves least, with one the all-to-all does") {
  const auto first = [](const attention_shape& shape) {
    return choose<bfloat16>(any_mask(full{}), shape, box(1e15, 1e9), {.tokens = 2048, .ranks = 4, .simulate = 2})
        .front();
  };
  CHECK(first({.heads = 32, .kv_heads = 4, .head_dim = 64}).team.ring == 4);
  CHECK(first({.heads = 8, .kv_heads = 8, .head_dim = 64}).team.ring == 1);
}

TEST_CASE("slow processors: causal wants an even layout, never contiguous on a ring") {
  const auto all =
      choose<bfloat16>(any_mask(causal{}), grouped, box(1e9, 1e12), {.tokens = 4096, .ranks = 8, .simulate = 4});
  CHECK(all.front().balance < 1.05);
  CHECK(find(all, "contiguous", 8).least > 1.8 * find(all, "zigzag", 8).least);
  CHECK(find(all, "contiguous", 8).seconds == 0);
}

TEST_CASE("teacher forcing weighs pairs, whose bytes are those of the ring's 0.38") {
  const auto all = choose<bfloat16>(teacher_forcing{.clean = 1024, .block = 32}, grouped, box(1e9, 1e12),
                                    {.tokens = 2048, .ranks = 8, .granule = 32, .simulate = 1});
  const double ring = 7. / 8 * 2048 * 2 * 128 * 2;
  CHECK(find(all, "paired zigzag", 8).received.mean == doctest::Approx(.375 * ring));
  CHECK(find(all, "paired contiguous", 8).received.mean == doctest::Approx(.25 * ring));
  CHECK(find(all, "paired contiguous", 8).balance == doctest::Approx(1.848484848));
  for (int r = 0; r < 8; ++r) CHECK(find(all, "paired zigzag", 4).deal.count_of(r) == 256);
}

TEST_CASE("the first candidate says how to plan it") {
  // [snippet]
  const seqpar::teacher_forcing mask{.clean = 1024, .block = 32};
  const seqpar::attention_shape shape{.heads = 8, .kv_heads = 2, .head_dim = 64};
  const seqpar::machine nodes{.flops = 400e12,          // of one rank's kernel
                              .inside = {5e-6, 200e9},  // seconds, bytes per second and direction
                              .across = {10e-6, 50e9},
                              .ranks_per_node = 4};
  const seqpar::choose_options options{.tokens = 2048, .ranks = 8, .granule = 32};
  const seqpar::candidate best = seqpar::choose<seqpar::bfloat16>(mask, shape, nodes, options).front();
  std::printf("take %s\n", best.why.c_str());
  const seqpar::segments layout = best.deal.view();
  // on every rank: plan_attention<bfloat16>(mesh(world, best.team), layout, mask, shape,
  //                                         attention_of(options, nodes, best))
  // [/snippet]
  CHECK(layout.count_of(7) == 256);
}

TEST_CASE("weighed bytes are those of the traffic law, member for member, forward and back") {
  const mask_pieces pieces(causal{}, 1000, 1000);
  for (const mesh_shape team : {mesh_shape{6, 1}, mesh_shape{3, 2}, mesh_shape{1, 6}})
    for (const reuse kept : {reuse::resend, reuse::saved})
      for (int per_node : {0, 2}) {
        const dealt layout = dealt::from(striped{.tokens = 1000, .ranks = 6, .granule = 7});
        const attention_options options{.passes = forward_backward, .reuse = kept};
        const candidate c = weigh<bfloat16, float>("striped", team, layout, causal{}, grouped,
                                                   box(1e12, 1e10, per_node), options, pieces);
        const needs n(team, layout, causal{}, grouped);
        const visits v(n, causal{}, pieces);
        const double bytes = forward_traffic(n, options, {2, 4, 2}, 0, &v).over_members().mean +
                             backward_traffic(n, options, {2, 4, 2}, 0, &v).over_members().mean;
        CHECK(c.received.mean == doctest::Approx(bytes).epsilon(1e-12));
      }
}

TEST_CASE("every candidate has a sentence, with bytes, balance and time; memory where it ran") {
  const auto all = choose<bfloat16>(any_mask(causal{}), grouped, box(), {.tokens = 256, .ranks = 4, .simulate = 1});
  CHECK(all.front().why.find("MB of memory") != std::string::npos);
  CHECK(all.back().why.find("no schedule is faster than") != std::string::npos);
  for (const candidate& c : all) {
    CHECK(c.why.rfind(c.layout + " on ", 0) == 0);
    CHECK(c.why.find("of the mean work") != std::string::npos);
  }
}

TEST_CASE("layouts of the caller's own are weighed, too, and the granule is never cut") {
  const named_layout own{"mine", dealt::from(striped{.tokens = 240, .ranks = 4, .granule = 60})};
  const auto all = choose<bfloat16>(any_mask(full{}), grouped, box(),
                                    {.tokens = 240, .ranks = 4, .granule = 12, .simulate = 0, .layouts = {own}});
  find(all, "mine", 4);
  find(all, "mine", 2);
  for (const candidate& c : all)
    for (int r = 0; r < 4; ++r)
      c.deal.for_each_run(r, [](run x) {
        CHECK(x.first % 12 == 0);
        CHECK(x.count % 12 == 0);
      });
}

TEST_CASE("nothing to do, nothing to see, more ranks than tokens: an answer that the library plans") {
  const auto plans = [](const auto& mask, index_t tokens, index_t ranks, index_t heads) {
    const attention_shape shape{.heads = heads, .kv_heads = 1, .head_dim = 8};
    for (int simulate : {0, 2}) {
      const candidate c =
          choose<bfloat16>(mask, shape, box(), {.tokens = tokens, .ranks = ranks, .simulate = simulate}).front();
      CHECK(c.balance == c.balance);
      CHECK(c.received.most == c.received.most);
      const mesh team(paper_transport(0, c.team.size()), c.team);
      CHECK(try_plan_attention<bfloat16>(team, c.deal.view(), c.deal.view(), mask, shape, {.schedule = c.schedule},
                                         kernel_on_paper<host_fast>{})
                .ok());
    }
  };
  plans(any_mask(causal{}), 3, 8, 2);
  plans(any_mask(causal{}), 0, 4, 2);
  plans(any_mask(valid{.queries = 0, .keys = 0}), 100, 4, 1);
  plans(any_mask(causal{}), 100, 1, 3);
  plans(any_mask(sees_thirds{}), 60, 3, 2);
  const auto joint =
      choose<bfloat16>(any_mask(causal{}), {.heads = 4, .kv_heads = 2, .head_dim = 8, .joint_q = 5, .joint_kv = 9},
                       box(), {.tokens = 100, .ranks = 4, .simulate = 99});
  for (const candidate& c : joint) CHECK(c.seconds >= c.least);
}

TEST_CASE("what plans refuse is an error here: shapes, masks, layouts; machines without speed; no schedule") {
  const choose_options o{.tokens = 64, .ranks = 4};
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), {.heads = 3, .kv_heads = 2, .head_dim = 8}, box(), o),
                       doctest::Contains("kv_heads must divide heads"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(0), o),
                       doctest::Contains("flops must be above 0"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(1, -1), o),
                       doctest::Contains("bandwidth must be above 0"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(block_causal{.block = 0}), plain, box(), o),
                       doctest::Contains("block counts"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = -1, .ranks = 4}),
                       doctest::Contains("tokens is negative"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = 64, .ranks = 4, .schedules = {}}),
                       doctest::Contains("no schedule"), error);
  const named_layout wrong{"wrong", dealt({{{0, 32, 1}}, {{16, 32, 1}}, {}, {}})};
  CHECK_THROWS_WITH_AS(
      choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = 64, .ranks = 4, .layouts = {wrong}}),
      doctest::Contains("owner"), error);
}

TEST_CASE("1024 ranks and ten million tokens are weighed without a walk over tokens") {
  const index_t tokens = 10'000'000;
  const mask_pieces pieces(causal{}, tokens, tokens);
  for (index_t ring : {1024, 128, 16}) {
    const mesh_shape team{.ring = ring, .all_to_all = 1024 / ring};
    const dealt layout = dealt::from(zigzag{.tokens = tokens, .ranks = 1024});
    const candidate c = weigh<bfloat16>("zigzag", team, layout, causal{}, {.heads = 64, .kv_heads = 8, .head_dim = 128},
                                        box(4e14, 2e11, 8), {}, pieces);
    CHECK(c.balance < 1.01);
    CHECK(c.least > 0);
  }
}

}  // namespace seqpar::test
