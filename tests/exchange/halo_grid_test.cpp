// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Halos around tiles of frames: corners, time, uneven tiles, channels first and last, pitches; the convolution of one
// rank.
#include <doctest/doctest.h>

#include <tests/exchange/windows.hpp>

using namespace window_test;

namespace {

using pixels = std::vector<std::vector<double>>;

/// What every rank has of a frame whose pixel (y, x) is value(y, x).
template <class Value>
pixels halo_of_frame(const grid& tiles, const grid_halo& halo, Value&& value) {
  pixels out(static_cast<std::size_t>(tiles.rank_count()));
  run_ranks(tiles.rank_count(), [&](threads::transport world) {
    auto plan = plan_halo(ring(world), tiles, halo, {.row_bytes = sizeof(double), .placement = placement::in_place});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    auto& mine = out[static_cast<std::size_t>(world.rank())];
    mine.assign(static_cast<std::size_t>(plan.padded_bytes()) / sizeof(double), -1);
    const box_view all = plan.padded_view(mine.data());
    const placed_window& w = plan.windows()[0];
    for (index_t y = w.own.h.lo; y < w.own.h.hi; ++y)
      for (index_t x = w.own.w.lo; x < w.own.w.hi; ++x)
        *all.at<double>(0, 0, y - w.padded.h.lo, x - w.padded.w.lo) = value(y, x);
    check(plan.forward(all, all, memory, on_host{}));
  });
  return out;
}

/// The windows by the definition of borders.
rows_of_ranks wanted_of(const grid& g, const grid_halo& halo) {
  rows_of_ranks all;
  for (int r = 0; r < g.rank_count(); ++r) {
    auto& list = all.emplace_back();
    const interval h = g.h_span(r), w = g.w_span(r);
    if (g.count_of(r) == 0) continue;
    for (index_t t = -halo.time.before; t < g.frames + halo.time.after; ++t)
      for (index_t y = h.lo - halo.height.before; y < h.hi + halo.height.after; ++y)
        for (index_t x = w.lo - halo.width.before; x < w.hi + halo.width.after; ++x) {
          const index_t from[] = {reference_row(t, g.frames, halo.time.border),
                                  reference_row(y, g.height, halo.height.border),
                                  reference_row(x, g.width, halo.width.border)};
          const index_t least = std::min({from[0], from[1], from[2]});
          if (least == -2) continue;
          list.push_back(least < 0 ? -1 : (from[0] * g.height + from[1]) * g.width + from[2]);
        }
  }
  return all;
}
rows_of_ranks owned_of(const grid& g) {
  rows_of_ranks all;
  for (int r = 0; r < g.rank_count(); ++r) {
    auto& list = all.emplace_back();
    for (index_t i = 0; i < g.count_of(r); ++i) list.push_back(g.global_of(r, i));
  }
  return all;
}

std::string broken_halo(const grid& g, const grid_halo& halo, const arrangement& a, const box_format& format) {
  return broken(
      g.rank_count(), a, owned_of(g), wanted_of(g, halo),
      [&](const auto& team) { return plan_halo(team, g, halo, a.options(), format); },
      [&](const auto& p) {
        const box_view all = p.padded_view(nullptr), own = p.owned_view(nullptr);
        const box inner = a.where == placement::in_place ? p.windows()[0].interior() : all_of(own);
        return std::pair{box_spots(own, inner, p.owned_bytes()), box_spots(all, all_of(all), p.padded_bytes())};
      });
}

}  // namespace

