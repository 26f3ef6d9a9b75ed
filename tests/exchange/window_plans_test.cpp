// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is known of windows before anything runs: that all ranks plan alike, what is wanted once, what a plan costs.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include <seqpar/exchange/root_windows.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <tests/exchange/windows.hpp>

using namespace window_test;

namespace {

constexpr int tuples = 500;
constexpr index_t far_away = index_t{1} << 40;
constexpr index_t first_number = std::numeric_limits<index_t>::min(), last_number = std::numeric_limits<index_t>::max();

struct draws {
  std::minstd_rand engine;
  index_t below(index_t n) { return static_cast<index_t>(engine() % static_cast<unsigned>(n)); }
  border beyond() { return static_cast<border>(below(3)); }
  halo_width width() { return {below(4) == 0 ? below(20) : below(3), below(4) == 0 ? below(20) : below(3), beyond()}; }
  /// One interval a rank, around and beyond lo … hi: any, or the whole cut up and dealt in any order.
  std::vector<interval> windows(int ranks, index_t lo, index_t hi) {
    std::vector<interval> list;
    const bool any = below(2) == 0;
    for (index_t at = lo; static_cast<int>(list.size()) < ranks;) {
      const index_t from = any ? lo + below(hi - lo + 1) : at;
      at = from + below(hi - from + 1);
      list.push_back({from, at});
    }
    std::shuffle(list.begin(), list.end(), engine);
    return list;
  }
};

/// Where ranks that plan alone disagree, or where inverse is refused though every row is wanted once, or the reverse.
/// wanted: the row at every place of all windows, in any order; less than 0: none.
template <class PlanOf>
std::string broken_plans(int ranks, std::vector<index_t> wanted, PlanOf&& plan_of) {
  std::sort(wanted.begin(), wanted.end());
  const auto first = std::lower_bound(wanted.begin(), wanted.end(), 0);
  const bool once = std::adjacent_find(first, wanted.end()) == wanted.end();
  std::string wrong;
  const std::string unlike = disagreement(ranks, plan_of, [&](auto& plan) {
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const auto bytes = static_cast<std::size_t>(100 * (plan.own_rows() + plan.wanted_rows() + 1));
    std::vector<std::byte> in(bytes), out(bytes);
    if (plan.inverse(out.data(), in.data(), memory, on_host{}).ok() != once)
      wrong = once ? "inverse is refused where every row is wanted once" : "inverse runs where a row is wanted twice";
  });
  return wrong.empty() ? unlike : wrong;
}

/// The rows at all places of some windows along a sequence.
std::vector<index_t> rows_of(const std::vector<interval>& windows, index_t units, border over) {
  std::vector<index_t> rows;
  for (const interval& w : windows)
    for (index_t i = w.lo; i < w.hi; ++i) rows.push_back(reference_row(i, units, over));
  return rows;
}
/// The same on frames.
std::vector<index_t> rows_of(const std::vector<box>& windows, const grid& g, const grid_border& over) {
  std::vector<index_t> rows;
  for (const box& b : windows)
    for (index_t t = b.t.lo; t < b.t.hi; ++t)
      for (index_t y = b.h.lo; y < b.h.hi; ++y)
        for (index_t x = b.w.lo; x < b.w.hi; ++x) {
          const index_t from[] = {reference_row(t, g.frames, over.time), reference_row(y, g.height, over.height),
                                  reference_row(x, g.width, over.width)};
          const bool none = std::min({from[0], from[1], from[2]}) < 0;
          rows.push_back(none ? -1 : (from[0] * g.height + from[1]) * g.width + from[2]);
        }
  return rows;
}

grid drawn_grid(draws& d) {
  return {.frames = d.below(4),
          .height = d.below(7),
          .width = 1 + d.below(7),
          .split_h = 1 + d.below(3),
          .split_w = 1 + d.below(3),
          .rule = static_cast<uneven>(d.below(3))};
}
exchange_options drawn_options(draws& d) {
  const index_t columns = 1 + d.below(2);
  return {.row_bytes = columns * 4, .batch = d.below(3), .columns = columns, .check = agreement::trusted};
}
box_format drawn_format(draws& d) {
  return {.order = static_cast<box_order>(d.below(3)), .pitch = d.below(2) * (4 + d.below(20))};
}

/// try_plan_windows of one window for all ranks, as one of four.
template <class Where, class Window, class Border>
auto planned(const Where& where, const Window& window, const Border& over,
             exchange_options options = {.row_bytes = 1}) {
  std::vector<recorded_message> log;
  return try_plan_windows(
      ring(recorder(0, 4, log)), where, [&](int) { return window; }, over, options);
}
template <class Plan>
bool refused(const Plan& plan, const char* what) {
  return !plan.ok() && std::string(plan.failure().what()).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("what all ranks work out alone agrees for halos along a sequence, and inverse is theirs who want once [J7]") {
  draws d{std::minstd_rand(11)};
  for (int turn = 0; turn < tuples; ++turn) {
    const int ranks = 2 + static_cast<int>(d.below(7));
    const zigzag layout{.tokens = d.below(60), .ranks = ranks, .rule = static_cast<uneven>(d.below(3))};
    const halo_width w = d.below(3) == 0 ? halo_width{} : d.width();
    std::vector<interval> windows;
    for (int r = 0; r < ranks; ++r)
      for (index_t i = 0, n = layout.count_of(r), end; i < n; i = end) {
        const index_t first = layout.global_of(r, i);
        for (end = i + 1; end < n && layout.global_of(r, end) == first + end - i;) ++end;
        windows.push_back({first - w.before, first + end - i + w.after});
      }
    const exchange_options options = drawn_options(d);
    CAPTURE(turn);
    CHECK(broken_plans(ranks, rows_of(windows, layout.tokens, w.border), [&](const auto& team) {
            return plan_halo(team, layout, {.before = w.before, .after = w.after, .border = w.border}, options);
          }) == "");
  }
}

TEST_CASE("what all ranks work out alone agrees for halos around tiles, and inverse is theirs who want once [J7]") {
  draws d{std::minstd_rand(12)};
  for (int turn = 0; turn < tuples; ++turn) {
    const grid g = drawn_grid(d);
    const auto width = [&] { return d.below(2) == 0 ? halo_width{} : d.width(); };
    const grid_halo halo{width(), width(), width()};
    std::vector<box> windows;
    for (int r = 0; r < g.rank_count(); ++r) {
      const interval h = g.h_span(r), w = g.w_span(r);
      if (g.count_of(r) == 0) continue;
      windows.push_back({{-halo.time.before, g.frames + halo.time.after},
                         {h.lo - halo.height.before, h.hi + halo.height.after},
                         {w.lo - halo.width.before, w.hi + halo.width.after}});
    }
    const exchange_options options = drawn_options(d);
    const box_format format = drawn_format(d);
    CAPTURE(turn);
    CHECK(broken_plans(g.rank_count(), rows_of(windows, g, {halo.time.border, halo.height.border, halo.width.border}),
                       [&](const auto& team) { return plan_halo(team, g, halo, options, format); }) == "");
  }
}

TEST_CASE("what all ranks work out alone agrees for any windows, and inverse is theirs who want once [J7]") {
  draws d{std::minstd_rand(13)};
  for (int turn = 0; turn < tuples; ++turn) {
    const int ranks = 2 + static_cast<int>(d.below(7));
    const index_t unit = 1 + d.below(3), units = d.below(40);
    const contiguous layout{.tokens = unit * units, .ranks = ranks, .granule = unit};
    const border over = d.beyond();
    const std::vector<interval> windows = d.windows(ranks, -d.below(3), units + d.below(3));
    const exchange_options options = drawn_options(d);
    CAPTURE(turn);
    CHECK(broken_plans(ranks, rows_of(windows, units, over), [&](const auto& team) {
            return plan_windows(
                team, layout, [&](int r) { return windows[static_cast<std::size_t>(r)]; }, over, options, unit);
          }) == "");

    const grid g = drawn_grid(d);
    const grid_border beyond{d.beyond(), d.beyond(), d.beyond()};
    const auto some = [&](index_t n) { return d.windows(g.rank_count(), -d.below(2), n + d.below(2)); };
    const auto t = some(g.frames), h = some(g.height), w = some(g.width);
    std::vector<box> boxes;
    for (std::size_t r = 0; r < t.size(); ++r) boxes.push_back({t[r], h[r], w[r]});
    const box_format format = drawn_format(d);
    CHECK(broken_plans(g.rank_count(), rows_of(boxes, g, beyond), [&](const auto& team) {
            return plan_windows(
                team, g, [&](int r) { return boxes[static_cast<std::size_t>(r)]; }, beyond, options, format);
          }) == "");
  }
}

TEST_CASE("what all ranks work out alone agrees for windows from a root, and inverse is theirs who want once [J7]") {
  draws d{std::minstd_rand(14)};
  for (int turn = 0; turn < tuples; ++turn) {
    const int ranks = 1 + static_cast<int>(d.below(8)), root = static_cast<int>(d.below(ranks));
    const index_t frames = d.below(60);
    const std::vector<interval> windows = d.windows(ranks, 0, frames);
    const exchange_options options = drawn_options(d);
    CAPTURE(turn);
    CHECK(broken_plans(ranks, rows_of(windows, frames, border::clamp), [&](const auto& team) {
            return plan_root_windows(
                team, frames, [&](int r) { return windows[static_cast<std::size_t>(r)]; }, root, options);
          }) == "");
  }
}

TEST_CASE("zeros beyond the ends cost a plan nothing, however many") {
  const contiguous layout{.tokens = 12, .ranks = 4};
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 4, log));
  for (index_t wide : {index_t{1} << 31, far_away}) {
    const auto halo =
        plan_halo(team, layout, {.before = wide, .after = wide, .border = border::zero}, {.row_bytes = 4});
    REQUIRE(halo.windows().size() == 1);
    CHECK(halo.windows()[0].blank == std::vector<box>{{{-wide, 0}, {0, 1}, {0, 1}}, {{12, 3 + wide}, {0, 1}, {0, 1}}});
    CHECK(halo.padded_bytes() == 4 * (2 * wide + 3));
    CHECK(halo.bytes_received() == 4 * 9);
  }
  const auto any = planned(layout, interval{-far_away, far_away}, border::zero);
  REQUIRE(any.ok());
  CHECK(any.value().padded_bytes() == 2 * far_away);

