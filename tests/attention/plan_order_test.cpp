// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All ranks run their plans in one order: what a rank does in another one is an error, never another plan's data.
#include <doctest/doctest.h>

#include <array>

#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/support/two_orders.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {

constexpr const char* other_plan =
    "[seqpar] threads: a message belongs to another plan; run plans in the same order on all ranks";

/// Threads that write down the plan that each label names.
struct labelled {
  struct group_type : threads::group {
    std::vector<index_t>* plans;
    void label(const message_label& l) noexcept {
      plans->push_back(l.plan);
      threads::group::label(l);
    }
  };
  static constexpr transport_access access = threads::transport::access;
  threads::transport t;
  std::vector<index_t>* plans;

  int rank() const { return t.rank(); }
  int size() const { return t.size(); }
  group_type group() const { return {t.group(), plans}; }
  status launch(group_type& g, on_host e) const { return t.launch(g, e); }
  status wait(group_type& g, on_host e) const { return t.wait(g, e); }
  status wait(group_type& g, on_host e, std::chrono::nanoseconds d) const { return t.wait(g, e, d); }
  status check() const { return t.check(); }
  void abort(const status& s) const { t.abort(s); }
};

/// What body(transport, swaps) tells each of three ranks, where `who` swaps, and the report.
struct outcome {
  std::array<status, 3> told{};
  std::string report;
};
template <class Body>
outcome told(int who, std::uint64_t seed, Body&& body) {
  outcome all;
  threads::options o{.ranks = 3};
  o.adversary = seed;
  run_ranks(o, [&](threads::transport t) {
    all.told[static_cast<std::size_t>(t.rank())] = body(t, t.rank() == who);
    if (t.rank() == 0) all.report = t.report();
    check(t.recover());
    check(two_reshards(ring(t), false));  // all is as new
    check(t.recover());
  });
  return all;
}

}  // namespace

TEST_CASE("two equal plans in another order on one rank are ranks_disagree on all, with the labels of both messages") {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (int who = 0; who < 3; ++who) {
      CAPTURE(seed);
      CAPTURE(who);
      const outcome same = told(who, seed, [](const auto& t, bool swaps) { return two_reshards(ring(t), swaps); });
      for (const status& s : same.told) CHECK(s.message() == other_plan);
      for (const status& s : same.told) CHECK(s.code() == errc::ranks_disagree);
      const outcome mixed =
          told(who, seed, [](const auto& t, bool swaps) { return attention_and_reshard(ring(t), swaps); });
      for (const status& s : mixed.told) CHECK(s.message() == other_plan);
      for (const char* part : {"(reshard, round 0)", "(keys, round ", "belongs to another plan", "rank "})
        CHECK(mixed.report.find(part) != std::string::npos);
    }
}

TEST_CASE("run_ranks throws the report of plans that meet, and the words of ranks that disagree") {
  const auto thrown = [](auto&& body) -> std::string {
    try {
      run_ranks(2, body);
    } catch (const error& e) {
      return e.code() == errc::ranks_disagree ? e.what() : "another code";
    }
    return "";
  };
  const std::string met = thrown([](const auto& t) { check(two_reshards(ring(t), t.rank() == 1)); });
  CHECK(met.find("(reshard, round 0) belongs to another plan than the one it meets (reshard, round 0, of another such "
                 "plan); run plans") != std::string::npos);
  const std::string differ = thrown([](const auto& t) {
    const contiguous rows{.tokens = 4, .ranks = 2};
    auto plan = plan_reshard(ring(t), rows, rows, {.row_bytes = 4 + t.rank(), .passes = forward_only});
    plan.prepare({}, on_host{});
  });
  CHECK(differ.find("ranks disagree on row_bytes") != std::string::npos);
}

TEST_CASE("in one order everywhere plans meet themselves: twice, on copies of a transport, traced, in groups") {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    run_ranks({.ranks = 4, .adversary = seed}, [](threads::transport t) {
      const checked_reshard a(ring(t)), b(ring(threads::transport(t)));
      for (int i = 0; i < 3; ++i) {
        check(a.run(10));
        check(a.run(20));
        check(b.run(30));
      }
      check(attention_and_reshard(ring(t), false));
      flight_record record{t.rank(), t.size(), 16};
      check(two_reshards(ring(traced{t, record}), false));
      // Two disjoint meshes take their own time, and the whole one goes on behind them.
      const std::vector<int> mine = t.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3};
      const checked_reshard half(ring(t, mine));
      for (int i = 0; i <= t.rank() / 2; ++i) check(half.run(40));
      check(a.run(50));
    });
}

TEST_CASE(
    "every message of a plan's runs names the plan, after an update too; plans that trust one another name none") {
  for (const agreement check_what : {agreement::checked, agreement::trusted}) {
    std::array<std::vector<index_t>, 2> plans;
    run_ranks(2, [&](threads::transport t) {
      const labelled world{t, &plans[static_cast<std::size_t>(t.rank())]};
      const auto rows = [](index_t n) { return contiguous{.tokens = n, .ranks = 2}; };
      auto plan = plan_attention<float>(ring(world), rows(8), full{}, {.heads = 1, .kv_heads = 1, .head_dim = 1},
                                        {.capacity = {.tokens_per_rank = 4}, .check = check_what});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      plan.update(rows(4), full{}, memory);
      world.plans->clear();
      float q[2] = {}, k[2] = {}, v[2] = {1, 1}, out[2], lse[2];
      const auto view = [](float* x) { return dense_view(x, {1, 2, 1, 1}); };
      check(
          plan.forward({.q = view(q), .k = view(k), .v = view(v), .out = view(out), .lse = dense_heads(lse, {1, 1, 2})},
                       memory, on_host{}));
    });
    REQUIRE(!plans[0].empty());
    CHECK(plans[0] == plans[1]);
    for (const index_t p : plans[0]) CHECK((p != 0) == (check_what == agreement::checked));
  }
}