TEST_CASE("corners come from the diagonal neighbour [N3]") {
  const grid tiles{.frames = 1, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  const halo_width one{1, 1, border::zero};
  const pixels out = halo_of_frame(tiles, {.height = one, .width = one},
                                   [](index_t y, index_t x) { return static_cast<double>(10 * (y + 1) + x + 1); });
  CHECK(out[0] == std::vector<double>{0, 0, 0, 0, 0, 11, 12, 13, 0, 21, 22, 23, 0, 31, 32, 33});
  CHECK(out[3] == std::vector<double>{22, 23, 24, 0, 32, 33, 34, 0, 42, 43, 44, 0, 0, 0, 0, 0});
}

TEST_CASE("tiles own their tokens in t, h, w order [N4]") {
  const grid tiles{.frames = 2, .height = 4, .width = 6, .split_h = 2, .split_w = 2};
  CHECK(owned_of(tiles)[1] == std::vector<index_t>{3, 4, 5, 9, 10, 11, 27, 28, 29, 33, 34, 35});
}

TEST_CASE("a box sum over uneven tiles with halos is that of one rank [N5]") {
  const grid tiles{.frames = 1, .height = 5, .width = 7, .split_h = 2, .split_w = 3};
  const halo_width one{1, 1, border::zero};
  const pixels out = halo_of_frame(tiles, {.height = one, .width = one},
                                   [](index_t y, index_t x) { return static_cast<double>(10 * y + x); });
  std::vector<double> sums(35);
  for (int r = 0; r < 6; ++r) {
    const interval h = tiles.h_span(r), w = tiles.w_span(r);
    for (index_t y = h.lo; y < h.hi; ++y)
      for (index_t x = w.lo; x < w.hi; ++x)
        for (index_t i = 0; i < 3; ++i)
          for (index_t k = 0; k < 3; ++k)
            sums[static_cast<std::size_t>(7 * y + x)] +=
                out[static_cast<std::size_t>(r)]
                   [static_cast<std::size_t>((y - h.lo + i) * (w.size() + 2) + x - w.lo + k)];
  }
  CHECK(sums == std::vector<double>{22,  36,  42,  48,  54,  60,  42,  63,  99,  108, 117, 126,
                                    135, 93,  123, 189, 198, 207, 216, 225, 153, 183, 279, 288,
                                    297, 306, 315, 213, 142, 216, 222, 228, 234, 240, 162});
}

TEST_CASE("halos of any width around any tiles hold the right pixels in any format, and the adjoint is the transpose") {
  std::minstd_rand draw(5);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  const std::vector<std::pair<index_t, index_t>> splits{{1, 1}, {1, 2}, {3, 1}, {2, 2}, {1, 5}, {2, 3}, {7, 1}, {2, 4}};
  for (int turn = 0; turn < 240; ++turn) {
    const auto [split_h, split_w] = splits[static_cast<std::size_t>(turn % 8)];
    const auto width = [&]() -> halo_width {
      const index_t most = below(5) == 0 ? 9 : 3;
      return {below(most), below(most), static_cast<border>(below(3))};
    };
    const grid g{.frames = below(4),
                 .height = below(8),
                 .width = 1 + below(9),
                 .split_h = split_h,
                 .split_w = split_w,
                 .rule = static_cast<uneven>(below(3))};
    const grid_halo halo{.time = width(), .height = width(), .width = width()};
    const arrangement a{.batch = 1 + below(2),
                        .columns = 1 + below(3),
                        .dim = 1 + below(2),
                        .where = below(2) == 0 ? placement::apart : placement::in_place};
    const index_t pitches[] = {0, 8, 16, 64, 40};
    const box_format format{.order = static_cast<box_order>(below(3)), .pitch = pitches[below(5)]};
    CAPTURE(turn);
    CHECK(broken_halo(g, halo, a, format) == "");
  }
}

TEST_CASE("lines of a padded buffer begin at the pitch, channels first or last") {
  const grid tiles{.frames = 2, .height = 4, .width = 6, .split_h = 2, .split_w = 2};
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 4, log));
  const halo_width one{1, 1};
  const auto strides = [&](box_order order, index_t channels, index_t pitch = 128) {
    const auto plan = plan_halo(team, tiles, {.height = one, .width = one},
                                {.row_bytes = channels * 4, .columns = channels, .placement = placement::in_place},
                                {.order = order, .pitch = pitch});
    CHECK(plan.padded_view(nullptr).shape == std::array<index_t, 5>{1, 2, 3, 4, channels});
    return plan.padded_view(nullptr).stride;
  };
  CHECK(strides(box_order::thwc, 3) == std::array<index_t, 5>{768, 384, 128, 12, 4});
  CHECK(strides(box_order::thwc, 3, 16) == std::array<index_t, 5>{288, 144, 48, 12, 4});
  CHECK(strides(box_order::cthw, 3) == std::array<index_t, 5>{2304, 384, 128, 4, 768});
  CHECK(strides(box_order::tchw, 3) == std::array<index_t, 5>{2304, 1152, 128, 4, 384});
}

