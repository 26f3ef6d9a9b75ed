// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What windows refuse to run on: buffers that lie on one another, boxes that do not describe what was planned.
#include <doctest/doctest.h>

#include <numeric>

#include <seqpar/exchange/reshard.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <tests/exchange/windows.hpp>

using namespace window_test;

namespace {

std::vector<float> numbers(std::size_t n, float first = 1) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), first);
  return x;
}

/// One rank whose plan is ready; run(f) gives what f returns, and the transport works again.
template <class Plan>
struct alone {
  Plan plan;
  host_memory memory;
  explicit alone(Plan p) : plan(std::move(p)), memory(plan.memory()) { plan.prepare(memory, on_host{}); }
  status forward(row_buffer in, row_buffer out) const { return plan.forward(in, out, memory, on_host{}); }
  status adjoint(row_buffer dout, row_buffer din) const {
    return plan.template adjoint<float>(dout, din, memory, on_host{});
  }
  status inverse(row_buffer out, row_buffer in) const { return plan.inverse(out, in, memory, on_host{}); }
  template <std::same_as<box_view> Box>
  status forward(const Box& in, const Box& out) const {
    return plan.forward(in, out, memory, on_host{});
  }
  template <std::same_as<box_view> Box>
  status inverse(const Box& out, const Box& in) const {
    return plan.inverse(out, in, memory, on_host{});
  }
  template <std::same_as<box_view> Box>
  status adjoint(const Box& dout, const Box& din) const {
    return plan.template adjoint<float>(dout, din, memory, on_host{});
  }
};

/// A mesh of one rank that records, so that a refusal does not end it.
struct one_rank {
  std::vector<recorded_message> log;
  mesh<recorder> team = ring(recorder(0, 1, log));
};

bool says(const status& s, errc code, const char* what = "") {
  INFO(s.message());
  const bool right = s.code() == code && s.message().find(what) != std::string::npos;
  CHECK(right);
  return right;
}

constexpr errc overlapping = errc::overlapping_buffers, invalid = errc::invalid_argument;

}  // namespace

TEST_CASE("zeros behind the last row of a window are part of it: what they would overwrite is refused [E4]") {
  one_rank world;
  const contiguous layout{.tokens = 4, .ranks = 1};
  for (halo_width w : {halo_width{0, 4, border::zero}, {4, 0, border::zero}, {2, 2, border::zero}}) {
    const alone here(plan_halo(world.team, layout, {w.before, w.after, w.border}, {.row_bytes = 4}));
    std::vector<float> room = numbers(20), apart = numbers(4);
    for (std::size_t at = 0; at < 8; ++at) says(here.forward(room.data() + at, room.data()), overlapping);
    CHECK(room == numbers(20));
    CHECK(here.forward(room.data() + 8, room.data()).ok());
    CHECK(here.forward(apart.data(), room.data()).ok());
  }
  // nothing but zeros
  const alone beyond(plan_windows(world.team, layout,
                                  [](int) {
                                    return interval{9, 12};
                                  },
                                  border::zero, {.row_bytes = 4}));
  std::vector<float> room = numbers(8);
  says(beyond.forward(room.data(), room.data() + 3), overlapping);
  says(beyond.forward(room.data(), static_cast<void*>(nullptr)), invalid, "null");
  CHECK(beyond.forward(room.data(), room.data() + 4).ok());
  CHECK(room == std::vector<float>{1, 2, 3, 4, 0, 0, 0, 8});
}

TEST_CASE("zeros do not reach into scratch [E4]") {
  one_rank world;
  auto plan = plan_halo(world.team, contiguous{.tokens = 16, .ranks = 1}, {.after = 32, .border = border::zero},
                        {.row_bytes = 4});
  const index_t used = plan.memory().scratch;
  std::vector<float> arena(static_cast<std::size_t>(used) / 4 + 256), in = numbers(16);
  float* out = arena.data();  // its rows end where scratch begins, its zeros are in scratch
  while (reinterpret_cast<std::uintptr_t>(out + 16) % memory_alignment != 0) ++out;
  seqpar::memory given;
  given.scratch = {out + 16, used};
  plan.prepare(given, on_host{});
  says(plan.forward(in.data(), out, given, on_host{}), overlapping, "scratch");
}

