// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Movements of published systems, each by a verb that exists: the index map, the gradient and the bytes.
#include <doctest/doctest.h>

#include <seqpar/communicator/process_grid.hpp>
#include <seqpar/exchange/broadcast.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>

using namespace seqpar;

namespace {

using traced_threads = traced<threads::transport>;
using rows = std::vector<double>;

/// One number a row; f(team, prepared) on every rank, where prepared(plan) gives its memory; bytes sent by each rank.
template <class F>
std::vector<index_t> bytes_of_ranks(int ranks, F&& f) {
  std::vector<index_t> bytes(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](threads::transport engine) {
    flight_record record(engine.rank(), engine.size(), 1);
    const mesh<traced_threads> team = ring(traced_threads(engine, record));
    f(team);
    bytes[static_cast<std::size_t>(engine.rank())] = record.bytes(direction::send);
  });
  return bytes;
}
template <class Plan>
host_memory prepared(Plan& plan) {
  host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  return memory;
}
exchange_options one_number(gradient convention = gradient::sum) {
  return {.row_bytes = sizeof(double), .convention = convention, .check = agreement::trusted};
}
/// Row i of rank r, all different.
double x(int rank, index_t i) {
  return static_cast<double>(100 * rank + i);
}

}  // namespace

TEST_CASE("Megatron's sequence-parallel pair is a gather of a contiguous layout and its adjoint, without factors") {
  for (index_t tokens : {8, 10}) {
    const int p = 4;
    const contiguous layout{.tokens = tokens, .ranks = p};
    std::vector<rows> gathered(4), reduced(4), slice(4);
    const auto all_gather = bytes_of_ranks(p, [&](const auto& team) {
      // gather forward, reduce-scatter backward: g.forward, g.adjoint; the reverse: g.adjoint, g.forward
      auto g = plan_gather(team, layout, one_number());
      const host_memory memory = prepared(g);
      rows in;
      for (index_t i = 0; i < layout.count_of(team.index()); ++i) in.push_back(x(team.index(), i));
      auto& out = gathered[static_cast<std::size_t>(team.index())];
      out.resize(static_cast<std::size_t>(tokens));
      check(g.forward(in.data(), out.data(), memory, on_host{}));
    });
    const auto reduce_scatter = bytes_of_ranks(p, [&](const auto& team) {
      auto g = plan_gather(team, layout, one_number());
      const host_memory memory = prepared(g);
      rows in;
      for (index_t i = 0; i < tokens; ++i) in.push_back(x(team.index(), i));
      auto& out = reduced[static_cast<std::size_t>(team.index())];
      out.resize(static_cast<std::size_t>(g.own_rows()));
      check(g.template adjoint<double>(in.data(), out.data(), memory, on_host{}));
    });
    const auto scatter = bytes_of_ranks(p, [&](const auto& team) {
      // a slice of what all ranks hold: forward of Megatron's scatter, backward of its gather without reduction
      auto g = plan_gather(team, layout, one_number(gradient::replicated));
      const host_memory memory = prepared(g);
      rows in;
      for (index_t i = 0; i < tokens; ++i) in.push_back(x(0, i));
      auto& out = slice[static_cast<std::size_t>(team.index())];
      out.resize(static_cast<std::size_t>(g.own_rows()));
      check(g.template adjoint<double>(in.data(), out.data(), memory, on_host{}));
    });
    rows concatenated;
    for (int r = 0; r < p; ++r)
      for (index_t i = 0; i < layout.count_of(r); ++i) concatenated.push_back(x(r, i));
    index_t first = 0;
    for (int r = 0; r < p; ++r) {
      const auto k = static_cast<std::size_t>(r);
      const index_t n = layout.count_of(r);
      CHECK(gathered[k] == concatenated);
      rows sums, part;
      for (index_t i = first; i < first + n; ++i) {
        sums.push_back(x(0, i) + x(1, i) + x(2, i) + x(3, i));
        part.push_back(x(0, i));
      }
      CHECK(reduced[k] == sums);
      CHECK(slice[k] == part);
      CHECK(all_gather[k] == 8 * n * (p - 1));
      CHECK(reduce_scatter[k] == 8 * (tokens - n));
      CHECK(scatter[k] == 0);
      first += n;
    }
  }
}