  const grid tiles{.frames = 3, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  const index_t wide = index_t{1} << 17;
  const halo_width zeros{wide, wide, border::zero};
  const auto cube = plan_halo(team, tiles, {zeros, zeros, zeros}, {.row_bytes = 2});
  const placed_window& w = cube.windows()[0];
  index_t blank = 0;
  for (const box& b : w.blank) blank += b.rows();
  CHECK(w.blank.size() == 6);
  CHECK(blank == w.rows() - 3 * 4 * 4);
}

TEST_CASE("repeated edges are planned by runs, and refused where those are too many") {
  const contiguous frames{.tokens = index_t{12} << 30, .ranks = 4, .granule = index_t{1} << 30};
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 4, log));
  const auto halo = [&](auto where, auto h) { return try_plan_halo(team, where, h, {.row_bytes = 1}); };
  CHECK(
      halo(frames, sequence_halo{.before = 100, .after = 100, .border = border::edge, .unit = index_t{1} << 30}).ok());
  CHECK(planned(contiguous{.tokens = 12, .ranks = 4}, interval{-1 << 16, 1 << 16}, border::edge).ok());
  const char* many = "repeats too many rows of an edge";
  const contiguous layout{.tokens = 12, .ranks = 4};
  CHECK(refused(halo(layout, sequence_halo{.before = index_t{1} << 31, .border = border::edge}), many));
  CHECK(refused(planned(layout, interval{-far_away, far_away}, border::edge), many));
  const grid tiles{.frames = 3, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  const halo_width wide{index_t{1} << 14, 0, border::edge};
  CHECK(refused(halo(tiles, grid_halo{.height = wide, .width = wide}), many));
  CHECK(refused(halo(tiles, grid_halo{.time = {far_away, 0, border::edge}}), many));
}

