// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bytes that move and memory that is asked for, as numbers.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

index_t sum(const std::vector<index_t>& x) {
  index_t s = 0;
  for (index_t e : x) s += e;
  return s;
}
/// Bytes that all ranks send forward, K and V of one head and one number each: 8 bytes a row.
index_t rows_sent(const problem& p) {
  return sum(run_problem<float>(p, recipe_tensors(p)).forward_bytes) / 8;
}
attention_case numbers(index_t tokens, any_mask mask) {
  return {.tokens = tokens, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1}, .mask = std::move(mask)};
}

template <class L, class M>
memory_sizes sizes_of(const L& layout, const M& mask, mesh_shape team, attention_options options) {
  std::vector<recorded_message> log;
  const recorder world(0, layout.rank_count(), log);
  return plan_attention<float>(mesh(world, team), layout, mask, {.heads = 4, .kv_heads = 2, .head_dim = 32}, options)
      .memory();
}

}  // namespace

TEST_CASE("kv heads travel as they are, not expanded to query heads: 768 bytes a rank [Q1]") {
  attention_case c{.tokens = 16, .shape = {.heads = 8, .kv_heads = 2, .head_dim = 4}, .mask = see_all};
  c.ranks = {4};
  c.meshes = only_ring;
  check_everywhere(c, [](const problem& p, const outcome<float>& got) {
    for (std::size_t r = 0; r < 4; ++r) {
      if (got.forward_bytes[r] != 768) return "forward sent " + std::to_string(got.forward_bytes[r]);
      const index_t keys = p.options.reuse == reuse::resend ? 768 : 0;  // gradients are fp32 too
      if (got.backward_bytes[r] != keys + 768) return "backward sent " + std::to_string(got.backward_bytes[r]);
    }
    return std::string();
  });
}

TEST_CASE("in bfloat16 keys and values are half the bytes, their gradients travel in fp32 [Q1]") {
  attention_case c{.tokens = 16, .shape = {.heads = 8, .kv_heads = 2, .head_dim = 4}, .mask = see_all};
  const problem p = c.at(contiguously, 4, {.ring = 4, .all_to_all = 1}, schedule::direct);
  const outcome<bfloat16> got = run_problem<bfloat16>(p, recipe_tensors(p));
  CHECK(got.forward_bytes == std::vector<index_t>(4, 384));
  CHECK(got.backward_bytes == std::vector<index_t>(4, 384 + 768));
}

TEST_CASE("zigzag causal on 8 ranks moves 0.75 of the full ring direct, 0.9375 passed along") {
  const auto moved = [](any_mask mask, deal d, schedule s) {
    return rows_sent(numbers(16, std::move(mask)).at(d, 8, {.ring = 8, .all_to_all = 1}, s));
  };
  CHECK(moved(see_all, in_zigzag, schedule::direct) == 112);
  CHECK(moved(see_all, in_zigzag, schedule::pass_along) == 112);
  CHECK(moved(see_past, in_zigzag, schedule::direct) == 84);
  CHECK(moved(see_past, in_zigzag, schedule::pass_along) == 105);
  // contiguous causal: rank r's two rows go to the 7 − r ranks behind it, over as many links
  CHECK(moved(see_past, contiguously, schedule::direct) == 56);
  CHECK(moved(see_past, contiguously, schedule::pass_along) == 56);
}

TEST_CASE("in a double ring a row enters a window once, however many want it there") {
  // 8 rows over 4 ranks, one block of 2 rows each, two windows of 2
  const auto sent = [](schedule s, any_mask mask) {
    const problem p = numbers(8, std::move(mask)).at(contiguously, 4, {.ring = 4, .all_to_all = 1}, s);
    return run_problem<float>(p, recipe_tensors(p)).forward_bytes;
  };
  // full: every rank hands its block to its neighbour and to one of the other window (4 rows), and that block on (2)
  CHECK(sent(schedule::double_ring, see_all) == std::vector<index_t>(4, 6 * 8));
  CHECK(sent(schedule::direct, see_all) == std::vector<index_t>(4, 6 * 8));
  // causal: rank 0 gives to 1 and 2, 1 to 3, 2 (for 3) 2's own and 0's rows, 3 (for 2) those of 1
  CHECK(sent(schedule::double_ring, see_past) == std::vector<index_t>{4 * 8, 2 * 8, 4 * 8, 2 * 8});
  CHECK(sent(schedule::direct, see_past) == std::vector<index_t>{6 * 8, 4 * 8, 2 * 8, 0});
}