TEST_CASE("items of a batch do not lie in the zeros of the item before, by any way to give strides [E4]") {
  one_rank world;
  const alone line(plan_halo(world.team, contiguous{.tokens = 2, .ranks = 1}, {.after = 3, .border = border::zero},
                             {.row_bytes = 4, .batch = 2}));
  std::vector<float> in = numbers(4), out(40, -1);
  for (index_t stride : {8, 12, 16}) says(line.forward(in.data(), {out.data(), 4, stride}), overlapping);
  CHECK(out == std::vector<float>(40, -1));
  CHECK(line.forward(in.data(), {out.data(), 4, 24}).ok());
  CHECK(std::vector<float>(out.begin(), out.begin() + 12) == std::vector<float>{1, 2, 0, 0, 0, -1, 3, 4, 0, 0, 0, -1});
  CHECK(line.forward(in.data(), {out.data(), 8, 4}).ok());  // the items side by side

  const halo_width zeros{.after = 2, .border = border::zero};
  for (box_order order : {box_order::thwc, box_order::cthw, box_order::tchw})
    for (index_t pitch : {0, 24, 40}) {
      const alone tile(plan_halo(world.team, grid{.frames = 2, .height = 2, .width = 2, .split_h = 1, .split_w = 1},
                                 {.time = zeros, .height = zeros, .width = zeros},
                                 {.row_bytes = 8, .batch = 2, .columns = 2}, {.order = order, .pitch = pitch}));
      const index_t item = tile.plan.padded_view(nullptr).stride[0];
      in = numbers(static_cast<std::size_t>(tile.plan.owned_bytes()) / 4);
      out.assign(static_cast<std::size_t>(tile.plan.padded_bytes()) / 4, -1);
      box_view wide = tile.plan.padded_view(out.data());
      const box_view from = tile.plan.owned_view(in.data());
      CHECK(tile.forward(from, wide).ok());
      for (index_t stride : {item / 8 * 4, item / 4}) {
        wide.stride[0] = stride;
        says(tile.forward(from, wide), overlapping);
        says(tile.forward(in.data(), {out.data(), 0, stride}), overlapping);
      }
    }
}

TEST_CASE("a gradient or a row that comes home has bytes of its own [E4]") {
  one_rank world;
  const alone here(plan_halo(world.team, contiguous{.tokens = 4, .ranks = 1}, {}, {.row_bytes = 8, .batch = 2}));
  std::vector<float> x = numbers(16), y(32);
  for (row_buffer bad : {row_buffer{y.data(), 4}, {y.data(), 8, 16}, {y.data(), 8, 4}}) {
    says(here.adjoint(x.data(), bad), overlapping);
    says(here.inverse(x.data(), bad), overlapping);
    says(here.forward(x.data(), bad), overlapping);
  }
  CHECK(here.inverse(x.data(), {y.data(), 8, 64}).ok());
}

TEST_CASE("one buffer in place has one shape, whatever its rows: batch and strides") {
  one_rank world;
  const auto holds = [](int) {
    holding h;
    h.append({0, 2, 1}, 1);
    return h;
  };
  const auto wants = [](int) {
    holding h;
    h.append({0, 2, 1}, 1);
    h.append({1, 1, 1}, 4);
    return h;
  };
  const alone here(
      plan_exchange(world.team, holds, wants, {.row_bytes = 4, .batch = 2, .placement = placement::in_place}));
  std::vector<float> x = numbers(10);
  CHECK(here.forward(x.data(), x.data()).ok());
  CHECK(x == std::vector<float>{1, 2, 3, 4, 3, 6, 7, 8, 9, 8});
  x.resize(20);
  for (const row_buffer& other : {row_buffer{x.data(), 4, 24}, {x.data(), 8, 40}})
    says(here.forward(x.data(), other), overlapping);
}