TEST_CASE("a box may be a slice of wider pixels, but not of another shape") {
  const grid tiles{.frames = 1, .height = 2, .width = 4, .split_h = 1, .split_w = 2};
  std::vector<std::vector<float>> out(2);
  std::vector<int> refused(2);
  run_ranks(2, [&](threads::transport world) {
    auto plan = plan_halo(ring(world), tiles, {.width = {.before = 1, .after = 1}}, {.row_bytes = sizeof(float)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    // the second of two channels, taken alone
    std::vector<float> in(8), wide(12, -1);
    for (index_t y = 0; y < 2; ++y)
      for (index_t x = 0; x < 2; ++x)
        in[static_cast<std::size_t>(2 * (2 * y + x) + 1)] = static_cast<float>(10 * y + 2 * world.rank() + x);
    const auto slice = [](std::vector<float>& of, index_t w) {
      return box_view{of.data() + 1, {1, 1, 2, w, 1}, {16 * w, 16 * w, 8 * w, 8, 4}, 4};
    };
    check(plan.forward(slice(in, 2), slice(wide, 3), memory, on_host{}));
    out[static_cast<std::size_t>(world.rank())] = wide;
  });
  CHECK(out[0] == std::vector<float>{-1, 0, -1, 1, -1, 2, -1, 10, -1, 11, -1, 12});
  CHECK(out[1] == std::vector<float>{-1, 1, -1, 2, -1, 3, -1, 11, -1, 12, -1, 13});

  const auto plan = plan_halo(ring(self{}), grid{.frames = 1, .height = 2, .width = 4, .split_h = 1, .split_w = 1},
                              {.width = {.before = 1, .border = border::zero}}, {.row_bytes = 4});
  std::vector<float> in(8), wide(10);
  const auto in_view = plan.owned_view(in.data());
  auto view = plan.padded_view(wide.data());
  view.shape[2] = 1;
  CHECK(plan.forward(in_view, view, {}, on_host{}).code() == errc::invalid_argument);
  view = plan.padded_view(wide.data());
  view.stride[2] += 4;
  CHECK(plan.forward(in_view, view, {}, on_host{}).code() == errc::invalid_argument);
}

TEST_CASE("any box a rank: overlapping tiles, crops, what lies beyond the frame") {
  std::minstd_rand draw(9);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int turn = 0; turn < 60; ++turn) {
    const grid g{.frames = 1 + below(3), .height = 1 + below(6), .width = 1 + below(7), .split_h = 2, .split_w = 2};
    const grid_border over{static_cast<border>(below(3)), static_cast<border>(below(3)), static_cast<border>(below(3))};
    std::vector<box> boxes;
    for (int r = 0; r < 4; ++r) {
      const auto some = [&]() -> interval {
        const index_t lo = below(9) - 3;
        return {lo, lo + below(5)};
      };
      boxes.push_back({some(), some(), some()});
    }
    rows_of_ranks wanted;
    for (const box& b : boxes) {
      auto& list = wanted.emplace_back();
      for (index_t t = b.t.lo; t < b.t.hi; ++t)
        for (index_t y = b.h.lo; y < b.h.hi; ++y)
          for (index_t x = b.w.lo; x < b.w.hi; ++x) {
            const index_t from[] = {reference_row(t, g.frames, over.time), reference_row(y, g.height, over.height),
                                    reference_row(x, g.width, over.width)};
            const index_t least = std::min({from[0], from[1], from[2]});
            if (least > -2) list.push_back(least < 0 ? -1 : (from[0] * g.height + from[1]) * g.width + from[2]);
          }
    }
    const arrangement a{.batch = 2, .columns = 2, .dim = 1};
    CAPTURE(turn);
    CHECK(broken(
              4, a, owned_of(g), wanted,
              [&](const auto& team) {
                return plan_windows(
                    team, g, [&](int r) { return boxes[static_cast<std::size_t>(r)]; }, over, a.options());
              },
              [&](const auto& p) {
                const box_view all = p.padded_view(nullptr), own = p.owned_view(nullptr);
                return std::pair{box_spots(own, all_of(own), p.owned_bytes()),
                                 box_spots(all, all_of(all), p.padded_bytes())};
              }) == "");
  }
}

TEST_CASE("boxes that part the frames, dealt in any order, come home by inverse from any format") {
  std::minstd_rand draw(21);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int turn = 0; turn < 60; ++turn) {
    const grid g{.frames = 1 + below(4), .height = 1 + below(6), .width = 1 + below(7), .split_h = 2, .split_w = 2};
    const index_t t = below(g.frames + 1), w = below(g.width + 1), beyond = below(3), skipped = below(2);
    std::vector<box> boxes{{{-beyond, t}, {0, g.height}, {-1, w}},
                           {{-beyond, t}, {0, g.height}, {w + skipped, g.width}},
                           {{t, g.frames}, {0, g.height}, {-1, w}},
                           {{t, g.frames}, {-2, g.height}, {w, g.width + beyond}}};
    std::shuffle(boxes.begin(), boxes.end(), draw);
    const grid_border zeros{border::zero, border::zero, border::zero};
    rows_of_ranks wanted;
    for (const box& b : boxes) {
      auto& list = wanted.emplace_back();
      for (index_t k = b.t.lo; k < b.t.hi; ++k)
        for (index_t y = b.h.lo; y < b.h.hi; ++y)
          for (index_t x = b.w.lo; x < b.w.hi; ++x) {
            const bool inside = k >= 0 && y >= 0 && 0 <= x && x < g.width;
            list.push_back(inside ? (k * g.height + y) * g.width + x : -1);
          }
    }
    const arrangement a{.batch = 2 + below(2), .columns = 1 + below(3), .dim = 1 + below(2)};
    const box_format format{.order = static_cast<box_order>(below(3)), .pitch = 8 * below(6)};
    CAPTURE(turn);
    CHECK(broken(
              4, a, owned_of(g), wanted,
              [&](const auto& team) {
                return plan_windows(
                    team, g, [&](int r) { return boxes[static_cast<std::size_t>(r)]; }, zeros, a.options(), format);
              },
              [&](const auto& p) {
                const box_view all = p.padded_view(nullptr), own = p.owned_view(nullptr);
                return std::pair{box_spots(own, all_of(own), p.owned_bytes()),
                                 box_spots(all, all_of(all), p.padded_bytes())};
              }) == "");
  }
}

