// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The engine by itself: common rows of runs, the order of blocks, folding, and plans that agree without a word.
#include <doctest/doctest.h>

#include <random>
#include <tuple>

#include <seqpar/exchange/ownership.hpp>
#include <seqpar/transport/recorder.hpp>
#include <tests/exchange/harness.hpp>

using namespace exchange_test;
using seqpar::detail::common_run;
using seqpar::detail::holding_index;
using seqpar::detail::intersect;

namespace {

/// The common rows that `o` spells, as (index in a, index in b); empty when it is not what its comment says.
std::vector<std::pair<index_t, index_t>> spelt(const common_run& o) {
  std::vector<std::pair<index_t, index_t>> list;
  for (index_t i = 0; i < o.count; ++i) list.push_back({o.a_first + i * o.a_step, o.b_first + i * o.b_step});
  return list;
}

/// owner place → wanter place of every row of a leg, in the order in which they travel.
std::vector<std::pair<index_t, index_t>> rows_of(const leg& l) {
  std::vector<std::pair<index_t, index_t>> list;
  for (const stretch& s : l.stretches)
    for (index_t o = 0; o < s.repeat; ++o)
      for (index_t i = 0; i < s.count; ++i)
        list.push_back(
            {s.owner + o * s.owner_outer + i * s.owner_step, s.wanter + o * s.wanter_outer + i * s.wanter_step});
  return list;
}

template <class From, class To>
index_t most_stretches(const From& from, const To& to) {
  index_t most = 0;
  for (int me = 0; me < from.rank_count(); ++me) {
    const route way = route::between(
        me, from.rank_count(), [&](int r) { return holding_of(from, r); }, [&](int r) { return holding_of(to, r); });
    for (const auto* legs : {&way.outgoing(), &way.incoming()})
      for (const leg& l : *legs) most = std::max(most, static_cast<index_t>(l.stretches.size()));
    most = std::max(most, static_cast<index_t>(way.own().stretches.size()));
  }
  return most;
}

}  // namespace

TEST_CASE("the common rows of two runs are all of them, once, in the order of the first") {
  index_t wrong = 0, cases = 0;
  for (index_t a_step : {-5, -4, -3, -2, -1, 1, 2, 3, 4, 6})
    for (index_t b_step : {-6, -4, -3, -2, -1, 1, 2, 3, 5})
      for (index_t a_count : {0, 1, 2, 3, 7})
        for (index_t b_count : {0, 1, 2, 5, 8})
          for (index_t shift = -14; shift <= 14; ++shift) {
            const run a{50, a_count, a_step}, b{50 + shift, b_count, b_step};
            std::vector<std::pair<index_t, index_t>> want;
            for (index_t i = 0; i < a.count; ++i)
              for (index_t j = 0; j < b.count; ++j)
                if (a.at(i) == b.at(j)) want.push_back({i, j});
            wrong += spelt(intersect(a, b)) == want ? 0 : 1;
            ++cases;
          }
  CHECK(wrong == 0);
  CHECK(cases == 65250);
}

TEST_CASE("the common rows of runs of 2^40 rows are found by arithmetic") {
  const index_t n = index_t{1} << 40;
  // 3i = 5j: every fifth of a, every third of b
  common_run o = intersect({0, n, 3}, {0, n, 5});
  CHECK(std::tuple(o.a_first, o.a_step, o.b_first, o.b_step) ==
        std::tuple(index_t{0}, index_t{5}, index_t{0}, index_t{3}));
  CHECK(o.count == (n - 1) / 5 + 1);
  // the last row only
  o = intersect({0, n, 1}, {n - 1, n, 1});
  CHECK(std::tuple(o.a_first, o.b_first, o.count) == std::tuple(n - 1, index_t{0}, index_t{1}));
  // backwards: a's order descends
  o = intersect({n - 1, n, -1}, {0, n / 2, 2});
  CHECK(std::tuple(o.a_first, o.a_step, o.b_first, o.b_step, o.count) ==
        std::tuple(index_t{1}, index_t{2}, n / 2 - 1, index_t{-1}, n / 2));
  // large coprime steps: one common row in 2^40, at i·(2^31 + 11) = j·(2^31 − 1) + shift
  const run a{7, n >> 20, (index_t{1} << 31) + 11},
      b{7 + 5 * ((index_t{1} << 31) + 11), n >> 20, (index_t{1} << 31) - 1};
  o = intersect(a, b);
  CHECK(std::tuple(o.a_first, o.b_first, o.count) == std::tuple(index_t{5}, index_t{0}, index_t{1}));
  // odd against even
  CHECK(intersect({0, n, 2}, {1, n, 2}).count == 0);
}

