// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which layout, mesh and schedule comes first, and why.
#include <doctest/doctest.h>
#include <algorithm>
#include <cstdio>
#include <seqpar/cost.hpp>
#include <set>
#include <tests/cost/apart.hpp>
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
  const auto rings = [](int per_node) {
    const machine m = box(1e14, 1e9, per_node);
    const choose_options o{.tokens = 2048, .ranks = 8, .simulate = 99};
    std::set<index_t> found;
    for (const candidate& c : choose<bfloat16>(any_mask(causal{}), grouped, m, o))
      if (c.schedule == schedule::double_ring) {
        found.insert(c.team.ring);
        const index_t window = attention_of(o, m, c).window;
        CHECK(window == per_node / c.team.all_to_all);
        CHECK(c.seconds > 0);
        for (int member = 0; per_node == 4 && member < 8; ++member) {
          const int r = c.team.ring_of(member), first = r - r % static_cast<int>(window);
          CHECK(m.one_node(member, c.team.member_at(first, c.team.all_to_all_of(member))));
        }
      }
    return found;
  };
  CHECK(rings(4) == std::set<index_t>{8, 4, 2});  // 1 x 8: a group is larger than a node
  CHECK(rings(3) == std::set<index_t>{4});        // 8 x 1: 3 does not divide it
  CHECK(rings(0).empty());
}

TEST_CASE("schedules may stand in any order: what is refused is left out, and the next one takes its place") {
  const auto all = [](std::vector<schedule> schedules, int per_node) {
    machine m = box(1e14, 1e9, per_node);
    m.across = m.inside;
    return choose<bfloat16>(any_mask(full{}), plain, m,
                            {.tokens = 256, .ranks = 8, .schedules = std::move(schedules), .simulate = 1});
  };
  for (schedule other : {schedule::double_ring, schedule::all_gather}) {  // one is refused
    const candidates ahead = all({other, schedule::direct}, 0), behind = all({schedule::direct, other}, 0);
    REQUIRE(ahead.size() == behind.size());
    for (std::size_t i = 0; i < ahead.size(); ++i) CHECK(ahead[i].why == behind[i].why);
    CHECK(ahead.front().schedule == schedule::direct);
    CHECK(ahead.front().team.ring == 1);
    CHECK(ahead.front().seconds > 0);
  }
  // a ring of 1 is the best again, but has no window
  const candidates two_nodes = all({schedule::double_ring}, 4);
  CHECK(two_nodes.front().schedule == schedule::double_ring);
  CHECK(two_nodes.front().seconds > 0);
  CHECK(std::none_of(two_nodes.begin(), two_nodes.end(), [](const candidate& c) { return c.team.ring == 1; }));
  CHECK_THROWS_WITH_AS(all({schedule::double_ring}, 0),
                       doctest::Contains("double_ring needs a machine of several nodes, or a window"), error);
}