TEST_CASE("a halo on a grid that makes no sense is refused alike on every rank") {
  const grid tiles{.frames = 1, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  const auto says = [&](const std::string& part, const grid& g, const grid_halo& halo, const exchange_options& options,
                        const box_format& format = {}) {
    const std::string text =
        refusal(4, [&](const auto& team) { return try_plan_halo(team, g, halo, options, format); });
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says("height: before and after must not be negative", tiles, {.height = {.before = -1}}, {.row_bytes = 4});
  says("the mesh has 4", grid{.frames = 1, .height = 4, .width = 4, .split_h = 3, .split_w = 1}, {}, {.row_bytes = 4});
  says("split_h or split_w is below 1", grid{.frames = 1, .height = 4, .width = 4, .split_h = 0, .split_w = 4}, {},
       {.row_bytes = 4});
  says("negative; give 0 or more", grid{.frames = -1, .height = 4, .width = 4, .split_h = 2, .split_w = 2}, {},
       {.row_bytes = 4});
  says("columns must divide row_bytes", tiles, {}, {.row_bytes = 10, .columns = 4});
  says("pitch must not be negative", tiles, {}, {.row_bytes = 4}, {.pitch = -8});
  says("more than 2^62 bytes", tiles,
       {.time = {1 << 30, 0, border::zero}, .height = {1 << 30, 0, border::zero}, .width = {1 << 30, 0, border::zero}},
       {.row_bytes = 4});
}
