// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairs by member and by hop, against a count of every pair.
#include <doctest/doctest.h>
#include <seqpar/cost/visits.hpp>
#include <seqpar/cost/work.hpp>
#include <tests/cost/documents.hpp>

namespace seqpar::test {
namespace {

/// The first difference from a count of all pairs, or "".
template <class Q, class Kv, class M>
std::string difference(const mesh_shape& team, const Q& q, const Kv& kv, const M& mask, attention_shape shape) {
  const index_t q_tokens = q.token_count() + shape.joint_q, k_tokens = kv.token_count() + shape.joint_kv;
  const mask_pieces pieces(mask, q_tokens, k_tokens);
  const needs n(team, q, kv, mask, shape, pieces);
  const work w(n, pieces);
  const auto whole = bound(mask, q_tokens, k_tokens);
  const int ring = n.ring_size();
  const index_t front = shape.joint_at == joint_place::front ? 1 : 0;
  std::vector<std::vector<index_t>> counted(static_cast<std::size_t>(ring),
                                            std::vector<index_t>(static_cast<std::size_t>(ring + 1)));
  const auto owner = [&](const auto& layout, index_t p, index_t joint) {
    const index_t dealt = p - front * joint;
    return dealt < 0 || dealt >= layout.token_count() ? -1 : team.ring_of(layout.place_of(dealt).rank);
  };
  for (index_t a = 0; a < q_tokens; ++a) {
    int who = owner(q, a, shape.joint_q);
    for (int r = 0; who < 0 && r < ring; ++r)
      if (detail::share(shape.joint_q, ring, r).contains(a - (1 - front) * q.token_count())) who = r;
    for (index_t b = 0; b < k_tokens; ++b)
      counted[static_cast<std::size_t>(who)][static_cast<std::size_t>(owner(kv, b, shape.joint_kv) + 1)] +=
          whole.allows(a, b);
  }
  for (int a = 0; a < ring; ++a)
    if (w.pairs(a) != n.pairs(a)) return std::to_string(a) + ": " + std::to_string(w.pairs(a));
  for (int a = 0; a < ring; ++a)
    for (int o = -1; o < ring; ++o)
      if (w.pairs(a, o) != counted[static_cast<std::size_t>(a)][static_cast<std::size_t>(o + 1)])
        return std::to_string(a) + " by " + std::to_string(o) + ": " + std::to_string(w.pairs(a, o));
  for (int o = 0; o < ring && shape.joint_q == 0; ++o) {
    index_t pairs = w.pairs(o, work::joint);
    for (int a = 0; a < ring; ++a) pairs += w.pairs(a, o);
    if (detail::pairs_at_keys(n, pieces)[static_cast<std::size_t>(o)] != pairs)
      return "at the keys of " + std::to_string(o) + ": not " + std::to_string(pairs);
  }
  return "";
}

template <class M>
void check_layouts(const M& mask, index_t n, attention_shape shape = {.heads = 2, .kv_heads = 1, .head_dim = 8}) {
  for (const mesh_shape team : {mesh_shape{4, 1}, mesh_shape{2, 2, axis::ring}, mesh_shape{1, 4}}) {
    const auto check = [&](const auto& q, const auto& kv) { CHECK(difference(team, q, kv, mask, shape) == ""); };
    const contiguous whole{.tokens = n, .ranks = 4};
    const striped turns{.tokens = n, .ranks = 4};
    check(whole, turns);
    check(turns, turns);
    check(zigzag{.tokens = n, .ranks = 4}, striped{.tokens = n, .ranks = 4, .granule = 3});
    check(nested<striped, zigzag>{{.tokens = n, .ranks = 2}, {.tokens = 0, .ranks = 2}}, whole);
  }
}

struct far_and_near {  // intervals, and no word on how long they go on
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
  interval_pair key_intervals(index_t q) const { return make_intervals({q / 3, q / 3 + 4}, {20 + q % 5, 30}); }
};

}  // namespace

TEST_CASE("pairs by member and owner are those that a count of all pairs finds") {
  check_layouts(causal{}, 37);
  check_layouts(window{.left = 4, .right = 2}, 37);
  check_layouts(block_causal{.block = 5}, 37);
  check_layouts(teacher_forcing{.clean = 18, .block = 4}, 36);
  const std::vector<index_t> bounds = pack({9, 0, 14, 2, 12});
  check_layouts(within{documents{bounds}, causal{}}, 37);
  check_layouts(
      any_of{first_keys{.count = 3}, all_of{within{documents{bounds}, causal{}}, window{.left = 6, .right = 0}}}, 37);
  check_layouts(far_and_near{}, 37);
}

TEST_CASE("joint queries are shared out over the ring, joint keys are a column of their own") {
  for (joint_place place : {joint_place::front, joint_place::rear})
    for (index_t joint_q : {5, 0})  // 0: then queries may travel
      check_layouts(causal{}, 30,
                    {.heads = 2, .kv_heads = 1, .head_dim = 8, .joint_q = joint_q, .joint_kv = 7, .joint_at = place});
}

TEST_CASE("hops of zigzag causal are even, and a contiguous ring in step takes 1.87 times its share") {
  const auto in_step = [](const auto& layout) {
    const mask_pieces pieces(causal{}, 2048, 2048);
    const needs n({.ring = 8, .all_to_all = 1}, layout, layout, causal{}, {.heads = 1, .kv_heads = 1, .head_dim = 1},
                  pieces);
    const work w(n, pieces);
    CHECK(w.total() == 2048 * 2049 / 2);
    index_t sum = 0;
    for (int a = 0; a < 8; ++a)
      for (int o = -1; o < 8; ++o) sum += w.pairs(a, o);
    CHECK(sum == w.total());
    for (int s = 1; s < 8; ++s) CHECK(w.over_ring(s).mean > 0);
    return w.in_step() / (static_cast<double>(w.total()) / 8);
  };
  CHECK(in_step(zigzag{.tokens = 2048, .ranks = 8}) == doctest::Approx(1).epsilon(1e-12));
  CHECK(in_step(contiguous{.tokens = 2048, .ranks = 8}) == doctest::Approx(1.874573).epsilon(1e-6));
}

TEST_CASE("work outlives its needs, and pieces of other lengths are refused") {
  const mask_pieces pieces(causal{}, 100, 100), shorter(causal{}, 99, 99);
  const contiguous layout{.tokens = 100, .ranks = 4};
  const mesh_shape team{.ring = 4, .all_to_all = 1};
  const work w(needs(team, layout, causal{}), pieces);
  CHECK(w.pairs(3) == 25 * 75 + 25 * 26 / 2);
  const needs n(team, layout, causal{});
  CHECK_THROWS_WITH_AS(work(n, shorter),
                       "[seqpar] work: the pieces are of 99 queries and 99 keys, the layouts of 100 "
                       "and 100; make mask_pieces(mask, 100, 100)",
                       error);
  CHECK_THROWS_WITH_AS(visits(n, causal{}, shorter), doctest::Contains("visits: the pieces are of 99"), error);
  CHECK_THROWS_WITH_AS(needs(team, layout, layout, causal{}, {.heads = 1, .kv_heads = 1, .head_dim = 1}, shorter),
                       doctest::Contains("needs: the pieces are of 99"), error);
}

TEST_CASE("1024 ranks and ten million tokens take as many steps as there are runs") {
  const index_t tokens = 10'000'000;
  const mesh_shape team{.ring = 1024, .all_to_all = 1};
  const zigzag layout{.tokens = tokens, .ranks = 1024};
  const mask_pieces pieces(causal{}, tokens, tokens);
  CHECK(pieces.pieces().size() == 1);
  const needs n(team, layout, layout, causal{}, {.heads = 1, .kv_heads = 1, .head_dim = 1}, pieces);
  for (int r : {0, 511, 1023}) CHECK(n.queries(r).size() <= 2);
  const work w(n, pieces);
  CHECK(w.total() == tokens / 2 * (tokens + 1));
  CHECK(w.over_ring().most_over_mean() < 1.001);
  CHECK(n.rows(0, 5) == layout.count_of(5));
}

}  // namespace seqpar::test