TEST_CASE("LongCat's 2-D split and gather are those of a grid; each tile's gradient is its own, without a factor") {
  struct tile_map {
    grid tiles;
    std::vector<rows> owned;
  };
  const std::vector<tile_map> published{{{.frames = 1, .height = 4, .width = 4, .split_h = 2, .split_w = 2},
                                         {{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}}},
                                        {{.frames = 1, .height = 4, .width = 4, .split_h = 1, .split_w = 4},
                                         {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}},
                                        {{.frames = 1, .height = 4, .width = 4, .split_h = 2, .split_w = 4},
                                         {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}},
                                        {{.frames = 2, .height = 2, .width = 4, .split_h = 1, .split_w = 2},
                                         {{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}}};
  for (const tile_map& m : published) {
    const int p = m.tiles.rank_count();
    const auto bytes = bytes_of_ranks(p, [&](const auto& team) {
      const auto expect = [](bool right) {
        if (!right) raise(error(errc::invalid_argument, "another map than the published one"));
      };
      const rows& mine = m.owned[static_cast<std::size_t>(team.index())];
      rows whole, tile(mine.size());
      for (int i = 0; i < 16; ++i) whole.push_back(i);
      auto g = plan_gather(team, m.tiles, one_number(gradient::replicated));
      const host_memory memory = prepared(g);
      check(g.template adjoint<double>(whole.data(), tile.data(), memory, on_host{}));  // split
      expect(tile == mine);
      rows back(16);
      check(g.forward(tile.data(), back.data(), memory, on_host{}));  // gather
      expect(back == whole);
    });
    for (index_t b : bytes) CHECK(b == 8 * 16 / p * (p - 1));  // the gather; the split is free
  }
}

TEST_CASE("a broadcast inside each group comes from the member of that index in the group") {
  const process_grid cp{.data = 2, .sequence = 4, .tensor = 1};
  std::vector<rows> got(8), gradient_of(8);
  run_ranks(8, [&](threads::transport world) {
    const mesh team = ring(world, cp.group(parallel::sequence, world.rank()));
    auto prompt = plan_broadcast(team, 2, 1, one_number());
    const host_memory memory = prepared(prompt);
    const rows in{x(world.rank(), 0), x(world.rank(), 1)}, dout{1.0 + world.rank(), 2};
    rows &out = got[static_cast<std::size_t>(world.rank())], &din = gradient_of[static_cast<std::size_t>(world.rank())];
    out.resize(2);
    din.resize(static_cast<std::size_t>(prompt.own_rows()));
    check(prompt.forward(in.data(), out.data(), memory, on_host{}));
    check(prompt.adjoint<double>(dout.data(), din.data(), memory, on_host{}));
  });
  for (std::size_t r = 0; r < 8; ++r) {
    CHECK(got[r] == (r < 4 ? rows{x(1, 0), x(1, 1)} : rows{x(5, 0), x(5, 1)}));
    CHECK(gradient_of[r] == (r == 1 ? rows{10, 8} : r == 5 ? rows{26, 8} : rows{}));
  }
}

TEST_CASE("DSP's switch of the sharded dimension is a reshard between frames and pixels, and back is its inverse") {
  struct sizes {
    int ranks;
    index_t frames, pixels;
  };
  for (const sizes& s : {sizes{4, 8, 12}, sizes{2, 4, 6}, sizes{3, 5, 7}, sizes{4, 3, 9}, sizes{1, 3, 4}}) {
    // [snippet]
    const contiguous by_time{.tokens = s.frames * s.pixels, .ranks = s.ranks, .granule = s.pixels};
    const grid by_space{.frames = s.frames, .height = 1, .width = s.pixels, .split_h = 1, .split_w = s.ranks};
    // [/snippet]
    const auto bytes = bytes_of_ranks(s.ranks, [&](const auto& team) {
      const auto expect = [](bool right) {
        if (!right) raise(error(errc::invalid_argument, "another map than the published one"));
      };
      auto turn = plan_reshard(team, by_time, by_space, one_number());
      const host_memory memory = prepared(turn);
      const int me = team.index();
      const pieces t{s.frames, s.ranks}, w{s.pixels, s.ranks};
      rows frames, pixels, out(static_cast<std::size_t>(turn.wanted_rows()));
      for (index_t f = t.begin_of(me); f < t.begin_of(me + 1); ++f)
        for (index_t i = 0; i < s.pixels; ++i) frames.push_back(static_cast<double>(1000 * f + i));
      for (index_t f = 0; f < s.frames; ++f)
        for (index_t i = w.begin_of(me); i < w.begin_of(me + 1); ++i)
          pixels.push_back(static_cast<double>(1000 * f + i));
      check(turn.forward(frames.data(), out.data(), memory, on_host{}));
      expect(out == pixels);
      rows back(frames.size());
      check(turn.template adjoint<double>(out.data(), back.data(), memory, on_host{}));
      expect(back == frames);
      check(turn.inverse(out.data(), back.data(), memory, on_host{}));
      expect(back == frames);
    });
    const pieces t{s.frames, s.ranks}, w{s.pixels, s.ranks};
    for (int r = 0; r < s.ranks; ++r)  // once there, twice back
      CHECK(bytes[static_cast<std::size_t>(r)] ==
            8 * (t.size_of(r) * (s.pixels - w.size_of(r)) + 2 * w.size_of(r) * (s.frames - t.size_of(r))));
  }
}

TEST_CASE("pixels may be h x w tiles: frames of each rank become tiles of all frames") {
  const contiguous by_time{.tokens = 5 * 3 * 4, .ranks = 4, .granule = 12};
  const grid tiles{.frames = 5, .height = 3, .width = 4, .split_h = 2, .split_w = 2};
  bytes_of_ranks(4, [&](const auto& team) {
    auto turn = plan_reshard(team, by_time, tiles, one_number());
    const host_memory memory = prepared(turn);
    rows in, out(static_cast<std::size_t>(turn.wanted_rows()));
    for (index_t i = 0; i < by_time.count_of(team.index()); ++i)
      in.push_back(static_cast<double>(by_time.global_of(team.index(), i)));
    check(turn.forward(in.data(), out.data(), memory, on_host{}));
    std::size_t next = 0;
    const index_t y0 = team.index() / 2 * 2, x0 = team.index() % 2 * 2;
    for (index_t t = 0; t < 5; ++t)
      for (index_t y = y0; y < std::min<index_t>(y0 + 2, 3); ++y)
        for (index_t k = x0; k < x0 + 2; ++k)
          if (out[next++] != static_cast<double>(12 * t + 4 * y + k))
            raise(error(errc::invalid_argument, "another map than frames to tiles"));
  });
}
