// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What it costs to plan a route of 2^20 tokens over 64 ranks: milliseconds and bytes, for the dearest of several ranks.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/route.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>

namespace {

using namespace seqpar;

constexpr int ranks = 64;
constexpr index_t tokens = index_t{1} << 20;

/// Tiles of 64 frames of 128 × 128 tokens.
constexpr grid even_grid{.frames = 64, .height = 128, .width = 128, .split_h = 8, .split_w = 8};
/// Nearly as many, in frames whose sides 8 does not divide.
constexpr grid odd_grid{.frames = 97, .height = 90, .width = 119, .split_h = 8, .split_w = 8};

/// Hilbert's curve over 1024 × 1024 tokens: neighbours on the curve are neighbours in the picture. Its runs are short
/// and point every way.
struct hilbert {
  index_t from(index_t d) const {
    index_t x = 0, y = 0;
    for (index_t s = 1; s < 1024; s *= 2, d /= 4) {
      const index_t right = d / 2 % 2, down = (d ^ right) % 2;
      turn(s, right, down, x, y);
      x += s * right;
      y += s * down;
    }
    return y * 1024 + x;
  }
  index_t to(index_t token) const {
    index_t x = token % 1024, y = token / 1024, d = 0;
    for (index_t s = 512; s > 0; s /= 2) {
      const index_t right = x / s % 2, down = y / s % 2;
      d += s * s * ((3 * right) ^ down);
      turn(1024, right, down, x, y);
    }
    return d;
  }
  bool operator==(const hilbert&) const = default;

 private:
  static void turn(index_t s, index_t right, index_t down, index_t& x, index_t& y) {
    if (down == 1) return;
    if (right == 1) {
      x = s - 1 - x;
      y = s - 1 - y;
    }
    std::swap(x, y);
  }
};

template <class From, class To>
void plan(benchmark::State& state, const From& from, const To& to) {
  index_t bytes = 0, stretches = 0;
  const int members[] = {0, 21, 42, 63};
  std::size_t turn = 0;
  for (auto _ : state) {
    const route way = route::between(
        members[turn++ % 4], ranks, [&](int r) { return holding_of(from, r); },
        [&](int r) { return holding_of(to, r); });
    bytes = std::max(bytes, way.plan_bytes());
    index_t n = static_cast<index_t>(way.own().stretches.size());
    for (const auto* legs : {&way.outgoing(), &way.incoming()})
      for (const leg& l : *legs) n += static_cast<index_t>(l.stretches.size());
    stretches = std::max(stretches, n);
    benchmark::DoNotOptimize(way);
  }
  state.counters["plan_bytes"] = static_cast<double>(bytes);
  state.counters["stretches"] = static_cast<double>(stretches);
}

const bool registered = [] {
  const auto add = [](const std::string& name, const auto& from, const auto& to) {
    benchmark::RegisterBenchmark(("plan/" + name).c_str(), [=](benchmark::State& s) {
      plan(s, from, to);
    })->Unit(benchmark::kMillisecond);
  };
  const auto pairs = [&](const std::string& suffix, const auto& tiles) {
    const index_t n = tiles.token_count();
    const striped cards{.tokens = n, .ranks = ranks};
    const zigzag folded{.tokens = n, .ranks = ranks};
    const grid flat{.frames = tiles.frames, .height = tiles.height, .width = tiles.width, .split_h = 1, .split_w = 64};
    add("striped_to_striped16" + suffix, cards, striped{.tokens = n, .ranks = ranks, .granule = 16});
    add("striped16_to_striped" + suffix, striped{.tokens = n, .ranks = ranks, .granule = 16}, cards);
    add("striped_to_zigzag" + suffix, cards, folded);
    add("zigzag_to_striped" + suffix, folded, cards);
    add("striped_to_grid" + suffix, cards, tiles);
    add("grid_to_striped" + suffix, tiles, cards);
    add("zigzag_to_grid" + suffix, folded, tiles);
    add("grid_to_zigzag" + suffix, tiles, folded);
    add("grid_to_grid1x64" + suffix, tiles, flat);
    add("zigzag_to_zigzag7" + suffix, folded, zigzag{.tokens = n, .ranks = ranks, .granule = 7});
    add("striped7_to_grid" + suffix, striped{.tokens = n, .ranks = ranks, .granule = 7}, tiles);
    add("grid_to_striped7" + suffix, tiles, striped{.tokens = n, .ranks = ranks, .granule = 7});
  };
  const reordered curve{hilbert{}, contiguous{.tokens = tokens, .ranks = ranks}};
  add("hilbert_to_zigzag", curve, zigzag{.tokens = tokens, .ranks = ranks});
  add("zigzag_to_hilbert", zigzag{.tokens = tokens, .ranks = ranks}, curve);
  add("hilbert_to_grid", curve, grid{.frames = 1, .height = 1024, .width = 1024, .split_h = 8, .split_w = 8});
  add("hilbert_to_striped", curve, striped{.tokens = tokens, .ranks = ranks});
  add("striped_to_hilbert", striped{.tokens = tokens, .ranks = ranks}, curve);
  add("hilbert_to_hilbert_striped", curve,
      reordered{hilbert{}, striped{.tokens = tokens, .ranks = ranks, .granule = 64}});
  pairs("", even_grid);
  pairs("_uneven", odd_grid);
  return true;
}();

}  // namespace
