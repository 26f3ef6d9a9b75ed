// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Balance and rows on the move, for published and recomputed figures.
#include <doctest/doctest.h>
#include <seqpar/cost/traffic.hpp>
#include <seqpar/layout/reordered.hpp>
#include <tests/cost/documents.hpp>

namespace seqpar::test {
namespace {

constexpr index_t n = 2048;
constexpr moving_sides keys_move{side::keys, side::keys};

/// Most pairs over mean, mean rows received over a full ring's, and the most.
struct figures {
  double load, mean, most;
};
template <class L, class M>
bool are(figures f, int ranks, const L& layout, const M& mask) {
  const needs w({.ring = ranks, .all_to_all = 1}, layout, mask);
  std::vector<index_t> pairs;
  for (int r = 0; r < ranks; ++r) pairs.push_back(w.pairs(r));
  const double load = detail::spread_of(pairs).most_over_mean();
  const spread rows = w.of_full_ring();
  const auto same = [](double a, double b) { return a - b < 1e-9 && b - a < 1e-9; };
  const bool all = same(load, f.load) && same(rows.mean, f.mean) && same(rows.most, f.most);
  if (!all) MESSAGE(ranks << " ranks: " << load << " " << rows.mean << " " << rows.most);
  return all;
}

contiguous in_pieces(int ranks) {
  return {.tokens = n, .ranks = ranks};
}
zigzag folded(int ranks) {
  return {.tokens = n, .ranks = ranks};
}
striped in_turns(int ranks) {
  return {.tokens = n, .ranks = ranks};
}
striped in_chunks(int ranks) {
  return {.tokens = n, .ranks = ranks, .granule = n / (16 * ranks)};
}
template <class M>
bool all_four(const M& mask, int ranks, figures a, figures b, figures c, figures d) {
  return are(a, ranks, in_pieces(ranks), mask) + are(b, ranks, folded(ranks), mask) +
             are(c, ranks, in_turns(ranks), mask) + are(d, ranks, in_chunks(ranks), mask) ==
         4;
}

}  // namespace

TEST_CASE("causal and windows on 8 ranks: balance and rows wanted of four layouts") {
  CHECK(all_four(causal{}, 8, {1.874572962, .5, 1}, {1, .75, 1}, {1.003416301, .998046875, 1},
                 {1.054660810, .968750000, 1}));
  CHECK(all_four(window{.left = n / 64 - 1, .right = 0}, 8, {1.007626076, .015136719 - .25e-9, .017299107},
                 {1.007626076, .030273438 - .5e-9, .034598214}, {1.001722017, .998046875, 1},
                 {1.007626076, .273577009, .276785714}));
  CHECK(all_four(window{.left = n / 16 - 1, .right = 0}, 8, {1.031997984, .062011719 - .25e-9, .070870536},
                 {1.031997984, .124023438 - .5e-9, .141741071}, {1.001763668, .998046875, 1},
                 {1.028218695, .968750000, 1}));
  CHECK(all_four(block_causal{.block = n / 32}, 8, {1.848484848, .5, 1}, {1, .75, 1}, {1, 1, 1},
                 {1.030303030, .982142857, 1}));
}

TEST_CASE(
    "27 documents on 8 ranks want 0.04 of the ring contiguous, 0.11 zigzag, and no fixed layout wins both columns") {
  const auto check = [](int ranks, figures a, figures b, figures c, figures d) {
    const std::vector<index_t> bounds = pack(document_lengths(ranks));
    CHECK(bounds.back() == n);
    CHECK(all_four(within{documents{bounds}, causal{}}, ranks, a, b, c, d));
  };
  check(4, {2.313466950, .005696615, .009114583}, {1.799486495, .086425781, .180338542},
        {1.004760709, .975585938 - .5e-9, .979166667}, {1.073533362, .587727865, .682291667});
  check(8, {2.837889696, .043945312 + .5e-9, .166294643}, {2.567987425, .105817522, .288504464},
        {1.008407874, .947335379, .954241071}, {1.168666544, .510044643, .618861607});
  check(16, {2.434225021, .028873698, .1}, {2.761827340, .067220052, .151041667}, {1.037387083, .865625, .885416667},
        {1.179854585, .439322917, .516145833});
}

TEST_CASE("teacher forcing in pairs: zigzag is even and wants 0.38 of the ring, contiguous 1.85 and 0.25") {
  const teacher_forcing mask{.clean = n / 2, .block = n / 64};
  const auto in_pairs = [](const auto& inner) { return paired<std::remove_cvref_t<decltype(inner)>>{inner}; };
  const auto check = [&](int ranks, figures a, figures b, figures c, figures d, figures e) {
    const index_t frame = n / 64;
    CHECK(are(a, ranks, in_pieces(ranks), mask));
    CHECK(are(b, ranks, folded(ranks), mask));
    CHECK(are(c, ranks, in_pairs(contiguous{.tokens = n / 2, .ranks = ranks, .granule = frame}), mask));
    CHECK(are(d, ranks, in_pairs(zigzag{.tokens = n / 2, .ranks = ranks, .granule = frame}), mask));
    CHECK(are(e, ranks, in_pairs(striped{.tokens = n / 2, .ranks = ranks, .granule = frame}), mask));
  };
  check(4, {1.484848485, .322916667, .645833333}, {1, .40625, .5}, {1.727272727, .25, .5}, {1, .375, .5},
        {1.090909091, .46875, .5});
  check(8, {1.727272727, .276785714, .553571429}, {1, .383928571, .5}, {1.848484848, .25, .5}, {1, .375, .5},
        {1.212121212, .4375, .5});
  check(16, {1.848484848, .258333333, .516666667}, {1, .375, .5}, {1.909090909, .25, .5}, {1, .375, .5},
        {1.454545455, .375, .5});
}

TEST_CASE("in pairs a noisy key never leaves its rank; dealt apart it does") {
  const teacher_forcing mask{.clean = n / 2, .block = n / 64};
  const auto noisy_rows = [&](const auto& layout) {
    const needs w({.ring = 8, .all_to_all = 1}, layout, mask);
    index_t rows = 0;
    for (int wanter = 0; wanter < 8; ++wanter)
      for (int owner = 0; owner < 8; ++owner) {
        detail::position_set set;
        for (interval i : w.wanted(wanter)) set.add(intersection(i, {n / 2, n}));
        if (wanter != owner) rows += detail::count_of(detail::rows_in(w.keys(owner), set));
      }
    return rows;
  };
  CHECK(noisy_rows(paired<zigzag>{{.tokens = n / 2, .ranks = 8, .granule = n / 64}}) == 0);
  CHECK(noisy_rows(paired<contiguous>{{.tokens = n / 2, .ranks = 8, .granule = n / 64}}) == 0);
  CHECK(noisy_rows(striped{.tokens = n, .ranks = 8}) > 0);
}

TEST_CASE("rows by pair add up to rows received, in the rows' own sets, on every mesh") {
  const std::vector<index_t> bounds = pack(document_lengths(8));
  for (const mesh_shape team : {mesh_shape{8, 1}, mesh_shape{4, 2}, mesh_shape{2, 4, axis::ring}, mesh_shape{1, 8}}) {
    const auto check = [&](const auto& layout, const auto& mask, const attention_shape& shape) {
      const needs w(team, layout, mask, shape);
      for (int a = 0; a < w.ring_size(); ++a) {
        index_t rows = 0;
        for (int b = 0; b < w.ring_size(); ++b) {
          detail::position_set set;
          for (interval i : w.wanted(a)) set.add(i);
          const index_t counted = a == b ? 0 : detail::count_of(detail::rows_in(w.keys(b), set));
          CHECK(w.rows(a, b) == counted);
          rows += counted;
        }
        CHECK(w.rows_received(a) == rows);
      }
    };
    const within by_document{documents{bounds}, causal{}};
    const attention_shape plain{.heads = 1, .kv_heads = 1, .head_dim = 1};
    check(in_pieces(8), by_document, plain);
    check(folded(8), by_document, plain);
    check(in_turns(8), by_document, plain);
    check(in_chunks(8), by_document, plain);
    for (joint_place place : {joint_place::front, joint_place::rear})
      check(folded(8), causal{},
            {.heads = 1, .kv_heads = 1, .head_dim = 1, .joint_q = 7, .joint_kv = 9, .joint_at = place});
  }
}

TEST_CASE("bytes per rank of ring, all-to-all and both, forward in 16 bits: the published formulas to the megabyte") {
  const auto megabytes = [](index_t tokens, int ring, int heads_axis, int heads, int kv_heads) {
    const needs w({.ring = ring, .all_to_all = heads_axis}, contiguous{.tokens = tokens, .ranks = ring * heads_axis},
                  full{}, {.heads = heads, .kv_heads = kv_heads, .head_dim = 128});
    const spread s = forward_traffic(w, {.moves = keys_move}).over_members();
    // the formulas leave out lse: one number per row and head that comes home
    const int members = ring * heads_axis;
    const double numbers = 4. * heads * static_cast<double>(tokens) / members * (heads_axis - 1) / heads_axis;
    return static_cast<int>((s.mean - numbers) / 1e6 + .5);
  };
  const auto gqa = [&](int ring, int u) { return megabytes(index_t{8192} * ring * u, ring, u, 64, 8); };
  const auto wan = [&](int ring, int u) { return megabytes(75600, ring, u, 40, 40); };
  const std::vector<int> ranks{4, 8, 16, 32};
  const auto row = [&](const auto& of) {
    std::vector<int> r;
    for (int p : ranks) r.push_back(of(p));
    return r;
  };
  CHECK(row([&](int p) { return gqa(p, 1); }) == std::vector<int>{101, 235, 503, 1040});
  CHECK(row([&](int p) { return gqa(1, p); }) == std::vector<int>{226, 264, 315, 390});
  CHECK(std::vector<int>{gqa(2, 2), gqa(4, 2), gqa(2, 8), gqa(4, 8)} == std::vector<int>{185, 252, 298, 365});
  CHECK(row([&](int p) { return wan(p, 1); }) == std::vector<int>{1161, 1355, 1452, 1500});
  CHECK(row([&](int p) { return wan(1, p); }) == std::vector<int>{581, 339, 181, 94});
  CHECK(std::vector<int>{wan(2, 2), wan(2, 4), wan(2, 8), wan(4, 8)} == std::vector<int>{774, 484, 266, 230});
}

TEST_CASE("zigzag causal on 8 ranks: 0.75 of the ring direct, 0.9375 passed along; gradients 0.75 either way") {
  const needs w({.ring = 8, .all_to_all = 1}, folded(8), causal{});
  const double ring = 7. / 8 * n * 2 * 2;  // K and V of one number in 16 bits
  const auto moved = [&](const traffic& t) { return t.over_members().mean / ring; };
  CHECK(moved(forward_traffic(w, {.moves = keys_move})) == .75);
  CHECK(moved(backward_traffic(w, {.moves = keys_move})) == .75 * 3);  // again in 16 bits, gradients in 32
  CHECK(moved(forward_traffic(w, {.schedule = schedule::pass_along})) == .9375);
  CHECK(moved(backward_traffic(w, {.schedule = schedule::pass_along})) == .9375 + .75 * 2);
  CHECK(moved(backward_traffic(w, {.reuse = reuse::saved})) == .75 * 2);
}

TEST_CASE("in step, somebody wants a whole block in every round of causal; of a window only the next block's end") {
  const auto in_step = [](const auto& layout, const auto& mask) {
    return needs({.ring = 8, .all_to_all = 1}, layout, mask).rows_in_step();
  };
  CHECK(in_step(folded(8), causal{}) == 7 * n / 8);
  CHECK(in_step(in_pieces(8), causal{}) == 7 * n / 8);
  CHECK(in_step(in_pieces(8), window{.left = 31, .right = 0}) == 31);
  CHECK(in_step(paired<zigzag>{{.tokens = n / 2, .ranks = 8, .granule = n / 64}},
                teacher_forcing{.clean = n / 2, .block = n / 64}) == 7 * n / 16);
}

TEST_CASE("a row that several ranks of a node want could cross once: a full ring on two nodes of four, a fourth") {
  const auto across = [](const auto& layout, const auto& mask, mesh_shape team, int per_node) {
    return rows_across(needs(team, layout, mask, {.heads = 4, .kv_heads = 2, .head_dim = 1}), per_node);
  };
  const crossings all = across(in_pieces(8), full{}, {8, 1}, 4);
  CHECK(all.each == 2 * 2 * (n / 2) * 4);
  CHECK(all.once == 2 * 2 * (n / 2));
  const crossings near = across(in_pieces(8), window{.left = 99, .right = 0}, {8, 1}, 4);
  CHECK(near.each == 2 * 99);
  CHECK(near.once == near.each);
  const crossings inside = across(in_pieces(8), full{}, {8, 1}, 8);
  CHECK(inside.each == 0);
  const crossings heads = across(in_pieces(8), full{}, {.ring = 2, .all_to_all = 4}, 4);
  CHECK(heads.each == heads.once);
  CHECK(heads.each == 2 * 4 * (n / 2));  // four members of each node, a head each
  const needs w({.ring = 8, .all_to_all = 1}, in_pieces(8), full{});
  CHECK(forward_traffic(w, {.moves = keys_move}, {}, 4).across() == 2 * (n / 2) * 4 * 4);
  CHECK(forward_traffic(w, {.moves = keys_move}, {}, 4).inside() == 8 * 3 * (n / 8) * 4);
}

TEST_CASE("what a plan refuses, needs refuses, and what has no law here is said so") {
  const mesh_shape team{.ring = 4, .all_to_all = 2};
  CHECK_THROWS_WITH_AS(needs(team, in_pieces(4), full{}), doctest::Contains("dealt over 4 ranks, the mesh has 8"),
                       error);
  CHECK_THROWS_WITH_AS(needs({.ring = 0, .all_to_all = 2}, in_pieces(4), full{}), doctest::Contains("at least 1"),
                       error);
  CHECK_THROWS_WITH_AS(needs(team, in_pieces(8), full{}, {.heads = 3, .kv_heads = 2, .head_dim = 8}),
                       doctest::Contains("kv_heads must divide heads"), error);
  const needs joint(team, in_pieces(8), full{},
                    {.heads = 2, .kv_heads = 2, .head_dim = 8, .joint_q = 3, .joint_kv = 3});
  CHECK_THROWS_WITH_AS(forward_traffic(joint), doctest::Contains("joint tokens"), error);
  const needs some(team, in_pieces(8), full{});
  CHECK_THROWS_WITH_AS(forward_traffic(some, {.schedule = schedule::double_ring, .window = 2}),
                       doctest::Contains("run the plan on paper"), error);
  CHECK_THROWS_WITH_AS(backward_traffic(some), doctest::Contains("give visits"), error);
  CHECK_THROWS_WITH_AS(rows_across(joint, 0), doctest::Contains("ranks_per_node"), error);
}

TEST_CASE("more ranks than tokens, no tokens, and a mask that shows nothing want nothing and divide by nothing") {
  const needs few({.ring = 8, .all_to_all = 1}, contiguous{.tokens = 3, .ranks = 8}, causal{});
  CHECK(few.rows(2, 0) == 1);
  CHECK(few.rows_received(7) == 0);
  const needs none({.ring = 8, .all_to_all = 1}, contiguous{.tokens = 0, .ranks = 8}, causal{});
  CHECK(none.of_full_ring().mean == 0);
  const needs blind({.ring = 8, .all_to_all = 1}, in_pieces(8), valid{.queries = 0, .keys = 0});
  CHECK(blind.of_full_ring().most == 0);
  CHECK(blind.pairs(3) == 0);
  CHECK(needs({.ring = 1, .all_to_all = 1}, in_pieces(1), full{}).of_full_ring().mean == 0);
  CHECK(spread{}.most_over_mean() == 1);
}

}  // namespace seqpar::test