TEST_CASE("windows whose ends leave 64 bits are clamped or refused, and no plan overflows") {
  const contiguous layout{.tokens = 12, .ranks = 4};
  const interval all{first_number, last_number};
  REQUIRE(planned(layout, all, border::clamp).ok());
  CHECK(planned(layout, all, border::clamp).value().padded_bytes() == 12);
  for (border over : {border::zero, border::edge}) {
    CHECK(refused(planned(layout, all, over), "2^62 bytes"));
    CHECK(refused(planned(layout, interval{0, last_number}, over), "2^62 bytes"));
  }
  CHECK(planned(layout, interval{first_number, first_number + 3}, border::zero).ok());
  const grid tiles{.frames = 3, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  CHECK(
      refused(planned(tiles, box{all, all, all}, grid_border{border::zero, border::zero, border::zero}), "2^62 bytes"));
  CHECK(planned(tiles, box{all, all, all}, grid_border{}).ok());

  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 4, log));
  const auto halo = [&](const box_format& format, exchange_options o) {
    return try_plan_halo(team, tiles, grid_halo{.width = {1, 1}}, o, format);
  };
  CHECK(refused(halo({.pitch = last_number}, {.row_bytes = 4}), "2^62 bytes"));
  CHECK(refused(halo({}, {.row_bytes = 4, .batch = index_t{1} << 60}), "2^62 bytes"));
  CHECK(refused(planned(layout, interval{0, last_number}, border::zero, {.row_bytes = 1, .batch = 0}), "2^62 bytes"));
  CHECK(refused(planned(layout, interval{20, far_away}, border::zero, {.row_bytes = 1, .batch = index_t{1} << 30}),
                "2^62 bytes"));
  CHECK(refused(halo({.order = box_order::tchw}, {.row_bytes = last_number - 7, .columns = 8}), "2^62 bytes"));
  CHECK(try_plan_halo(team, layout, {.before = unbounded, .after = unbounded}, {.row_bytes = 4}).ok());
  CHECK(refused(try_plan_halo(team, layout, {.after = unbounded, .border = border::zero}, {.row_bytes = 4}),
                "2^62 bytes"));
}

TEST_CASE("a layout of lone units is refused without looking at each") {
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 4, log));
  CHECK(refused(try_plan_halo(team, striped{.tokens = far_away, .ranks = 4}, {.before = 1}, {.row_bytes = 1}),
                "no order for a halo"));
}