TEST_CASE("a holding gives all rows that are wanted, each from where it lies to where it is wanted") {
  std::minstd_rand draw(7);
  for (int round = 0; round < 200; ++round) {
    const layouts owners(1 + static_cast<index_t>(draw() % 40), 1 + static_cast<int>(draw() % 4));
    const any_layout& layout = owners.all()[draw() % owners.all().size()];
    holding own = holding_of(layout, static_cast<int>(draw()) % layout.rank_count());
    for (row_piece& p : own.pieces) {  // every other row of memory, backwards
      const index_t last = p.place + p.rows.count - 1;
      p.place = 2 * last;
      p.place_step = -2;
    }
    holding want;
    for (int i = 0; i < 4; ++i) {
      const run r{static_cast<index_t>(draw() % 30), static_cast<index_t>(draw() % 6), draw() % 2 == 0 ? 1 : 3};
      want.append(r, 100 * i);
    }
    std::map<index_t, index_t> place_of;
    for (const row_piece& p : own.pieces)
      for (index_t i = 0; i < p.rows.count; ++i) place_of[p.rows.at(i)] = p.place + i * p.place_step;
    std::vector<std::pair<index_t, index_t>> expected;
    for (const row_piece& p : want.pieces)
      for (index_t i = 0; i < p.rows.count; ++i)
        if (place_of.count(p.rows.at(i))) expected.push_back({place_of[p.rows.at(i)], p.place + i * p.place_step});
    const holding_index index(own);
    const leg l = index.leg_to(want, 3);
    auto rows = rows_of(l);
    std::sort(rows.begin(), rows.end());
    std::sort(expected.begin(), expected.end());
    REQUIRE(rows == expected);
    REQUIRE(l.rows() == static_cast<index_t>(expected.size()));
    REQUIRE(index.common_rows(want) == l.rows());
  }
}

TEST_CASE("rows travel in the order in which they are wanted, in one piece after another") {
  // wanted backwards, owned in three places out of order
  const holding own{{{{6, 3, 1}, 0}, {{0, 3, 1}, 3}, {{3, 3, 1}, 6}}, {0, 1}};
  const holding want{{{{4, 5, -1}, 10}, {{7, 2, 1}, 0}}, {0, 1}};
  const std::vector<std::pair<index_t, index_t>> expected{{7, 10}, {6, 11}, {5, 12}, {4, 13}, {3, 14}, {1, 0}, {2, 1}};
  CHECK(rows_of(holding_index(own).leg_to(want, 0)) == expected);
}

TEST_CASE("columns are cut where owner and wanter meet, and nothing moves where they do not") {
  const holding own{{{{0, 4, 1}, 0}}, {2, 6}}, want{{{{1, 2, 1}, 0}}, {4, 9}};
  const leg l = holding_index(own).leg_to(want, 0);
  CHECK(l.columns == interval{4, 6});
  CHECK(l.owner_column == 2);
  CHECK(l.wanter_column == 0);
  CHECK(l.entries() == 4);
  CHECK(holding_index(own).leg_to({{{{1, 2, 1}, 0}}, {6, 9}}, 0).entries() == 0);
}

TEST_CASE("repeated lines fold: a leg between regular layouts is a few stretches, not one a row") {
  const index_t n = 1 << 14;
  const striped cards{.tokens = n, .ranks = 16};
  const striped blocks{.tokens = n, .ranks = 16, .granule = 16};
  const zigzag folded{.tokens = n, .ranks = 16};
  const grid tiles{.frames = 16, .height = 32, .width = 32, .split_h = 4, .split_w = 4};
  const grid rows{.frames = 16, .height = 32, .width = 32, .split_h = 16, .split_w = 1};
  CHECK(most_stretches(cards, folded) <= 2);
  CHECK(most_stretches(folded, cards) <= 2);
  CHECK(most_stretches(cards, blocks) <= 2);
  CHECK(most_stretches(blocks, cards) <= 2);
  CHECK(most_stretches(cards, tiles) <= 4);
  CHECK(most_stretches(tiles, cards) <= 4);
  CHECK(most_stretches(folded, tiles) <= 4);
  CHECK(most_stretches(tiles, folded) <= 4);
  CHECK(most_stretches(tiles, rows) <= 16);  // one a frame: lines fold, frames of lines do not
  CHECK(most_stretches(tiles, tiles) <= 4);
}

