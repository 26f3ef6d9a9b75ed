// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Updates that are refused: without a capacity on every rank alike; on one rank only, told to its peers.
#include <array>
#include <barrier>

#include <tests/attention/rank.hpp>
#include <tests/support/layouts.hpp>

namespace seqpar::test {

/// A layout over two ranks that notes whether it was asked about a rank which it has not.
struct over_two {
  index_t tokens;
  std::atomic<bool>* asked_beyond;
  index_t token_count() const { return tokens; }
  int rank_count() const { return 2; }
  index_t count_of(int rank) const {
    if (rank >= 2) asked_beyond->store(true);
    return tokens / 2;
  }
  index_t global_of(int rank, index_t local) const { return count_of(rank) * rank + local; }
  place place_of(index_t g) const { return {static_cast<int>(g / (tokens / 2)), g % (tokens / 2)}; }
  friend bool operator==(const over_two&, const over_two&) = default;
};

namespace {

/// Queries of the first half see themselves and the last key, those of the second half themselves. When `scattered`, 64
/// consecutive ones of the second half see together one key of theirs in every 256: their tile skips every other tile
/// of keys.
struct nearby {
  index_t tokens;
  bool scattered;
  constexpr bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
  constexpr interval_pair key_intervals(index_t q) const {
    if (q < tokens / 2) return make_intervals({q, q + 1}, {tokens - 1, tokens});
    if (!scattered) return make_intervals({q, q + 1});
    const index_t k = tokens / 2 + q % 64 * 512;
    return make_intervals({k, k + 1}, {k + 256, k + 257});
  }
};

problem base(index_t tokens, int ranks, index_t capacity) {
  attention_case c{.tokens = tokens, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 4}, .mask = see_past};
  c.options.capacity.tokens_per_rank = capacity;
  return c.at(contiguously, ranks, {.ring = ranks, .all_to_all = 1}, schedule::direct);
}

}  // namespace

TEST_CASE("a plan without capacity refuses every update, on all ranks with the same words, and runs as planned") {
  const problem p = base(24, 4, 0);
  problem other = p;
  other.mask = any_mask(prefix_lm{9}, "prefix");
  std::array<std::string, 4> said;
  std::array<errc, 4> codes{};
  outcome<float> got = empty_outcome(p);
  run_ranks(4, [&](threads::transport world) {
    const auto me = static_cast<std::size_t>(world.rank());
    rank_run rank(world, p);
    rank.prepare();
    const failure f = rank.plan.try_update(other.q_layout, other.kv_layout, other.mask, rank.given);
    said[me] = f ? f->what() : "updated";
    codes[me] = f ? f->code() : errc::ok;
    check(world.recover());
    check(rank.forward());
    check(rank.backward());
    rank.store(p, got);
  });
  CHECK(said[0].starts_with("[seqpar] attention_plan::update: "));
  CHECK(said[0].find("capacity") != std::string::npos);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(said[r] == said[0]);
    CHECK(codes[r] == errc::invalid_argument);
  }
  CHECK(fault_of(p, got, definition<float>(p, recipe_tensors(p))) == "");
}

TEST_CASE("an update whose tables do not fit on one rank fails the next run of all others, until they go back") {
  const index_t half = 32768,
                n = 2 * half;  // table bytes of such a mask grow with the square, what is planned linearly
  problem p = base(n, 2, half);
  p.options.passes = forward_only;
  p.options.capacity.ranges_per_tile = 1;
  p.mask = any_mask(nearby{n, false}, "itself");
  const any_mask finer(nearby{n, true}, "scattered");
  const any_layout cut(reordered{swapped{half, half + 5}, contiguous{.tokens = n, .ranks = 2}}, "cut");
  std::array<std::string, 2> said;
  std::array<status, 2> ran, later;
  std::array<bool, 2> right{};
  index_t planned = 0;
  threads::options world_options{.ranks = 2};
  world_options.deadline = std::chrono::seconds(60);
  std::barrier prepared(2);  // else a peer may hear of the failure in its first run
  run_ranks(world_options, [&](threads::transport world) {
    const auto me = static_cast<std::size_t>(world.rank());
    rank_run rank(world, p);
    rank.prepare();
    check(rank.forward());
    const std::vector<float> out = rank.out;
    prepared.arrive_and_wait();
    if (me == 1) planned = rank.plan.memory().tables;
    const failure f = rank.plan.try_update(p.q_layout, cut, finer, rank.given);
    said[me] = f ? f->what() : "updated";
    ran[me] = rank.forward();
    check(world.recover());
    rank.update(p);
    later[me] = rank.forward();
    right[me] = same_bits(rank.out, out);
  });
  CHECK(said[0] == "updated");
  CHECK(said[1].starts_with("[seqpar] attention_plan::update: "));
  CHECK(said[1].find("capacity.ranges_per_tile: memory.tables (") != std::string::npos);
  CHECK(std::stoll(said[1].substr(said[1].find("memory.tables (") + 15)) > planned);
  CHECK(said[1].find(" bytes wanted, " + std::to_string(planned) + " given)") != std::string::npos);
  CHECK(ran[0].code() == errc::peer_failed);
  CHECK(ran[0].rank() == 1);
  CHECK(!ran[1].ok());
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(later[r].ok());
    CHECK(right[r]);
  }
}

TEST_CASE("an update over another number of ranks is refused before the layout is asked about ranks that it has not") {
  std::atomic<bool> asked_beyond = false;
  const problem p = base(16, 4, 16);
  problem fewer = p;
  fewer.q_layout = any_layout(over_two{16, &asked_beyond}, "over two");
  const std::vector<run> runs{{0, 8, 1}, {8, 8, 1}};
  const std::vector<index_t> offsets{0, 1, 2};
  const any_layout table(segments{runs, offsets}, "segments over two");
  std::array<std::vector<std::string>, 4> said;
  run_ranks(4, [&](threads::transport world) {
    rank_run rank(world, p);
    rank.prepare();
    const auto say = [&](const any_layout& q, const any_layout& kv) {
      const failure f = rank.plan.try_update(q, kv, p.mask, rank.given);
      said[static_cast<std::size_t>(world.rank())].push_back(f ? f->what() : "updated");
      check(world.recover());
    };
    say(fewer.q_layout, p.kv_layout);
    say(p.q_layout, fewer.q_layout);
    say(table, table);
  });
  CHECK(!asked_beyond);
  for (const std::string& text : said[0]) CHECK(text.find("dealt over 2 ranks, the mesh has 4") != std::string::npos);
  for (const auto& text : said) CHECK(text == said[0]);
}

}  // namespace seqpar::test
