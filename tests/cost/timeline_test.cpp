// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs on paper played on machines whose times are known by hand.
#include <doctest/doctest.h>
#include <seqpar/cost/timeline.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <tests/cost/apart.hpp>

template struct seqpar::attention_apart<seqpar::bfloat16, seqpar::paper_transport, seqpar::on_paper,
                                        seqpar::test::kernel_here>;

namespace seqpar::test {
namespace {

using kind = timeline_span::kind;
machine simple(double flops, double bandwidth, double latency = 0, int per_node = 0) {
  return {.flops = flops,
          .inside = {latency, bandwidth},
          .across = {10 * latency, bandwidth / 4},
          .ranks_per_node = per_node};
}

/// A page written by hand.
struct writer {
  paper_page page;
  paper_transport world;
  std::vector<paper_transport::group_type> groups;
  writer(int rank, int ranks) : world(rank, ranks) {}
  writer& compute(double flops) {
    page.operations.push_back({.what = paper_operation::kind::compute, .flops = flops});
    return *this;
  }
  writer& launch(std::vector<std::pair<int, index_t>> sends, std::vector<std::pair<int, index_t>> receives) {
    auto& g = groups.emplace_back(world.group());
    g.reserve(8, 8);
    for (auto [peer, bytes] : sends) g.send(dense_block(nullptr, bytes), peer);
    for (auto [peer, bytes] : receives) g.recv(dense_block(nullptr, bytes), peer);
    check(world.launch(g, on_paper{&page}));
    return *this;
  }
  writer& wait(std::size_t which) {
    check(world.wait(groups[which], on_paper{&page}));
    return *this;
  }
};
std::vector<paper_page> pages_of(std::vector<writer> ranks) {
  std::vector<paper_page> pages;
  for (writer& w : ranks) pages.push_back(w.page);
  return pages;
}

template <class L, class M>
paper_runs runs_of(const mesh_shape& team, const L& layout, const M& mask, attention_options o = {}) {
  return run_on_paper<bfloat16>(team, layout, layout, mask, {.heads = 8, .kv_heads = 8, .head_dim = 64}, o);
}

}  // namespace

TEST_CASE("a transfer starts when both sides have launched it, and is waited for only as long as it is not there") {
  // rank 0 computes 3 s and sends 20 bytes; rank 1 launches at once, computes 1 s, waits
  const std::vector<paper_page> pages = pages_of({writer(0, 2).compute(3).launch({{1, 20}}, {}).wait(0).compute(1),
                                                  writer(1, 2).launch({}, {{0, 20}}).compute(1).wait(0).compute(2)});
  const timeline t(pages, simple(1, 10, .5));
  CHECK(t.ends(0) == 3 + 2.5 + 1);
  CHECK(t.ends(1) == 3 + 2.5 + 2);
  CHECK(t.total() == 7.5);
  CHECK(t.spent(1, kind::wait) == 4.5);
  CHECK(t.spent(0, kind::wait) == 2.5);
  CHECK(t.spent(1, kind::compute) == 3);
  CHECK(t.ideal() == 3.5);
  const std::vector<timeline_span> path = t.critical_path();
  REQUIRE(path.size() == 3);
  CHECK(path[0].rank == 0);
  CHECK(path[1].what == kind::transfer);
  CHECK(path[2].rank == 1);
}

TEST_CASE("a port sends one transfer at a time; in and out, and other ports, do not disturb each other") {
  const std::vector<paper_page> pages =
      pages_of({writer(0, 3).launch({{1, 10}, {2, 10}}, {{1, 10}}).wait(0),
                writer(1, 3).launch({{0, 10}}, {{0, 10}}).wait(0), writer(2, 3).launch({}, {{0, 10}}).wait(0)});
  const timeline t(pages, simple(1, 10));
  CHECK(t.ends(1) == 1);
  CHECK(t.ends(2) == 2);
  CHECK(t.ends(0) == 2);
  CHECK(timeline(pages, simple(1, 10, .5)).ends(2) == 2.5);  // the port is free again before the latency is over
}

TEST_CASE("a port receives one transfer at a time, the first that came first") {
  const std::vector<paper_page> pages =
      pages_of({writer(0, 3).compute(.5).launch({{1, 10}}, {}).wait(0),
                writer(1, 3).launch({}, {{0, 10}, {2, 30}}).wait(0), writer(2, 3).launch({{1, 30}}, {}).wait(0)});
  const timeline t(pages, simple(1, 10));
  CHECK(t.ends(2) == 3);
  CHECK(t.ends(0) == 4);
  CHECK(t.ends(1) == 4);
}

TEST_CASE("links across nodes are slower, and have ports of their own") {
  const std::vector<paper_page> pages =
      pages_of({writer(0, 3).launch({{1, 10}, {2, 10}}, {}).wait(0), writer(1, 3).launch({}, {{0, 10}}).wait(0),
                writer(2, 3).launch({}, {{0, 10}}).wait(0)});
  const timeline t(pages, simple(1, 10, 0, 2));
  CHECK(t.ends(1) == 1);
  CHECK(t.ends(2) == 4);
}

TEST_CASE("messages of one launch between two ranks are one transfer with one latency") {
  const std::vector<paper_page> pages =
      pages_of({writer(0, 2).launch({{1, 5}, {1, 5}}, {}).wait(0), writer(1, 2).launch({}, {{0, 5}, {0, 5}}).wait(0)});
  CHECK(timeline(pages, simple(1, 10, 2)).total() == 3);
}

TEST_CASE("copies take their time where memory has a speed") {
  std::vector<paper_page> pages(1);
  pages[0].touch(30);
  pages[0].touch(10);
  machine m = simple(1, 1);
  CHECK(timeline(pages, m).total() == 0);
  m.memory_bandwidth = 20;
  CHECK(timeline(pages, m).total() == 2);
  CHECK(timeline(pages, m).spent(0, kind::memory) == 2);
}

TEST_CASE("an even ring takes the ideal time when links are fast, and its transfers' time when computing is") {
  const zigzag layout{.tokens = 4096, .ranks = 4};
  const paper_runs runs = runs_of({4, 1}, layout, full{}, {.passes = forward_backward});
  CHECK(timeline(runs.backward, simple(1e9, 1e30)).ideal() ==
        doctest::Approx(2.5 * timeline(runs.forward, simple(1e9, 1e30)).ideal()));
  const timeline fast(runs.forward, simple(1e9, 1e30));
  CHECK(fast.efficiency() == doctest::Approx(1).epsilon(1e-9));
  CHECK(fast.total() == doctest::Approx(4096. * 1024 * 8 * 2 * 128 / 1e9));
  const timeline slow(runs.forward, simple(1e30, 1e6));
  CHECK(slow.total() == doctest::Approx(3 * 1024. * 8 * 128 * 2 / 1e6));
  CHECK(slow.spent(2, kind::wait) == doctest::Approx(slow.total()));
}

TEST_CASE("a contiguous causal ring waits for its last rank; zigzag does not") {
  const auto efficiency = [](const auto& layout) {
    const paper_runs runs = runs_of({8, 1}, layout, causal{});
    return timeline(runs.forward, simple(1e9, 1e30)).efficiency();
  };
  CHECK(efficiency(zigzag{.tokens = 8192, .ranks = 8}) > .95);
  CHECK(efficiency(contiguous{.tokens = 8192, .ranks = 8}) < .56);
  CHECK(efficiency(contiguous{.tokens = 8192, .ranks = 8}) > .5);
}

TEST_CASE("the spans of the critical path follow one another without a gap and make up the total") {
  for (const mesh_shape team : {mesh_shape{4, 1}, mesh_shape{2, 2}, mesh_shape{1, 4}})
    for (const schedule s : {schedule::direct, schedule::pass_along}) {
      const paper_runs runs =
          runs_of(team, zigzag{.tokens = 1000, .ranks = 4}, causal{}, {.passes = forward_backward, .schedule = s});
      for (const auto* pages : {&runs.forward, &runs.backward}) {
        machine m = simple(1e9, 2e7, 0, 2);
        m.memory_bandwidth = 1e9;
        const timeline t(*pages, m);
        double sum = 0, end = 0;
        for (const timeline_span& x : t.critical_path()) {
          CHECK(x.start == doctest::Approx(end).epsilon(1e-9));
          end = x.end;
          sum += x.end - x.start;
        }
        CHECK(sum == doctest::Approx(t.total()).epsilon(1e-9));
        CHECK(t.total() >= t.ideal());
        for (int r = 0; r < 4; ++r)
          CHECK(t.spent(r, kind::compute) + t.spent(r, kind::memory) + t.spent(r, kind::wait) ==
                doctest::Approx(t.ends(r)).epsilon(1e-9));
        const machine twice{
            2 * m.flops, {0, 2 * m.inside.bandwidth}, {0, 2 * m.across.bandwidth}, 2, 2 * m.memory_bandwidth};
        CHECK(timeline(*pages, twice).total() == doctest::Approx(t.total() / 2).epsilon(1e-9));
      }
    }
}

TEST_CASE("the spans of a temporary timeline can be walked") {
  double time = 0;
  for (const timeline_span& s : timeline(pages_of({writer(0, 1).compute(6)}), simple(2, 1)).spans())
    time += s.end - s.start;
  CHECK(time == 3);
}

TEST_CASE("machines without speed are refused, and so are runs whose messages do not match") {
  const std::vector<paper_page> none(2);
  const auto says = [&](machine m, const char* what) {
    CHECK_THROWS_WITH_AS(timeline(none, m), doctest::Contains(what), error);
  };
  says(simple(0, 1), "flops must be above 0");
  says(simple(-1, 1), "flops must be above 0");
  says(simple(1, 0), "inside.bandwidth must be above 0");
  says({.flops = 1, .inside = {0, 1}, .across = {0, -4}, .ranks_per_node = 1},
       "across.bandwidth must be above 0, not -4");
  says({.flops = 1, .inside = {0, 1}, .across = {-3, 4}, .ranks_per_node = 1}, "across.latency must be 0 or more");
  says(simple(1, 1, -1), "inside.latency must be 0 or more, and finite, not -1");
  says({.flops = 1, .inside = {0, 1}, .across = {0, 1}, .ranks_per_node = -2}, "must be 0 (one node) or more, not -2");
  says({.flops = 1, .inside = {0, 1}, .across = {0, 1}, .memory_bandwidth = 0}, "memory_bandwidth must be above 0");
  says({.flops = std::numeric_limits<double>::quiet_NaN(), .inside = {0, 1}, .across = {0, 1}}, "flops");
  says({.flops = 1, .inside = {0, 1}, .ranks_per_node = 1}, "across.bandwidth must be above 0, not 0");
  for (int per_node : {0, 2, 8})  // two ranks on one node: nothing is across
    CHECK(timeline(none, {.flops = 1, .inside = {0, 1}, .ranks_per_node = per_node}).total() == 0);
  CHECK(timeline(none, simple(1, 1)).efficiency() == 1);
  const auto lonely = pages_of({writer(0, 2).launch({{1, 5}}, {}).wait(0), writer(1, 2)});
  CHECK_THROWS_WITH_AS(timeline(lonely, simple(1, 1)), doctest::Contains("more messages are sent"), error);
  const auto other = pages_of({writer(0, 2).launch({{1, 5}}, {}), writer(1, 2).launch({}, {{0, 6}})});
  CHECK_THROWS_WITH_AS(timeline(other, simple(1, 1)), doctest::Contains("rank 0 sends what rank 1 does not receive"),
                       error);
  const auto crossed = pages_of({writer(0, 2).launch({}, {{1, 5}}).wait(0).launch({{1, 5}}, {}),
                                 writer(1, 2).launch({}, {{0, 5}}).wait(0).launch({{0, 5}}, {})});
  CHECK_THROWS_WITH_AS(timeline(crossed, simple(1, 1)), doctest::Contains("waits for ever"), error);
}

}  // namespace seqpar::test
