// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Updates that are refused: without a capacity on every rank alike; on one rank only, told to its peers.
#include <array>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

/// Queries of the first half see themselves; of the second half also one key far away, another for each, when `far`.
struct near_and_far {
  index_t tokens;
  bool far;
  constexpr index_t other(index_t q) const { return q * 7919 % tokens; }
  constexpr bool sees_other(index_t q) const { return far && q >= tokens / 2; }
  constexpr bool allows(index_t q, index_t k) const { return k == q || (sees_other(q) && k == other(q)); }
  constexpr interval_pair key_intervals(index_t q) const {
    return make_intervals({q, q + 1}, sees_other(q) ? interval{other(q), other(q) + 1} : interval{});
  }
};

/// The second half of 2^(bits + 1) positions in another order.
struct second_half_shuffled {
  int bits;
  static constexpr std::uint64_t factor = 4099;
  constexpr index_t half() const { return index_t{1} << bits; }
  constexpr index_t times(index_t i, std::uint64_t by) const {
    return half() + static_cast<index_t>(static_cast<std::uint64_t>(i - half()) * by % std::uint64_t(half()));
  }
  constexpr index_t from(index_t i) const { return i < half() ? i : times(i, factor); }
  constexpr index_t to(index_t g) const {
    std::uint64_t inverse = 1;  // Newton: each step doubles the bits that are right
    for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
    return g < half() ? g : times(g, inverse);
  }
  friend constexpr bool operator==(second_half_shuffled, second_half_shuffled) = default;
};

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
  const second_half_shuffled order{14};
  const index_t half = order.half(), n = 2 * half;
  problem p = base(n, 2, half);
  p.options.passes = forward_only;
  p.options.capacity.ranges_per_tile = 1;
  p.mask = any_mask(near_and_far{n, false}, "itself");
  problem finer = p;
  finer.q_layout = any_layout(reordered{order, contiguous{.tokens = n, .ranks = 2}}, "half shuffled");
  finer.mask = any_mask(near_and_far{n, true}, "itself and one far away");
  std::array<std::string, 2> said;
  std::array<status, 2> ran, later;
  std::array<bool, 2> right{};
  threads::options world_options{.ranks = 2};
  world_options.deadline = std::chrono::seconds(60);
  run_ranks(world_options, [&](threads::transport world) {
    const auto me = static_cast<std::size_t>(world.rank());
    rank_run rank(world, p);
    rank.prepare();
    const failure f = rank.plan.try_update(finer.q_layout, finer.kv_layout, finer.mask, rank.given);
    said[me] = f ? f->what() : "updated";
    ran[me] = rank.forward();
    check(world.recover());
    rank.update(p);
    later[me] = rank.forward();
    right[me] = same_bits(rank.out, rank.v);  // who sees only itself gets its own value
  });
  CHECK(said[0] == "updated");
  CHECK(said[1].starts_with("[seqpar] attention_plan::update: "));
  CHECK(said[1].find("capacity") != std::string::npos);
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
