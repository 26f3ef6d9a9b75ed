// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <seqpar/kernel/tables.hpp>
#include <seqpar/kernel/transpose.hpp>
#include <seqpar/kernel/visit.hpp>
#include <tests/support/recipe.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {

std::vector<index_t> spelled(const std::vector<run>& runs) {
  std::vector<index_t> positions;
  for (const run& r : runs)
    for (index_t i = 0; i < r.count; ++i) positions.push_back(r.at(i));
  return positions;
}

index_t random(int& state, index_t below) {
  return static_cast<index_t>((static_cast<double>(recipe(77, state++)) + 1) / 2 * static_cast<double>(below));
}

/// Disjoint runs that together use some of the positions 0 … n−1, in any order.
std::vector<run> random_runs(int& state, index_t n) {
  std::vector<run> runs;
  for (index_t at = 0; at < n;) {
    const index_t step = 1 + random(state, 3), count = random(state, random(state, 2) ? 90 : 7);
    run r{at, count, step};
    if (count > 0 && r.at(count - 1) >= n) break;
    at += std::max<index_t>(1, count * step) + random(state, 5);
    if (random(state, 3) == 0 && count > 0) r = {r.at(count - 1), count, -step};
    runs.insert(runs.begin() + static_cast<std::ptrdiff_t>(random(state, static_cast<index_t>(runs.size()) + 1)), r);
  }
  return runs;
}

/// Every (query row, key row) pair: what the tables say against what the intervals say; kinds exact for each tile pair.
void check_exact(const query_rows& q, const key_rows& k, const std::vector<run>& q_runs,
                 const std::vector<run>& k_runs) {
  const std::vector<index_t> q_positions = spelled(q_runs), k_positions = spelled(k_runs);
  const key_table keys = k.table();
  index_t row = 0;
  for (const key_tile& t : k.tiles) {
    REQUIRE(t.row == row);
    for (std::int32_t i = 0; i < t.rows; ++i)
      REQUIRE(keys.position_of(t, i) == k_positions[static_cast<std::size_t>(row + i)]);
    row += t.rows;
  }
  REQUIRE(row == static_cast<index_t>(k_positions.size()));
  row = 0;
  for (const query_tile& t : q.tiles) {
    REQUIRE(t.row == row);
    row += t.rows;
  }
  REQUIRE(row == static_cast<index_t>(q_positions.size()));
  REQUIRE(k.first_range.size() == q.tiles.size() + 1);
  for (std::size_t qt = 0; qt < q.tiles.size(); ++qt) {
    std::vector<cover> kind(k.tiles.size(), cover::none);
    for (std::int32_t r = k.first_range[qt]; r < k.first_range[qt + 1]; ++r)
      for (std::int32_t t = 0; t < k.ranges[static_cast<std::size_t>(r)].count; ++t)
        kind[static_cast<std::size_t>(k.ranges[static_cast<std::size_t>(r)].first + t)] =
            k.ranges[static_cast<std::size_t>(r)].kind;
    for (std::size_t kt = 0; kt < k.tiles.size(); ++kt) {
      index_t seen = 0;
      for (std::int32_t i = 0; i < q.tiles[qt].rows; ++i)
        for (std::int32_t j = 0; j < k.tiles[kt].rows; ++j) {
          const std::size_t at = static_cast<std::size_t>(q.tiles[qt].row + i);
          const index_t p = keys.position_of(k.tiles[kt], j);
          seen += (q.lo0[at] <= p && p < q.hi0[at]) || (q.lo1[at] <= p && p < q.hi1[at]);
        }
      const index_t pairs = index_t{q.tiles[qt].rows} * k.tiles[kt].rows;
      CHECK(kind[kt] == (seen == 0 ? cover::none : seen == pairs ? cover::all : cover::some));
    }
  }
  // Several query tiles together visit what each visits alone, each key tile once.
  constexpr std::size_t most = 3;
  for (std::size_t first = 0; first < q.tiles.size(); first += most) {
    const std::size_t count = std::min(most, q.tiles.size() - first);
    std::vector<std::pair<std::int32_t, cover>> alone[most], together[most];
    for (std::size_t i = 0; i < count; ++i)
      for_each_tile(keys, first + i, [&](const key_tile& t, cover kind) { alone[i].emplace_back(t.row, kind); });
    std::int32_t last = -1;
    for_each_tile<most>(keys, first, count, [&](const key_tile& t, const std::array<cover, most>& kinds) {
      CHECK(t.row > last);
      last = t.row;
      for (std::size_t i = 0; i < most; ++i)
        if (kinds[i] != cover::none) together[i].emplace_back(t.row, kinds[i]);
    });
    for (std::size_t i = 0; i < most; ++i) CHECK(together[i] == alone[i]);
  }
}

}  // namespace

