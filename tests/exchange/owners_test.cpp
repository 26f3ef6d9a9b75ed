// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts of the caller's own that give a row to two ranks, and ranks whose layouts differ in a few rows only.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include <seqpar/transport/recorder.hpp>
#include <tests/exchange/harness.hpp>
#include <tests/support/layouts.hpp>

using namespace exchange_test;

namespace {

using test::claims_twice;
using test::merges_two;
using test::runs_backwards;
using test::swapped;

const index_t n = 256;
const exchange_options options{.row_bytes = 4};

/// What planning says on every rank of four, which must be the same.
template <class Plan>
std::string planned(Plan&& plan_on) {
  std::string said;
  for (int r = 0; r < 4; ++r) {
    std::vector<recorded_message> log;
    const auto plan = plan_on(ring(recorder(r, 4, log)));
    const std::string text = plan.ok() ? "" : plan.failure().what();
    if (!plan.ok() && plan.failure().code() != errc::invalid_argument) return "another code: " + text;
    if (r > 0 && text != said) return "other words on another rank: " + text;
    said = text;
  }
  return said;
}
template <class L>
std::string gather_of(const L& layout) {
  return planned([&](const auto& team) { return try_plan_gather(team, layout, options); });
}
template <class L>
void check_refused(const L& layout, const char* words) {
  const contiguous good{.tokens = layout.token_count(), .ranks = 4};
  const std::string texts[] = {
      gather_of(layout), planned([&](const auto& team) { return try_plan_reshard(team, layout, good, options); }),
      planned([&](const auto& team) { return try_plan_reshard(team, good, layout, options); })};
  for (const std::string& text : texts) CHECK_MESSAGE(text.find(words) != std::string::npos, words << ": " << text);
}

}  // namespace

TEST_CASE("two owners of a row in a layout of the caller's own are refused while planning, on every rank alike") {
  check_refused(claims_twice{n, 4}, "row 1 ");
  check_refused(reordered{merges_two{}, contiguous{.tokens = n, .ranks = 4}}, "row 6 ");
  check_refused(paired<claims_twice>{claims_twice{n, 4}}, "row ");
  check_refused(nested<claims_twice, contiguous>{{n, 2}, {.tokens = n, .ranks = 2}}, "row 1 ");
  check_refused(nested<contiguous, claims_twice>{{.tokens = n, .ranks = 2}, {n, 2}}, "row 1 ");
}

TEST_CASE("runs that do not spell global_of are refused while planning, on every rank alike, in any family") {
  const runs_backwards wrong{{.tokens = n, .ranks = 4}}, half{{.tokens = n, .ranks = 2}};
  check_refused(wrong, "the runs of a rank do not spell global_of");
  check_refused(paired<runs_backwards>{wrong}, "the runs of a rank do not spell global_of");
  check_refused(nested<runs_backwards, contiguous>{half, {.tokens = n, .ranks = 2}}, "the runs of a rank do not spell");
}

TEST_CASE("layouts of the library are accepted as they are") {
  const std::vector<index_t> bounds{0, 100, 100, 156, n};
  CHECK(gather_of(contiguous{.tokens = n, .ranks = 4}) == "");
  CHECK(gather_of(zigzag{.tokens = n, .ranks = 4}) == "");
  CHECK(gather_of(striped{.tokens = n, .ranks = 4}) == "");
  CHECK(gather_of(paired<zigzag>{zigzag{.tokens = n, .ranks = 4}}) == "");
  CHECK(gather_of(nested<zigzag, contiguous>{{.tokens = n, .ranks = 2}, {.tokens = n, .ranks = 2}}) == "");
  CHECK(gather_of(per_document<zigzag>{bounds, {.tokens = 0, .ranks = 4}}) == "");
  CHECK(gather_of(grid{.frames = 4, .height = 8, .width = 8, .split_h = 2, .split_w = 2}) == "");
  CHECK(gather_of(reordered{swapped{3, 200}, zigzag{.tokens = n, .ranks = 4}}) == "");
}

TEST_CASE("permutations that differ in two entries are a disagreement, and nothing but it was sent [J6]") {
  for (const swapped& other : {swapped{2, 34}, swapped{2, 130}, swapped{77, 78}, swapped{200, 201}}) {
    std::array<std::string, 4> said;
    run_ranks(4, [&](threads::transport t) {
      const reordered<swapped, contiguous> layout{t.rank() == 3 ? other : swapped{0, 1}, {.tokens = n, .ranks = 4}};
      auto plan = plan_gather(ring(t), layout, options);
      const host_memory memory(plan.memory());
      const failure f = plan.try_prepare(memory, on_host{});
      said[static_cast<std::size_t>(t.rank())] = f ? f->what() : "prepared";
      check(t.recover());
    });
    CHECK_MESSAGE(said[0].find("ranks disagree on the layout: ranks 0,1,2") != std::string::npos, said[0]);
    CHECK(said[0].find("against rank 3") != std::string::npos);
    for (const std::string& text : said) CHECK(text == said[0]);
  }
}

TEST_CASE("try_prepare returns what prepare throws, the same on every rank, and nothing when all agree [J6]") {
  std::array<std::string, 4> said;
  std::array<bool, 4> fine{};
  run_ranks(4, [&](threads::transport t) {
    const auto me = static_cast<std::size_t>(t.rank());
    const contiguous layout{.tokens = n, .ranks = 4};
    auto plan = plan_gather(ring(t), layout, {.row_bytes = t.rank() == 2 ? 8 : 4});
    const host_memory memory(plan.memory());
    const failure f = plan.try_prepare(memory, on_host{});
    said[me] = f ? f->what() : "prepared";
    if (f && f->code() != errc::ranks_disagree) said[me] = "another code";
    auto good = plan_gather(ring(t), layout, options);
    const host_memory enough(good.memory());
    fine[me] = !good.try_prepare(enough, on_host{});
    std::vector<float> in(n / 4, static_cast<float>(t.rank())), out(n, -1);
    check(good.forward(in.data(), out.data(), enough, on_host{}));
    fine[me] = fine[me] && out.front() == 0 && out.back() == 3;
  });
  CHECK(said[0].find("ranks disagree on row_bytes: expected 4 (ranks 0,1,3 of 4), got 8 (rank 2)") !=
        std::string::npos);
  for (const std::string& text : said) CHECK(text == said[0]);
  for (const bool yes : fine) CHECK(yes);
}

TEST_CASE("try_prepare with too little memory on one rank is that rank's error, and peer_failed for the others") {
  std::array<errc, 3> codes{};
  run_ranks(3, [&](threads::transport t) {
    auto plan = plan_gather(ring(t), contiguous{.tokens = 12, .ranks = 3}, options);
    const host_memory memory(plan.memory());
    const failure f = plan.try_prepare(t.rank() == 1 ? seqpar::memory{} : seqpar::memory(memory), on_host{});
    codes[static_cast<std::size_t>(t.rank())] = f ? f->code() : errc::ok;
    check(t.recover());
  });
  CHECK(codes == std::array<errc, 3>{errc::peer_failed, errc::memory_too_small, errc::peer_failed});
}
