// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Balance and rows on the move, for published and recomputed figures.
#include <doctest/doctest.h>
#include <cstdio>
#include <seqpar/cost/dealt.hpp>
#include <seqpar/cost/traffic.hpp>
#include <seqpar/layout/reordered.hpp>
#include <tests/cost/documents.hpp>

namespace seqpar::test {
namespace {

constexpr index_t n = 2048;
constexpr moving_sides keys_move{side::keys, side::keys};
constexpr attention_shape one_number{.heads = 1, .kv_heads = 1, .head_dim = 1};

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

TEST_CASE("rows wanted, pairs, and queries that visit are those that asking every query of every key finds") {
  const auto check = [](const dealt& layout, const mesh_shape& team, const auto& mask) {
    const index_t tokens = layout.token_count();
    const mask_pieces pieces(mask, tokens, tokens);
    const needs some(team, layout.view(), layout.view(), mask, {.heads = 2, .kv_heads = 2, .head_dim = 1}, pieces);
    const visits v(some, mask, pieces);
    std::vector<int> owner;  // by position: a ring member
    for (index_t i = 0; i < tokens; ++i) owner.push_back(team.ring_of(layout.place_of(i).rank));
    const auto ring = static_cast<std::size_t>(team.ring);
    const auto whole = bound(mask, tokens, tokens);
    std::vector<index_t> pairs(ring), rows(ring * ring), visit(ring * ring);
    std::vector<bool> wanted(ring * static_cast<std::size_t>(tokens));
    for (index_t q = 0; q < tokens; ++q) {
      const auto w = static_cast<std::size_t>(owner[static_cast<std::size_t>(q)]);
      std::vector<bool> met(ring);
      for (index_t k = 0; k < tokens; ++k)
        if (whole.allows(q, k)) {
          const auto o = static_cast<std::size_t>(owner[static_cast<std::size_t>(k)]);
          ++pairs[w];
          if (auto first = wanted[w * static_cast<std::size_t>(tokens) + static_cast<std::size_t>(k)]; !first)
            first = true, ++rows[w * ring + o];
          if (!met[o]) met[o] = true, ++visit[w * ring + o];
        }
    }
    bool same = true;
    for (std::size_t a = 0; a < ring; ++a) {
      const int x = static_cast<int>(a);
      index_t received = 0, visited = 0;
      for (std::size_t b = 0; b < ring; ++b) {
        const int y = static_cast<int>(b);
        same = same && some.rows(x, y) == (a == b ? 0 : rows[a * ring + b]);
        same = same && v.rows(x, y) == (a == b ? 0 : visit[a * ring + b]);
        received += a == b ? 0 : rows[a * ring + b];
        visited += a == b ? 0 : visit[b * ring + a];
      }
      same = same && some.pairs(x) == pairs[a] && some.rows_received(x) == received && v.rows_received(x) == visited;
    }
    return same;
  };
  const auto all = [&](index_t tokens, const std::vector<index_t>& bounds) {
    const within by_document{documents{bounds}, causal{}};
    const within nearby{documents{bounds}, window{.left = 2, .right = 1}};
    const window few{.left = 3, .right = 0};
    const any_of in_two{first_keys{.count = 3}, all_of{by_document, window{.left = 6, .right = 0}}};
    std::vector<dealt> deals{dealt::from(striped{.tokens = tokens, .ranks = 8}),
                             dealt::from(striped{.tokens = tokens, .ranks = 8, .granule = 16}),
                             dealt::from(zigzag{.tokens = tokens, .ranks = 8}),
                             dealt::from(contiguous{.tokens = tokens, .ranks = 8})};
    std::vector<std::vector<run>> turned;  // in turns, each from its end; two runs of one member, none of another
    for (index_t r = 0; r < 8; ++r) turned.push_back({{r + (tokens - 1 - r) / 8 * 8, (tokens + 7 - r) / 8, -8}});
    deals.push_back(dealt(turned));
    turned[2].push_back(turned[5][0]);
    turned[5].clear();
    deals.push_back(dealt(turned));
    for (index_t r = 0; r < 7; ++r) turned[static_cast<std::size_t>(r)] = {{2 * r + 1, (tokens + 12 - 2 * r) / 14, 14}};
    turned[7] = {{0, (tokens + 1) / 2, 2}};  // every other row, the rest in turns
    deals.push_back(dealt(turned));
    for (const dealt& layout : deals)
      for (const mesh_shape& team : {mesh_shape{8, 1}, mesh_shape{4, 2}, mesh_shape{4, 2, axis::ring}}) {
        CHECK(check(layout, team, by_document));
        CHECK(check(layout, team, nearby));
        CHECK(check(layout, team, few));
        CHECK(check(layout, team, in_two));
      }
  };
  all(211, pack({3, 17, 1, 0, 31, 8, 16, 2, 29, 7, 41, 13, 11, 19, 5, 8}));
  all(11, pack({3, 1, 2, 1, 1, 1, 1, 1}));
  all(8, pack({8}));
}

TEST_CASE("a window narrower than a turn is counted at once, whatever the number of tokens") {
  const index_t tokens = (index_t{1} << 31) - 8;
  const striped layout{.tokens = tokens, .ranks = 8};
  const window mask{.left = 3, .right = 0};
  const mask_pieces pieces(mask, tokens, tokens);
  const needs some({.ring = 8, .all_to_all = 1}, layout, layout, mask, one_number, pieces);
  const visits v(some, mask, pieces);
  for (int w = 0; w < 8; ++w)
    for (int s = 1; s < 8; ++s) {
      const int o = (w + 8 - s) % 8;  // query q asks o for key q - s
      const index_t rows = s > 3 ? 0 : tokens / 8 - (s > w ? 1 : 0);
      CHECK(some.rows(w, o) == rows);
      CHECK(v.rows(w, o) == rows);
    }
}

TEST_CASE("bytes per rank of ring, all-to-all and both, forward in 16 bits: the published formulas to the megabyte") {
  const auto megabytes = [](index_t tokens, int ring, int heads_axis, int heads, int kv_heads) {
    const needs w({.ring = ring, .all_to_all = heads_axis}, contiguous{.tokens = tokens, .ranks = ring * heads_axis},
                  full{}, {.heads = heads, .kv_heads = kv_heads, .head_dim = 128});
    const spread s = forward_traffic(w, {.moves = keys_move}, {2}).over_members();
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
  const needs w({.ring = 8, .all_to_all = 1}, folded(8), causal{}, one_number);
  const double ring = 7. / 8 * n * 2 * 2;  // K and V of one number in 16 bits
  const auto moved = [&](const traffic& t) { return t.over_members().mean / ring; };
  CHECK(moved(forward_traffic(w, {.moves = keys_move}, {2})) == .75);
  CHECK(moved(backward_traffic(w, {.moves = keys_move}, {2})) == .75 * 3);  // again in 16 bits, gradients in 32
  CHECK(moved(forward_traffic(w, {.schedule = schedule::pass_along}, {2})) == .9375);
  CHECK(moved(backward_traffic(w, {.schedule = schedule::pass_along}, {2})) == .9375 + .75 * 2);
  CHECK(moved(backward_traffic(w, {.reuse = reuse::saved}, {2})) == .75 * 2);
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
  const needs w({.ring = 8, .all_to_all = 1}, in_pieces(8), full{}, one_number);
  CHECK(forward_traffic(w, {.moves = keys_move}, {2}, 4).across() == 2 * (n / 2) * 4 * 4);
  CHECK(forward_traffic(w, {.moves = keys_move}, {2}, 4).inside() == 8 * 3 * (n / 8) * 4);
}

TEST_CASE("what a plan refuses, needs refuses, and what has no law here is said so") {
  const mesh_shape team{.ring = 4, .all_to_all = 2};
  CHECK_THROWS_WITH_AS(needs(team, in_pieces(4), full{}), doctest::Contains("dealt over 4 ranks, the mesh has 8"),
                       error);
  CHECK_THROWS_WITH_AS(needs({.ring = 0, .all_to_all = 2}, in_pieces(4), full{}), doctest::Contains("got 0 x 2"),
                       error);
  CHECK_THROWS_WITH_AS(needs(team, in_pieces(8), full{}, {.heads = 3, .kv_heads = 2, .head_dim = 8}),
                       doctest::Contains("kv_heads must divide heads"), error);
  const needs joint(team, in_pieces(8), full{},
                    {.heads = 2, .kv_heads = 2, .head_dim = 8, .joint_q = 3, .joint_kv = 3});
  CHECK_THROWS_WITH_AS(forward_traffic(joint, {}, {2}), doctest::Contains("joint tokens"), error);
  const needs some(team, in_pieces(8), full{}, {.heads = 2, .kv_heads = 2, .head_dim = 8});
  CHECK_THROWS_WITH_AS(forward_traffic(some, {.schedule = schedule::double_ring, .window = 2}, {2}),
                       doctest::Contains("run the plan on paper"), error);
  CHECK_THROWS_WITH_AS(backward_traffic(some, {}, {2}), doctest::Contains("give visits"), error);
  CHECK_THROWS_WITH_AS(rows_across(joint, 0), doctest::Contains("ranks_per_node must be at least 1, not 0"), error);
}

TEST_CASE("bytes are refused without a shape, rows are not; out and gradients are of q's type unless said") {
  const needs w({.ring = 8, .all_to_all = 1}, folded(8), causal{});
  const mask_pieces pieces(causal{}, n, n);
  const visits v(w, causal{}, pieces);
  CHECK(w.rows(0, 1) > 0);
  CHECK(v.rows(0, 1) > 0);
  const char* what = "these needs have no shape";
  CHECK_THROWS_WITH_AS(forward_traffic(w, {.moves = keys_move}, {2}), doctest::Contains(what), error);
  CHECK_THROWS_WITH_AS(backward_traffic(w, {}, {2}, 0, &v), doctest::Contains(what), error);
  CHECK_THROWS_WITH_AS(sides_of(w, v, {}, 2), doctest::Contains(what), error);
  CHECK_THROWS_WITH_AS(rows_across(w, 4), doctest::Contains(what), error);
  static_assert(!std::default_initializable<element_sizes>);
  CHECK(element_sizes{.in = 4}.out == 4);
  CHECK(element_sizes{.in = 4}.grad == 4);
}

template <class T>
concept lists_rows = requires {
  std::declval<T>().queries(0);
}
|| requires {
  std::declval<T>().keys(0);
};
static_assert(lists_rows<const needs&> && !lists_rows<needs>);
static_assert(std::constructible_from<visits, const needs&, const causal&, const mask_pieces&>);
static_assert(!std::constructible_from<visits, needs, const causal&, const mask_pieces&>);

TEST_CASE("the bytes that come to a temporary's members can be walked") {
  index_t bytes = 0;
  const needs w({.ring = 8, .all_to_all = 1}, in_pieces(8), full{}, one_number);
  const attention_options keys{.moves = keys_move};
  for (index_t b : forward_traffic(w, keys, {2}).received()) bytes += b;
  for (index_t b : forward_traffic(w, keys, {2}).sent()) bytes -= b;
  CHECK(bytes == 0);
  CHECK(forward_traffic(w, keys, {2}).received().front() == 7 * n / 8 * 2 * 2);
}

TEST_CASE("bytes, sides and pairs are asked of layout, mask, mesh and shape") {
  // [snippet]
  const seqpar::mesh_shape team{.ring = 4, .all_to_all = 2};  // 8 ranks
  const seqpar::attention_shape shape{.heads = 8, .kv_heads = 2, .head_dim = 64};
  const seqpar::zigzag layout{.tokens = 2048, .ranks = 8};
  const seqpar::causal mask;
  const seqpar::mask_pieces pieces(mask, 2048, 2048);  // queries, keys; with joint tokens, if there are any

  const seqpar::needs needs(team, layout, layout, mask, shape, pieces);
  const seqpar::visits visits(needs, mask, pieces);  // looks at `needs`
  const seqpar::element_sizes sizes{.in = sizeof(seqpar::bfloat16)};
  const seqpar::traffic moved = seqpar::forward_traffic(needs, {}, sizes, 4, &visits);  // {}: attention_options
  const seqpar::work work(needs, pieces);
  std::printf("%.0f bytes come to each rank, %lld in all from another node; busiest over mean: %.2f\n",
              moved.over_members().mean, static_cast<long long>(moved.across()), work.over_ring().most_over_mean());
  // [/snippet]
  CHECK(moved.across() > 0);
  CHECK(work.over_ring().most_over_mean() == 1);
}

TEST_CASE("5 causal tokens on 8 ranks are uneven and move bytes; what a mask hides moves none along the ring") {
  const contiguous few{.tokens = 5, .ranks = 8};
  const mask_pieces pieces(causal{}, 5, 5);
  const needs w({.ring = 8, .all_to_all = 1}, few, few, causal{}, {.heads = 2, .kv_heads = 1, .head_dim = 8}, pieces);
  CHECK(work(w, pieces).over_ring().most_over_mean() == doctest::Approx(5 / (15. / 8)));
  CHECK(forward_traffic(w, {.moves = keys_move}, {2}).total() == 10 * 2 * 8 * 2);  // 10 rows of k and v
  const valid nothing{.queries = 0, .keys = 0};
  const auto bytes = [&](const mesh_shape& team) {
    return forward_traffic(needs(team, in_pieces(8), nothing, {.heads = 2, .kv_heads = 2, .head_dim = 8}),
                           {.moves = keys_move}, {2})
        .total();
  };
  CHECK(bytes({8, 1}) == 0);
  CHECK(bytes({4, 2}) > 0);  // heads change places nonetheless
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