TEST_CASE("where queries travel whoever has the keys works: no run is faster than the least time, and balance is so") {
  // all queries are rank 0's, their keys everybody's; links cost nothing
  const any_mask mask(valid{.queries = 128, .keys = 1024});
  const machine m = box(1e9, 1e15);
  const attention_options both{.passes = forward_backward};
  const candidates all =
      choose<bfloat16>(mask, plain, m, {.tokens = 1024, .ranks = 8, .attention = both, .simulate = 99});
  int ran[2] = {};
  for (const candidate& c : all) {
    INFO(c.why);
    CHECK(c.seconds >= c.least);
    if (c.layout != "contiguous" || c.team.ring != 8) continue;
    const bool direct = c.schedule == schedule::direct;
    ++ran[direct];
    CHECK(c.balance == doctest::Approx(direct ? (4. * 8 + 10) / 14 : 8));  // forward keys travel, backward queries
  }
  CHECK(ran[0] == 2);
  CHECK(ran[1] == 1);
  const dealt layout = dealt::from(contiguous{.tokens = 1024, .ranks = 8});
  const auto weighed = [&](const any_mask& which, schedule s) {
    return weigh<bfloat16>("", {8, 1}, layout, which, plain, m, {.passes = forward_backward, .schedule = s},
                           mask_pieces(which, 1024, 1024));
  };
  const double product = 128. * 1024 * 8 * 64 / 1e9;
  CHECK(weighed(mask, schedule::pass_along).least == doctest::Approx(14 * product));
  CHECK(weighed(mask, schedule::direct).least == doctest::Approx((4 + 10. / 8) * product));
  // all keys are rank 0's: backward queries are fewer bytes, but then it does everything, unlike where keys move
  const any_mask head(first_keys{.count = 128});
  CHECK(weighed(head, schedule::direct).balance == doctest::Approx((4 + 10. * 8) / 14));
  CHECK(weighed(head, schedule::direct).least == doctest::Approx(14. / 8 * product));
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
  const seqpar::paired<seqpar::striped> in_turns{{.tokens = 1024, .ranks = 8, .granule = 32}};
  const seqpar::choose_options options{.tokens = 2048,
                                       .ranks = 8,
                                       .granule = 32,
                                       .attention = {.passes = seqpar::forward_backward},
                                       .layouts = {{"paired striped", seqpar::dealt::from(in_turns)}}};
  const seqpar::candidates all = seqpar::choose<seqpar::bfloat16>(mask, shape, nodes, options);
  const seqpar::candidate& best = all.front();
  std::printf("take %s\n", best.why.c_str());
  const seqpar::segments layout = best.deal.view();  // as long as `all` lives
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

TEST_CASE("a layout of the caller's own always runs, on its best mesh, and the first is still the fastest") {
  // uneven; and one head wants a ring, where there are schedules
  const attention_shape one_head{.heads = 1, .kv_heads = 1, .head_dim = 64};
  const named_layout own{"mine", dealt({{{180, 60, 1}}, {{120, 60, 1}}, {{60, 60, 1}}, {{0, 60, 1}}})};
  for (int simulate : {0, 1, 2}) {
    const candidates all = choose<bfloat16>(any_mask(causal{}), one_head, box(1e9),
                                            {.tokens = 240, .ranks = 4, .simulate = simulate, .layouts = {own}});
    int ran = 0;
    double least = 1e300;
    for (const candidate& c : all) {
      CHECK((c.own == 0) == (c.layout == "mine"));
      if (c.own == 0) least = std::min(least, c.least);
      if (c.own == 0 && c.seconds > 0) ++ran;
    }
    CHECK(ran == 3);  // every schedule of one node
    CHECK(std::any_of(all.begin(), all.end(),
                      [&](const candidate& c) { return c.own == 0 && c.seconds > 0 && c.least == least; }));
    CHECK(all.front().own == -1);
    CHECK(all.front().seconds > 0);
    CHECK(all.front().seconds < find(all, "mine", 4).least);
  }
}

TEST_CASE("a layout of the caller's own that is of another size, or is none, is refused by its name") {
  const auto says = [](const dealt& layout, const char* what) {
    CHECK_THROWS_WITH_AS(
        choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = 64, .ranks = 4, .layouts = {{"mine", layout}}}),
        doctest::Contains(what), error);
  };
  says(dealt::from(zigzag{.tokens = 48, .ranks = 4}),
       "choose: layout `mine` deals 48 tokens over 4 ranks, the options say 64 over 4; give both the same numbers");
  says(dealt::from(zigzag{.tokens = 64, .ranks = 3}), "`mine` deals 64 tokens over 3 ranks");
  says(dealt({{{0, 64, 1}}, {{64, 1, 1}}, {}, {{0, -1, 1}}}), "choose: layout `mine`: segments: a run needs count");
  says(dealt({{{0, 32, 1}}, {{16, 32, 1}}, {}, {}}), "choose: layout `mine`: row 16 has two owners");
}

template <class T>
concept gives_a_view = requires {
  std::declval<T>().front().deal.view();
};
static_assert(gives_a_view<const candidates&> && !gives_a_view<candidates>);

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
  for (index_t tokens : {0, 64})  // sizes are checked before they are multiplied
    CHECK_THROWS_WITH_AS(
        choose<bfloat16>(any_mask(causal{}), {.heads = index_t{1} << 62, .kv_heads = index_t{1} << 62, .head_dim = 8},
                         box(), {.tokens = tokens, .ranks = 4}),
        doctest::Contains("may move more bytes than 64 bits count; give smaller sizes"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(0), o),
                       doctest::Contains("flops must be above 0"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(1, -1), o),
                       doctest::Contains("bandwidth must be above 0"), error);
  const machine one_node{.flops = 1e12, .inside = {1e-6, 1e10}};
  CHECK(choose<bfloat16>(any_mask(causal{}), plain, one_node, o).front().seconds > 0);
  CHECK_THROWS_WITH_AS(weigh<bfloat16>("", {4, 1}, dealt::from(contiguous{.tokens = 64, .ranks = 4}),
                                       any_mask(causal{}), plain, box(1, -1), {}, mask_pieces(causal{}, 64, 64)),
                       doctest::Contains("weigh: the machine's inside.bandwidth must be above 0, not -1"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(block_causal{.block = 0}), plain, box(), o),
                       doctest::Contains("block counts"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = -1, .ranks = 4}),
                       doctest::Contains("tokens is negative"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = 64, .ranks = 4, .schedules = {}}),
                       doctest::Contains("no schedule"), error);
  CHECK_THROWS_WITH_AS(choose<bfloat16>(any_mask(causal{}), plain, box(), {.tokens = 64, .ranks = 4, .simulate = -2}),
                       doctest::Contains("simulate must be 0 or more, not -2"), error);
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