TEST_CASE(
    "the side of fewer bytes moves: backward queries with as many kv heads as heads, keys with a fourth of them") {
  // 4 ranks, 16 tokens: each of 12 rows and every head; forward 2·4 numbers a key, 4 + (4 + 2) a query; backward twice
  // the key's, 2·4 + 2 + 4 a query; and a query row says what it may see, 16 bytes
  const auto sent = [](index_t kv_heads, side moving) {
    attention_case c{.tokens = 16, .shape = {.heads = 4, .kv_heads = kv_heads, .head_dim = 4}, .mask = see_all};
    c.options.moves = {moving, moving};
    const problem p = c.at(in_stripes, 4, {.ring = 4, .all_to_all = 1}, schedule::direct);
    const outcome<float> got = run_problem<float>(p, recipe_tensors(p));
    for (int r = 1; r < 4; ++r) {
      CHECK(got.forward_bytes[static_cast<std::size_t>(r)] == got.forward_bytes[0]);
      CHECK(got.backward_bytes[static_cast<std::size_t>(r)] == got.backward_bytes[0]);
    }
    return std::pair{got.forward_bytes[0], got.backward_bytes[0]};
  };
  CHECK(sent(4, side::keys) == std::pair<index_t, index_t>{12 * 4 * 8 * 4, 12 * 4 * 16 * 4});
  CHECK(sent(4, side::queries) == std::pair<index_t, index_t>{12 * (4 * 10 * 4 + 16), 12 * (4 * 14 * 4 + 16)});
  CHECK(sent(4, side::cheaper) == std::pair<index_t, index_t>{12 * 4 * 8 * 4, 12 * (4 * 14 * 4 + 16)});
  CHECK(sent(1, side::keys) == std::pair<index_t, index_t>{12 * 1 * 8 * 4, 12 * 1 * 16 * 4});
  CHECK(sent(1, side::cheaper) == sent(1, side::keys));
}

TEST_CASE("few queries of many keys move forward, too; behind a window only the rows beside a border move") {
  attention_case c{.tokens = 4, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 4}, .mask = see_all, .kv_tokens = 64};
  c.options.moves = {side::cheaper, side::cheaper};
  const auto sent = [](const problem& p) {
    const outcome<float> got = run_problem<float>(p, recipe_tensors(p));
    return std::pair{sum(got.forward_bytes), sum(got.backward_bytes)};
  };
  const auto at = [&] { return c.at(contiguously, 4, {.ring = 4, .all_to_all = 1}, schedule::direct); };
  CHECK(sent(at()) == std::pair<index_t, index_t>{12 * (10 * 4 + 16), 12 * (14 * 4 + 16)});
  c.options.moves = {side::keys, side::keys};
  CHECK(sent(at()) == std::pair<index_t, index_t>{192 * 8 * 4, 192 * 16 * 4});
  // 64 tokens of 4 ranks: the 5 keys before each of 3 borders are seen by the 5 queries behind it
  c.kv_tokens = c.tokens = 64;
  c.mask = any_mask(window{.left = 5, .right = 0}, "window");
  c.options.moves = {side::queries, side::queries};
  CHECK(sent(at()) == std::pair<index_t, index_t>{15 * (10 * 4 + 16), 15 * (14 * 4 + 16)});
}

TEST_CASE("rounds that the mask empties send nothing: a window moves its own keys, whatever the number of ranks") {
  for (const schedule s : every_schedule)
    for (int ranks : {2, 4, 8}) {
      const attention_case c = numbers(64, any_mask(window{.left = 5, .right = 0}, "window"));
      // a row for the first of the next window goes to the last and from there
      const index_t twice = s == schedule::double_ring && ranks > 2 ? 5 : 0;
      CHECK(rows_sent(c.at(contiguously, ranks, {.ring = ranks, .all_to_all = 1}, s)) == 5 * (ranks - 1) + twice);
      const std::vector<index_t> bounds = pack({32, 32});
      const attention_case two = numbers(64, any_mask(documents{bounds}, "two documents"));
      if (ranks == 2) CHECK(rows_sent(two.at(contiguously, 2, {.ring = 2, .all_to_all = 1}, s)) == 0);
    }
}

TEST_CASE("memory is linear in the tokens of a rank, and a ring never holds the whole sequence [Q2]") {
  for (const schedule s : every_schedule)
    for (const mesh_shape& team : every_mesh(4)) {
      const attention_options options{.passes = forward_backward, .schedule = s, .window = window_of(team.ring)};
      const auto at = [&](index_t tokens) {
        return sizes_of(zigzag{.tokens = tokens, .ranks = 4}, causal{}, team, options);
      };
      const memory_sizes a = at(1024), b = at(2048), c = at(4096);
      CHECK(c.exchange - b.exchange == 2 * (b.exchange - a.exchange));
      CHECK(c.scratch - b.scratch == 2 * (b.scratch - a.scratch));
      CHECK(c.exchange <= 4 * a.exchange);
      CHECK(c.scratch <= 4 * a.scratch);
      CHECK(c.tables <= 8 * a.tables);  // lists of tile ranges: rows, and tiles × rounds
      CHECK(c.tables < 4096 * 64);
      if (team.all_to_all == 1 && s == schedule::direct) {
        const index_t rows = 4096 / 4 * 2 * (32 + 32) * 4;  // K and V of a quarter, fp32
        const memory_sizes forward = sizes_of(zigzag{.tokens = 4096, .ranks = 4}, causal{}, team, {.schedule = s});
        CHECK(forward.exchange <= 2 * rows);      // two slots
        CHECK(c.exchange <= (2 + 2 + 1) * rows);  // and two of gradients, one of returns
      }
    }
}

TEST_CASE("what a rank asks for shrinks with the number of ranks [Q2]") {
  index_t before = index_t{1} << 40;
  for (int ranks : {4, 8, 16, 32}) {
    const memory_sizes n = sizes_of(zigzag{.tokens = 4096, .ranks = ranks}, causal{}, {.ring = ranks, .all_to_all = 1},
                                    {.passes = forward_backward});
    CHECK(n.exchange * 10 < before * 6);
    before = n.exchange;
  }
}

}  // namespace seqpar::test