TEST_CASE("lines at uneven distances do not fold wrongly: stretches spell the rows that were appended") {
  std::minstd_rand draw(17);
  index_t wrong = 0, folded = 0;
  for (int round = 0; round < 3000; ++round) {
    seqpar::detail::stretch_list list;
    std::vector<std::pair<index_t, index_t>> expected;
    index_t owner = 0, wanter = 0;
    for (int i = 0; i < 12; ++i) {
      const auto count = static_cast<index_t>(1 + draw() % 2), owner_step = static_cast<index_t>(1 + draw() % 2);
      for (index_t k = 0; k < count; ++k) expected.push_back({owner + k * owner_step, wanter + k});
      list.append(owner, owner_step, wanter, 1, count);
      owner += 3 + static_cast<index_t>(draw() % 2);
      wanter += 2 + static_cast<index_t>(draw() % 2);
    }
    leg l;
    l.stretches = list.finish();
    wrong += rows_of(l) == expected ? 0 : 1;
    for (const stretch& s : l.stretches) folded += s.repeat > 2 ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(folded > 100);
}

TEST_CASE("a route of 2^40 tokens is a few hundred bytes a peer") {
  const index_t n = (index_t{1} << 40) + 12345;
  const route way = route::between(
      5, 64, [&](int r) { return holding_of(zigzag{.tokens = n, .ranks = 64}, r); },
      [&](int r) { return holding_of(striped{.tokens = n, .ranks = 64}, r); });
  CHECK(way.plan_bytes() < 64 * 2 * 300);
  CHECK(way.entries_received() + way.own().entries() == striped{.tokens = n, .ranks = 64}.count_of(5));
}

TEST_CASE("all ranks plan the same blocks without communicating [J7]") {
  std::minstd_rand draw(2027);
  index_t disagreements = 0, wrong_totals = 0;
  for (int tuple = 0; tuple < 500; ++tuple) {
    const int ranks = 1 + static_cast<int>(draw() % 9);
    const layouts every(static_cast<index_t>(draw() % 70), ranks);
    const any_layout& from = every.all()[draw() % every.all().size()];
    const any_layout& to = every.all()[draw() % every.all().size()];
    const int kind = static_cast<int>(draw() % 4);
    const auto holds = [&](int r) { return holding_of(from, r); };
    const auto wants = [&](int r) {
      holding h = kind == 0 ? all_rows(from.token_count()) : holding_of(to, r);
      if (kind == 1 && r % 2 == 0) h.pieces.clear();                                  // some want nothing
      if (kind == 2 && !h.pieces.empty()) h.append(h.pieces.front().rows, h.rows());  // and some a run twice
      return h;
    };
    std::vector<route> routes;
    for (int r = 0; r < ranks; ++r) routes.push_back(route::between(r, ranks, holds, wants));
    const auto leg_of = [](const std::vector<leg>& legs, int peer) {
      for (const leg& l : legs)
        if (l.peer == peer) return rows_of(l);
      return std::vector<std::pair<index_t, index_t>>{};
    };
    const auto blocks_of = [](const std::vector<leg>& legs, int peer) {
      std::vector<index_t> counts;
      for (const leg& l : legs)
        for (const stretch& s : l.stretches)
          if (l.peer == peer) counts.insert(counts.end(), static_cast<std::size_t>(s.repeat), s.count);
      return counts;
    };
    for (int i = 0; i < ranks; ++i) {
      index_t received = routes[static_cast<std::size_t>(i)].own().entries();
      for (int j = 0; j < ranks; ++j) {
        const auto &a = routes[static_cast<std::size_t>(i)].outgoing(),
                   &b = routes[static_cast<std::size_t>(j)].incoming();
        if (leg_of(a, j) != leg_of(b, i) || blocks_of(a, j) != blocks_of(b, i)) ++disagreements;
        if (i == j && !leg_of(a, j).empty()) ++disagreements;
      }
      received += routes[static_cast<std::size_t>(i)].entries_received();
      if (received != wants(i).entries()) ++wrong_totals;
    }
  }
  CHECK(disagreements == 0);
  CHECK(wrong_totals == 0);
}

TEST_CASE("what one rank posts to another is what the other expects of it, message by message [J7]") {
  std::minstd_rand draw(5);
  for (int tuple = 0; tuple < 30; ++tuple) {
    const int ranks = 2 + static_cast<int>(draw() % 5);
    const layouts every(static_cast<index_t>(draw() % 40), ranks);
    const any_layout& from = every.all()[draw() % every.all().size()];
    const any_layout& to = every.all()[draw() % every.all().size()];
    std::vector<std::vector<recorded_message>> logs(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      const mesh team = ring(recorder(r, ranks, logs[static_cast<std::size_t>(r)]));
      auto plan = plan_reshard(team, from, to, {.row_bytes = 5, .batch = 2, .check = agreement::trusted});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      std::vector<std::byte> in(500), out(500);
      CHECK(plan.forward(in.data(), out.data(), memory, on_host{}).ok());
      CHECK(bytes_of(logs[static_cast<std::size_t>(r)], direction::send) == plan.bytes_sent());
    }
    for (int i = 0; i < ranks; ++i)
      for (int j = 0; j < ranks; ++j) {
        const auto bytes = [&](int of, direction way) {
          std::vector<index_t> list;
          for (const recorded_message& m : logs[static_cast<std::size_t>(of)])
            if (m.way == way && m.from == i && m.to == j) list.push_back(m.bytes);
          return list;
        };
        CHECK(bytes(i, direction::send) == bytes(j, direction::receive));
      }
  }
}

TEST_CASE("ownership is judged over all ranks: two owners, no owner, columns apart, and in a fraction of a second") {
  const auto judge = [](auto holds, auto wants) {
    const failure f = seqpar::detail::check_ownership("here", seqpar::detail::ownership(3, holds),
                                                      seqpar::detail::ownership(3, wants));
    return f ? std::string(f->what()) : std::string();
  };
  const auto nothing = [](int) { return holding{}; };
  const auto thirds = [](int r) { return holding{{{{3 * r, 3, 1}, 0}}, {0, 2}}; };
  CHECK(judge(thirds, [](int) { return all_rows(9, {0, 2}); }) == "");
  CHECK(judge(thirds, [](int) {
          return all_rows(10, {0, 2});
        }) == "[seqpar] here: rank 0 wants 2 entries that no rank owns; let every wanted row have an owner");
  CHECK(judge(
            [](int r) {
              return holding{{{{2 * r, 3, 1}, 0}}, {0, 1}};
            },
            nothing) ==
        "[seqpar] here: row 2 has two owners (ranks 0 and 1); let every row be held by exactly one rank");
  CHECK(judge([](int r) { return holding{{{{r, 5, 3}, 0}}, {0, 1}}; }, nothing) == "");
  CHECK(judge(
            [](int r) {
              return holding{{{{r, 5, r == 2 ? 2 : 3}, 0}}, {0, 1}};
            },
            nothing) ==
        "[seqpar] here: row 6 has two owners (ranks 0 and 2); let every row be held by exactly one rank");
  CHECK(judge(
            [](int r) {
              return holding{{{{0, 5, 1}, 0}}, {r, r + 1}};
            },
            [](int) {
              return all_rows(5, {0, 3});
            }) == "");
  CHECK(judge(
            [](int r) {
              return holding{{{{0, 5, 1}, 0}}, {r, r + 2}};
            },
            nothing) ==
        "[seqpar] here: row 0 has two owners (ranks 0 and 1); let every row be held by exactly one rank");
  const auto twice = [](int r) {
    holding h = holding{{{{3 * r, 3, 1}, 0}}, {0, 1}};
    if (r == 1) h.append({5, 1, 1}, 3);
    return h;
  };
  CHECK(judge(twice, nothing) ==
        "[seqpar] here: row 5 has two owners (ranks 1 and 1); let every row be held by exactly one rank");
  // 2^16 short runs that point every way
  const auto scattered = [](int r) {
    holding h;
    for (index_t i = 0; i < 1 << 14; ++i) h.append({(3 * i + r) * 4 + 3 * (i % 2), 4, i % 2 == 0 ? 1 : -1}, 4 * i);
    return h;
  };
  CHECK(judge(scattered, scattered) == "");
}
