// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Meshes made of any ranks in any order, several at once, and both axes working at the same time.
#include <thread>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

const golden s8c{1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915};
const golden s16c_h4{1.40694490, 126.04250496, 0.96528669, 0.49370927, -0.49057195};

attention_case s8() {
  return {.tokens = 8, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_past, .sums = s8c};
}
attention_case s16() {
  return {.tokens = 16, .shape = {.heads = 4, .kv_heads = 4, .head_dim = 4}, .mask = see_past, .sums = s16c_h4};
}
std::vector<index_t> positions(const any_layout& layout, int rank) {
  std::vector<index_t> list;
  for (index_t i = 0; i < layout.count_of(rank); ++i) list.push_back(layout.global_of(rank, i));
  return list;
}

}  // namespace

TEST_CASE("a group of any ranks of the world in any order gives what the world would, in the order given [O1]") {
  const attention_case c = s8();
  const tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  for (const std::vector<int>& ranks : {std::vector<int>{2, 3}, {3, 1}, {0, 3}, {3, 0, 1}})
    for (const mesh_shape& team : every_mesh(static_cast<int>(ranks.size())))
      for (const deal d : every_deal)
        for (const schedule s : every_schedule) {
          problem p = c.at(d, static_cast<int>(ranks.size()), team, s);
          p.ranks = ranks;
          p.world = 4;
          const std::string fault = fault_when_run<float>(
              p, in, definition<float>(p, in),
              [](const problem&, const outcome<float>& got) { return sums_fault(got, s8c, 2e-5); });
          CHECK_MESSAGE(fault.empty(), name_of(p) << ": " << fault);
        }
}

TEST_CASE("two disjoint groups at once do not touch each other [O1]") {
  const attention_case c = s8();
  const std::vector<std::vector<int>> groups{{2, 0}, {3, 1}};
  std::vector<problem> problems;
  std::vector<outcome<float>> results;
  for (const std::vector<int>& ranks : groups) {
    problems.push_back(c.at(in_zigzag, 2, {.ring = 2, .all_to_all = 1}, schedule::direct));
    problems.back().ranks = ranks;
    results.push_back(empty_outcome(problems.back()));
  }
  problems[1].team = {.ring = 1, .all_to_all = 2};
  run_ranks({.ranks = 4, .adversary = 5}, [&](threads::transport world) {
    const std::size_t mine = world.rank() % 2 == 0 ? 0 : 1;
    rank_run rank(world, problems[mine]);
    rank.prepare();
    for (int i = 0; i < 5; ++i) {
      check(rank.forward());
      check(rank.backward());
    }
    rank.store(problems[mine], results[mine]);
  });
  for (const outcome<float>& got : results) CHECK(sums_fault(got, s8c, 2e-5) == "");
}

TEST_CASE("zigzag over the ring of an all-to-all 4 x ring 2 mesh: ascending positions after the exchange [O2]") {
  const nested<zigzag, contiguous> over_the_ring{{.tokens = 16, .ranks = 2}, {.tokens = 0, .ranks = 4}};
  const any_layout layout(over_the_ring, "zigzag over the ring");
  const std::vector<std::vector<index_t>> want{{0, 1}, {2, 3}, {12, 13}, {14, 15}, {4, 5}, {6, 7}, {8, 9}, {10, 11}};
  for (int r = 0; r < 8; ++r) CHECK(positions(layout, r) == want[static_cast<std::size_t>(r)]);
  const attention_case c = s16();
  const problem one = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  const tensors in = recipe_tensors(one);
  for (const schedule s : every_schedule) {
    problem p = c.at(in_zigzag, 8, {.ring = 2, .all_to_all = 4}, s);
    p.q_layout = p.kv_layout = layout;
    const std::string fault =
        fault_when_run<float>(p, in, definition<float>(p, in),
                              [](const problem&, const outcome<float>& got) { return sums_fault(got, s16c_h4, 2e-5); });
    CHECK_MESSAGE(fault.empty(), fault);
    std::vector<recorded_message> log;
    for (int r = 0; r < 8; ++r) {
      const auto plan = plan_attention<float>(mesh(recorder(r, 8, log), p.team), layout, causal{}, p.shape, p.options);
      std::vector<std::int32_t> seen;  // positions of the queries that this member attends for, in arrival order
      for (std::int32_t end : plan.setup().parts[0].rows.hi0) seen.push_back(end - 1);
      CHECK(seen == (r < 4 ? std::vector<std::int32_t>{0, 1, 2, 3, 12, 13, 14, 15}
                           : std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
    }
  }
}

TEST_CASE("both axes at once in a loop under random delays: no hang, and all members issue alike [O3]") {
  const attention_case c = s8();
  for (const axis inside : {axis::all_to_all, axis::ring})
    for (const schedule s : every_schedule) {
      const problem p = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2, .inside = inside}, s);
      outcome<float> got = empty_outcome(p);
      std::vector<std::vector<std::string>> issued(4);
      run_ranks({.ranks = 4, .adversary = 11}, [&](threads::transport world) {
        rank_run rank(world, p, 1 << 12);
        rank.prepare();
        for (int i = 0; i < 10; ++i) {
          check(rank.forward());
          check(rank.backward());
        }
        rank.record.for_each([&](const flight_event& e) {
          auto& mine = issued[static_cast<std::size_t>(world.rank())];
          const std::string name = std::string(e.label.stage) + std::to_string(e.label.round);
          if (mine.empty() || mine.back() != name) mine.push_back(name);
        });
        rank.store(p, got);
      });
      CHECK(sums_fault(got, s8c, 2e-5) == "");
      for (const auto& other : issued) CHECK(other == issued.front());
      CHECK(issued.front().size() > 50);
      run_ranks(4, [&](threads::transport world) {
        rank_run rank(world, p);
        rank.prepare();
        for (int i = 0; i < 250; ++i) {
          if (i % 50 == world.rank()) std::this_thread::sleep_for(std::chrono::microseconds(200));
          check(rank.forward());
          check(rank.backward());
        }
      });
    }
}

TEST_CASE("a mesh of ranks 0, 2, 1, 3 keeps its all-to-all inside {0, 2} and {1, 3}, and its results [O4]") {
  const attention_case c = s16();
  const std::vector<int> order{0, 2, 1, 3};
  const problem plain = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
  const tensors in = recipe_tensors(plain);
  for (const schedule s : every_schedule)
    for (const deal d : every_deal) {
      problem p = c.at(d, 4, {.ring = 2, .all_to_all = 2}, s);
      const outcome<float> natural = run_problem<float>(p, in);
      p.ranks = order;
      const outcome<float> got = run_problem<float>(p, in);
      CHECK(sums_fault(got, s16c_h4, 2e-5) == "");
      CHECK(same_bits(got, natural));
    }
  run_ranks(4, [&](threads::transport world) {
    problem p = plain;
    p.ranks = order;
    rank_run rank(world, p);
    rank.prepare();
    const index_t before = rank.record.messages(direction::send);
    check(rank.forward());
    if (rank.record.messages(direction::send) == before) throw std::runtime_error("nothing was sent");
    rank.record.for_each([&](const flight_event& e) {
      const bool same_node = e.peer % 2 == world.rank() % 2, heads = std::string(e.label.stage).starts_with("heads");
      if (std::string(e.label.stage) != "agreement" && heads != same_node) throw std::runtime_error("left its node");
    });
  });
}

}  // namespace seqpar::test
