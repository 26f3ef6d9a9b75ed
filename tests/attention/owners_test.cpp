// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts of the caller's own that give a row to two ranks, and ranks whose layouts differ in a few rows only.
#include <array>

#include <tests/attention/rank.hpp>
#include <tests/support/layouts.hpp>

namespace seqpar::test {
namespace {

problem plain(index_t tokens) {
  attention_case c{.tokens = tokens, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1}, .mask = see_past};
  return c.at(contiguously, 4, {.ring = 4, .all_to_all = 1}, schedule::direct);
}

/// What planning and preparing says on each rank, where rank r is given problem_of(r).
template <class ProblemOf>
std::array<std::string, 4> said_by_ranks(ProblemOf&& problem_of) {
  std::array<std::string, 4> said;
  run_ranks(4, [&](threads::transport world) {
    std::string& text = said[static_cast<std::size_t>(world.rank())];
    flight_record* record = nullptr;
    try {
      rank_run rank(world, problem_of(world.rank()));
      record = &rank.record;
      rank.prepare();
      text = "prepared";
    } catch (const error& e) {
      text = e.what();
      if (!record && e.code() != errc::invalid_argument) text = "another code: " + text;
      if (record && e.code() != errc::ranks_disagree) text = "another code: " + text;
    }
    check(world.recover());
  });
  return said;
}
template <class L>
void check_two_owners(const L& layout, const std::string& what) {
  for (const bool keys : {false, true}) {
    const auto said = said_by_ranks([&](int) {
      problem p = plain(layout.token_count());
      (keys ? p.kv_layout : p.q_layout) = any_layout(layout);
      return p;
    });
    const std::string start = std::string("[seqpar] plan_attention: the layout") + (keys ? " of the keys" : "") + ": ";
    CHECK_MESSAGE(said[0].starts_with(start + what), what << ": " << said[0]);
    for (const std::string& text : said) CHECK(text == said[0]);
  }
}

}  // namespace

TEST_CASE("two owners of a row in a layout of the caller's own are refused while planning, on every rank alike") {
  const index_t n = 256;
  check_two_owners(claims_twice{n, 4}, "row 1 ");
  check_two_owners(reordered{merges_two{}, contiguous{.tokens = n, .ranks = 4}}, "row 6 ");
  check_two_owners(paired<claims_twice>{claims_twice{n, 4}}, "row ");
  check_two_owners(nested<claims_twice, contiguous>{{n, 2}, {.tokens = n, .ranks = 2}}, "row 1 ");
  check_two_owners(nested<contiguous, claims_twice>{{.tokens = n, .ranks = 2}, {n, 2}}, "row 1 ");
}

TEST_CASE("layouts that differ in one interior row are a disagreement before data moves, wherever the row lies [J6]") {
  const index_t n = 256;
  for (const swapped& other : {swapped{2, 34}, swapped{2, 130}, swapped{77, 78}, swapped{200, 201}})
    for (const bool keys : {false, true}) {
      const auto said = said_by_ranks([&](int r) {
        problem p = plain(n);
        const reordered all{swapped{0, 1}, contiguous{.tokens = n, .ranks = 4}};
        const any_layout two_more(reordered{other, all}, "two more swapped");
        p.q_layout = p.kv_layout = any_layout(all, "two rows swapped");
        if (r == 3) (keys ? p.kv_layout : p.q_layout) = two_more;
        return p;
      });
      const std::string on = keys ? "the layout of the keys: " : "the layout: ";
      CHECK_MESSAGE(said[0].starts_with("[seqpar] plan_attention: ranks disagree on " + on), said[0]);
      CHECK(said[0].find("rank 3") != std::string::npos);
      for (const std::string& text : said) CHECK(text == said[0]);
    }
}

TEST_CASE("tables of runs that differ in the order of one rank's rows are a disagreement [J6]") {
  const std::vector<run> rows{{0, 64, 1}, {64, 64, 1}, {128, 64, 1}, {192, 64, 1}};
  const std::vector<run> other{{0, 2, 1},   {42, 1, 1},  {3, 39, 1},   {2, 1, 1},
                               {43, 21, 1}, {64, 64, 1}, {128, 64, 1}, {192, 64, 1}};
  const std::vector<index_t> offsets{0, 1, 2, 3, 4}, other_offsets{0, 5, 6, 7, 8};
  const auto said = said_by_ranks([&](int r) {
    problem p = plain(256);
    p.q_layout = p.kv_layout =
        r == 1 ? any_layout(segments{other, other_offsets}) : any_layout(segments{rows, offsets});
    return p;
  });
  CHECK_MESSAGE(said[0].starts_with("[seqpar] plan_attention: ranks disagree on the layout: "), said[0]);
  for (const std::string& text : said) CHECK(text == said[0]);
}

TEST_CASE("the same rows cut into other runs are the same layout") {
  const std::vector<run> rows{{0, 64, 1}, {64, 64, 1}, {128, 64, 1}, {192, 64, 1}};
  const std::vector<run> cut{{0, 1, 1}, {1, 1, 5}, {2, 62, 1}, {64, 64, 1}, {128, 64, 1}, {192, 63, 1}, {255, 1, 1}};
  const std::vector<index_t> offsets{0, 1, 2, 3, 4}, cut_offsets{0, 3, 4, 5, 7};
  const auto said = said_by_ranks([&](int r) {
    problem p = plain(256);
    p.q_layout = p.kv_layout = r == 1   ? any_layout(segments{cut, cut_offsets})
                               : r == 2 ? contiguously(256, 4)
                                        : any_layout(segments{rows, offsets});
    return p;
  });
  for (const std::string& text : said) CHECK(text == "prepared");
}

}  // namespace seqpar::test
