// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What plans ask for when they run, and what was said of them before.
#include <doctest/doctest.h>
#include <seqpar/cost/paper.hpp>
#include <seqpar/cost/work.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <tests/cost/documents.hpp>
#include <tests/support/any.hpp>
#include <tests/support/apart.hpp>

#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>

namespace seqpar::test {
namespace {

std::vector<any_layout> layouts_of(index_t n, int ranks) {
  std::vector<any_layout> list{any_layout(contiguous{.tokens = n, .ranks = ranks}, "contiguous"),
                               any_layout(zigzag{.tokens = n, .ranks = ranks}, "zigzag"),
                               any_layout(striped{.tokens = n, .ranks = ranks}, "striped"),
                               any_layout(paired<zigzag>{{.tokens = n / 2, .ranks = ranks, .granule = 5}}, "paired")};
  return list;
}

/// Where the bytes that moved, or the pairs that were visited, differ from what was said; or "".
std::string difference(const mesh_shape& team, const any_layout& layout, const any_mask& mask,
                       const attention_shape& shape, const attention_options& options) {
  const paper_runs runs =
      run_on_paper<bfloat16, float, bfloat16, host_reference<>>(team, layout, layout, mask, shape, options, true);
  const index_t q = layout.token_count() + shape.joint_q, k = layout.token_count() + shape.joint_kv;
  const mask_pieces pieces(mask, q, k);
  const needs n(team, layout, layout, mask, shape, pieces);
  const work w(n, pieces);
  const element_sizes sizes{.in = 2, .out = 4, .grad = 2};
  const visits v(n, mask, pieces);
  const moving_sides sides = sides_of(n, v, options, sizes.in);
  if (shape.joint_q + shape.joint_kv == 0) {
    if (traffic_of(runs.forward, 2) != forward_traffic(n, options, sizes, 2, &v)) return "forward bytes";
    if (traffic_of(runs.backward, 2) != backward_traffic(n, options, sizes, 2, &v)) return "backward bytes";
  }
  for (const auto* pages : {&runs.forward, &runs.backward})
    for (int m = 0; m < team.size(); ++m) {
      index_t pairs = 0, in_tiles = 0;
      for (const paper_operation& o : (*pages)[static_cast<std::size_t>(m)].operations) {
        pairs += o.pairs;
        in_tiles += o.pairs_in_tiles;
      }
      const int ring = team.ring_of(m);
      const bool visited = (pages == &runs.forward ? sides.forward : sides.backward) == side::queries;
      const index_t expected = visited ? w.pairs(ring, ring) + w.pairs(ring, work::joint) : w.pairs(ring);
      const index_t heads = shape.batch * n.heads_of(team.all_to_all_of(m)).size();
      if (pairs != expected * heads) return "pairs of member " + std::to_string(m);
      if (in_tiles < pairs) return "fewer pairs in tiles than pairs";
    }
  return "";
}

}  // namespace

TEST_CASE(
    "bytes that move are bytes predicted, and pairs visited are pairs counted: layouts, masks, meshes, schedules") {
  const index_t n = 60;
  const std::vector<index_t> bounds = pack({13, 0, 21, 5, 21});
  const std::vector<any_mask> masks{any_mask(full{}, "full"),
                                    any_mask(causal{}, "causal"),
                                    any_mask(window{.left = 6, .right = 1}, "window"),
                                    any_mask(teacher_forcing{.clean = n / 2, .block = 5}, "teacher forcing"),
                                    any_mask(within{documents{bounds}, causal{}}, "documents"),
                                    any_mask(any_of{first_keys{.count = 4}, window{.left = 5, .right = 0}}, "sinks"),
                                    any_mask(valid{.queries = 0, .keys = 0}, "nothing")};
  for (const mesh_shape team :
       {mesh_shape{4, 1}, mesh_shape{2, 2}, mesh_shape{2, 3, axis::ring}, mesh_shape{1, 4}, mesh_shape{5, 1}})
    for (const any_layout& layout : layouts_of(n, team.size()))
      for (const any_mask& mask : masks)
        for (const schedule s : {schedule::direct, schedule::pass_along, schedule::all_gather}) {
          INFO(layout.name(), " ", mask.name(), " ", int(team.ring), " x ", int(team.all_to_all), " schedule ", int(s));
          CHECK(difference(team, layout, mask, {.batch = 2, .heads = 5, .kv_heads = 1, .head_dim = 4, .value_dim = 6},
                           {.passes = forward_backward, .schedule = s}) == "");
        }
}

TEST_CASE("with kept keys and several kv heads the law holds, and joint queries' pairs are counted") {
  const any_layout layout(zigzag{.tokens = 61, .ranks = 6});
  const any_mask mask(causal{});
  for (const mesh_shape team : {mesh_shape{6, 1}, mesh_shape{3, 2}, mesh_shape{1, 6}}) {
    CHECK(difference(team, layout, mask, {.heads = 6, .kv_heads = 3, .head_dim = 8},
                     {.passes = forward_backward, .reuse = reuse::saved}) == "");
    CHECK(difference(team, layout, mask, {.heads = 6, .kv_heads = 3, .head_dim = 8, .joint_q = 5, .joint_kv = 7},
                     {.passes = forward_backward}) == "");
  }
}

TEST_CASE("queries that travel move what visits say, for masks whose pieces are known and for others alike") {
  const std::vector<index_t> bounds = pack({13, 0, 21, 5, 21});
  const auto check = [&](const auto& mask) {
    for (const mesh_shape team : {mesh_shape{5, 1}, mesh_shape{3, 2}})
      for (const any_layout& layout : layouts_of(60, team.size())) {
        const mask_pieces pieces(mask, 60, 60);
        const needs n(team, layout, mask);
        const visits v(n, mask, pieces), asked(n, any_mask(mask), pieces);
        for (int w = 0; w < n.ring_size(); ++w) {
          index_t rows = 0;
          for (int o = 0; o < n.ring_size(); ++o) {
            index_t counted = 0;
            for (const run& r : n.queries(w))
              for (index_t i = 0; i < r.count; ++i) {
                bool sees = false;
                for (const run& x : n.keys(o))
                  for (index_t j = 0; j < x.count; ++j) sees = sees || mask.allows(r.at(i), x.at(j));
                counted += sees && w != o;
              }
            CHECK(v.rows(w, o) == counted);
            CHECK(asked.rows(w, o) == counted);
            rows += v.rows(o, w);
          }
          CHECK(v.rows_received(w) == rows);
        }
      }
  };
  check(causal{});
  check(window{.left = 1, .right = 0});
  check(within{documents{bounds}, causal{}});
  check(any_of{first_keys{.count = 4}, window{.left = 5, .right = 0}});
  for (const side s : {side::queries, side::cheaper})
    for (const mesh_shape team : {mesh_shape{5, 1}, mesh_shape{3, 2}})
      for (const any_layout& layout : layouts_of(60, team.size()))
        for (const index_t kv_heads : {1, 4})
          CHECK(difference(team, layout, any_mask(within{documents{bounds}, causal{}}),
                           {.batch = 2, .heads = 4, .kv_heads = kv_heads, .head_dim = 16},
                           {.passes = forward_backward, .moves = {s, s}}) == "");
}

TEST_CASE("in tiles of 64 zigzag causal is as even as in pairs, and a little more work") {
  const any_layout layout(zigzag{.tokens = 2048, .ranks = 8});
  const spread tiles =
      pairs_in_tiles(run_on_paper<bfloat16, float, bfloat16, host_reference<>>(
                         {8, 1}, layout, layout, any_mask(causal{}), {.heads = 2, .kv_heads = 2, .head_dim = 8})
                         .forward);
  CHECK(tiles.most_over_mean() == 1);
  CHECK(tiles.mean == 2. * (2048 / 64) * (2048 / 64 + 1) / 2 * 64 * 64 / 8);
}

TEST_CASE("a double ring moves over its windows' borders what would cross once, forward and back") {
  const std::vector<index_t> bounds = pack({13, 0, 21, 5, 21});
  const attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 8};
  for (const any_mask& mask : {any_mask(full{}), any_mask(causal{}), any_mask(within{documents{bounds}, causal{}})})
    for (const any_layout& layout : layouts_of(60, 6)) {
      const paper_runs runs = run_on_paper<bfloat16, float, bfloat16, host_reference<>>(
          {6, 1}, layout, layout, mask, shape,
          {.passes = forward_backward, .schedule = schedule::double_ring, .window = 3});
      const crossings rows = rows_across(needs({6, 1}, layout, mask, shape), 3);
      CHECK(traffic_of(runs.forward, 3).across() == rows.once * 16 * 2);
      CHECK(traffic_of(runs.backward, 3).across() == rows.once * 16 * (2 + 4));
    }
}

TEST_CASE("a member that computes nothing, moves nothing: one rank, and more ranks than tokens") {
  const any_mask mask(causal{});
  const attention_shape shape{.heads = 2, .kv_heads = 2, .head_dim = 4};
  CHECK(difference({1, 1}, any_layout(zigzag{.tokens = 17, .ranks = 1}), mask, shape, {.passes = forward_backward}) ==
        "");
  CHECK(difference({8, 1}, any_layout(zigzag{.tokens = 3, .ranks = 8}), mask, shape, {.passes = forward_backward}) ==
        "");
}

}  // namespace seqpar::test