TEST_CASE("tiles spell the runs in order and every pair of tiles is classified exactly") {
  int state = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const index_t n = 1 + random(state, 500), tile = 1 + random(state, 40);
    const std::vector<run> q_runs = random_runs(state, n), k_runs = random_runs(state, n);
    const index_t width = 1 + random(state, 60), sink = random(state, 30), form = random(state, 4);
    const auto intervals = [&](index_t q) -> interval_pair {
      if (form == 0) return make_intervals({-unbounded, q + 1});
      if (form == 1) return make_intervals({0, sink}, {q - width, q + 1});
      if (form == 2) return make_intervals({q / width * width, q / width * width + width});
      return q % 3 == 0 ? interval_pair{} : make_intervals({q - width, q}, {q + 1, unbounded});
    };
    const query_rows q = lower_intervals(q_runs, intervals, n, tile);
    check_exact(q, lower_keys(k_runs, q, tile + random(state, 60)), q_runs, k_runs);
  }
}

TEST_CASE("by key tile the tables say the same, in as few ranges as there are changes") {
  int state = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const index_t n = random(state, 500), tile = 1 + random(state, 40), width = 1 + random(state, 60);
    const query_rows q = lower_intervals(
        random_runs(state, n),
        [&](index_t p) {
          return trial % 2 ? interval_pair{{p - width, p + 1}, {}} : make_intervals({0, width}, {p - width, p + 1});
        },
        n, tile);
    key_rows k = lower_keys(random_runs(state, n), q, tile + random(state, 60));
    transpose(k);
    std::vector<cover> by_query(q.tiles.size() * k.tiles.size(), cover::none), by_key = by_query;
    const auto mark = [](auto& kinds, const tile_range& r, std::size_t first, std::size_t stride) {
      for (std::int32_t i = 0; i < r.count; ++i) kinds[first + static_cast<std::size_t>(r.first + i) * stride] = r.kind;
    };
    for (std::size_t t = 0; t < q.tiles.size(); ++t)
      for (std::int32_t r = k.first_range[t]; r < k.first_range[t + 1]; ++r)
        mark(by_query, k.ranges[static_cast<std::size_t>(r)], t * k.tiles.size(), 1);
    REQUIRE(k.first_query_range.size() == k.tiles.size() + 1);
    std::size_t changes = 0;
    for (std::size_t t = 0; t < k.tiles.size(); ++t) {
      for (std::int32_t r = k.first_query_range[t]; r < k.first_query_range[t + 1]; ++r)
        mark(by_key, k.query_ranges[static_cast<std::size_t>(r)], t, k.tiles.size());
      cover last = cover::none;
      for (std::size_t i = 0; i < q.tiles.size(); ++i) {
        const cover kind = by_query[i * k.tiles.size() + t];
        changes += kind != last && kind != cover::none;
        last = kind;
      }
    }
    CHECK(by_query == by_key);
    CHECK(k.query_ranges.size() == changes);
  }
}

TEST_CASE("intervals are clipped to the keys there are and unused ones are empty") {
  const query_rows q = lower_intervals(
      std::vector<run>{{0, 3, 1}},
      [](index_t p) {
        return make_intervals({-5, p}, {p + 1, unbounded});
      },
      2, 64);
  CHECK(q.lo0 == std::vector<std::int32_t>{1, 0, 0});
  CHECK(q.hi0 == std::vector<std::int32_t>{2, 1, 2});
  CHECK(q.lo1 == std::vector<std::int32_t>{0, 0, 0});
  CHECK(q.hi1 == std::vector<std::int32_t>{0, 0, 0});
}

TEST_CASE("no tile spans two long runs, and short runs share a tile") {
  const key_rows two = cut_keys(std::vector<run>{{0, 40, 1}, {1000, 40, 1}}, 128);
  CHECK(two.tiles.size() == 2);
  CHECK(two.positions.empty());
  std::vector<run> frames;
  for (index_t f = 0; f < 64; ++f) frames.push_back({f * 100, 4, 1});
  CHECK(cut_keys(frames, 128).tiles.size() == 2);
  CHECK(cut_keys(frames, 128).positions.size() == 256);
  CHECK(cut_keys(std::vector<run>{{0, 0, 1}}, 128).tiles.empty());
  CHECK(cut_keys(std::vector<run>{{0, 64, 1}, {64, 64, 1}}, 128).tiles.size() == 1);  // one run after all
  CHECK(cut_keys(std::vector<run>{{3, 1, 1}, {7, 1, 1}, {11, 1, 1}}, 128).positions.empty());
}

TEST_CASE("a functor mask visits every tile as some") {
  const query_rows q = lower_positions(std::vector<run>{{0, 100, 1}}, 64);
  const key_rows k = lower_keys(std::vector<run>{{0, 300, 1}}, q, 64);
  CHECK(k.first_range.size() == q.tiles.size() + 1);
  CHECK(k.ranges.size() == q.tiles.size());
  for (const tile_range& r : k.ranges) CHECK((r.first == 0 && r.count == 5 && r.kind == cover::some));
}

TEST_CASE("a position beyond 31 bits is refused") {
  CHECK_THROWS_AS(cut_keys(std::vector<run>{{index_t{1} << 31, 1, 1}}, 64), error);
  CHECK_THROWS_AS(lower_positions(std::vector<run>{{index_t{1} << 31, 1, 1}}, 64), error);
}