TEST_CASE("a box with stride 0 along several positions is refused; along one it does not matter") {
  one_rank world;
  const alone here(plan_halo(world.team, grid{.frames = 2, .height = 2, .width = 2, .split_h = 1, .split_w = 1}, {},
                             {.row_bytes = 8, .batch = 2, .columns = 2}));
  std::vector<float> in = numbers(32), out(32);
  for (std::size_t axis = 0; axis < 5; ++axis) {
    box_view flat = here.plan.owned_view(in.data()), to = here.plan.padded_view(out.data());
    flat.stride[axis] = 0;
    says(here.forward(flat, to), invalid, "stride 0");
    says(here.inverse(to, flat), invalid, "stride 0");
    says(here.adjoint(flat, to), invalid, "stride 0");
  }
  const alone pixel(plan_halo(world.team, grid{.frames = 1, .height = 1, .width = 1, .split_h = 1, .split_w = 1}, {},
                              {.row_bytes = 4}));
  const box_view one{in.data(), {1, 1, 1, 1, 1}, {}, 4}, to{out.data(), {1, 1, 1, 1, 1}, {}, 4};
  CHECK(pixel.forward(one, to).ok());
  CHECK(out[0] == 1);
}

TEST_CASE("one box does not describe several windows: refused where a rank has them, and nobody waits") {
  std::vector<status> said(3);
  std::vector<std::vector<float>> out(3);
  run_ranks(3, [&](threads::transport engine) {
    const zigzag layout{.tokens = 12, .ranks = 3};  // ranks 0 and 1 have two windows, rank 2 one
    auto plan = plan_halo(ring(engine), layout, {.before = 1, .border = border::zero}, {.row_bytes = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const auto me = static_cast<std::size_t>(engine.rank());
    std::vector<float> in = numbers(4, static_cast<float>(10 * me)), wide(6, -1);
    said[me] = plan.forward(plan.owned_view(in.data()), plan.padded_view(wide.data()), memory, on_host{});
    // each window has a view
    const std::size_t windows = plan.windows().size();
    CHECK(windows == (me == 2 ? 1 : 2));
    for (std::size_t i = 0; i < windows; ++i) {
      const box_view v = plan.padded_view(wide.data(), i);
      CHECK(v.shape == std::array<index_t, 5>{1, plan.windows()[i].padded.t.size(), 1, 1, 1});
      CHECK(v.pointer == wide.data() + plan.windows()[i].first);
    }
    CHECK(plan.owned_view(in.data(), windows).pointer == nullptr);
  });
  for (const std::size_t r : {0u, 1u}) says(said[r], invalid, "several windows");
  CHECK_FALSE(said[2].ok());

  // one window, but two boxes that are owned
  run_ranks(2, [&](threads::transport engine) {
    auto plan = plan_windows(ring(engine), zigzag{.tokens = 8, .ranks = 2},
                             [](int) {
                               return interval{0, 8};
                             },
                             border::clamp, {.row_bytes = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const auto me = static_cast<std::size_t>(engine.rank());
    std::vector<float> in = numbers(4), wide(8, -1);
    said[me] = plan.adjoint<float>(plan.padded_view(wide.data()), plan.owned_view(in.data()), memory, on_host{});
  });
  says(said[0], invalid, "several windows");
  CHECK_FALSE(said[1].ok());
}

TEST_CASE("a box that does not cover its tile of the frames is refused, and nobody waits") {
  for (const std::array<index_t, 3>& shape : {std::array<index_t, 3>{1, 2, 3}, {2, 1, 3}, {2, 2, 2}, {2, 3, 2}}) {
    std::vector<status> said(4);
    run_ranks(4, [&](threads::transport engine) {
      const grid tiles{.frames = 2, .height = 4, .width = 6, .split_h = 2, .split_w = 2};
      auto plan = plan_halo(ring(engine), tiles, {.width = {.before = 1, .border = border::zero}}, {.row_bytes = 4});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      std::vector<float> in = numbers(12), wide(16);
      const bool wrong = engine.rank() == 1;
      const box_view from = make_box_view(
          in.data(),
          wrong ? std::array<index_t, 5>{1, shape[0], shape[1], shape[2], 1} : std::array<index_t, 5>{1, 2, 2, 3, 1},
          4);
      said[static_cast<std::size_t>(engine.rank())] =
          plan.forward(from, plan.padded_view(wide.data()), memory, on_host{});
    });
    says(said[1], invalid, "another shape than planned");
    const std::size_t axis = shape[0] != 2 ? 0 : shape[1] != 2 ? 1 : 2;
    CHECK(said[1].wanted() == std::array<index_t, 3>{2, 2, 3}[axis]);
    CHECK(said[1].given() == shape[axis]);
  }
  // as layouts: tiles that deal other tokens than there are frames
  const grid tiles{.frames = 2, .height = 4, .width = 6, .split_h = 2, .split_w = 2};
  CHECK(refusal(4, [&](const auto& team) {
          return try_plan_reshard(team, contiguous{.tokens = 3 * 24, .ranks = 4}, tiles, {.row_bytes = 4});
        }) == "[seqpar] plan_reshard: the layouts have 72 and 48 tokens; give both the same sequence");
}

TEST_CASE("ragged rows are refused on every rank: row sizes that differ, columns and units that do not divide") {
  const grid tiles{.frames = 1, .height = 4, .width = 4, .split_h = 2, .split_w = 2};
  const contiguous layout{.tokens = 12, .ranks = 4};
  const auto prepared = [&](auto&& plan_of) {
    return refusal(4, [&](const auto& team) -> result<int> {
      auto plan = plan_of(team, exchange_options{.row_bytes = team.index() == 2 ? 8 : 4});
      const host_memory memory(plan.memory());
      if (failure f = plan.try_prepare(memory, on_host{})) return *f;
      return 0;
    });
  };
  const std::string ragged = "ranks disagree on row_bytes: expected 4 (ranks 0,1,3 of 4), got 8 (rank 2)";
  for (const std::string& said :
       {prepared([&](const auto&team, auto o) {
          return plan_halo(team, tiles, {.width = {1, 1}}, o);
        }),
        prepared([&](const auto&team, auto o) { return plan_halo(team, layout, {.before = 1}, o); }),
        prepared([&](const auto&team, auto o) {
          return plan_windows(
              team, layout,
              [](int r) {
                return interval{r, r + 2};
              },
              border::zero, o);
        })}) {
    INFO(said);
    CHECK(said.find(ragged) != std::string::npos);
  }
  const auto planned = [&](exchange_options o, index_t unit) {
    return refusal(4, [&](const auto& team) {
      return try_plan_windows(
          team, layout,
          [](int) {
            return interval{0, 1};
          },
          border::zero, o, unit);
    });
  };
  CHECK(planned({.row_bytes = 10, .columns = 4}, 1).find("columns must divide row_bytes") != std::string::npos);
  CHECK(planned({.row_bytes = 4}, 5).find("no whole number of units") != std::string::npos);
}

TEST_CASE("a wider pixel widens the planes of its channels too, in every order") {
  one_rank ranks;
  for (const box_order order : {box_order::cthw, box_order::tchw}) {
    const alone p(plan_halo(ranks.team, grid{.frames = 2, .height = 1, .width = 2, .split_h = 1, .split_w = 1},
                            grid_halo{}, {.row_bytes = 8, .columns = 2}, {order}));
    std::vector<float> in(16, -1), out(8), back(16, -1);
    for (std::size_t i = 0; i < 8; ++i) in[2 * i] = static_cast<float>(i + 1);
    check(p.forward(row_buffer(in.data(), 8), row_buffer(out.data())));
    CHECK(out == numbers(8));
    check(p.inverse(row_buffer(out.data()), row_buffer(back.data(), 8)));
    CHECK(back == in);
  }
}

TEST_CASE("the sums of an adjoint take twice the bytes of what a rank owns, in every order and pitch") {
  for (const box_order order : {box_order::thwc, box_order::cthw, box_order::tchw})
    for (const index_t pitch : {0, 24}) {
      std::vector<recorded_message> log;
      const mesh team = ring(recorder(1, 4, log));
      const auto p = plan_halo(team, grid{.frames = 3, .height = 32, .width = 32, .split_h = 2, .split_w = 2},
                               grid_halo{.height = {1, 1, border::zero}, .width = {1, 1, border::zero}},
                               {.row_bytes = 64, .columns = 16}, {order, pitch});
      const index_t returned = p.bytes_received();  // of the copy: what comes back as gradients is what was sent
      CHECK(p.memory().scratch <= 2 * p.owned_bytes() + returned + 2 * memory_alignment);
    }
}
