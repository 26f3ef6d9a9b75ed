// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Raw frames for a causal encoder: the published windows, how wide a halo must be, and the sum onto the root.
#include <doctest/doctest.h>

#include <seqpar/exchange/root_windows.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <tests/exchange/windows.hpp>

using namespace window_test;

namespace {

constexpr index_t latents = 96, ratio = 4;

interval shard(index_t n, int ranks, int r) {
  const contiguous layout{.tokens = n, .ranks = ranks};
  const index_t first = layout.global_of(r, 0);
  return {first, first + layout.count_of(r)};
}

/// A causal encoder: latent 0 of frame 0, latent t ≥ 1 of frames 4(t−1)+1 … 4t, each seeing the 112 frames (28 latents)
/// up to its last. Where those reach its first frame, which it treats in a way of its own, it tells.
std::vector<double> encode(const std::vector<double>& frames) {
  const auto n = static_cast<index_t>(frames.size());
  std::vector<double> out;
  for (index_t t = 0; n > 0 && t <= (n - 1) / ratio; ++t) {
    double sum = 0;
    for (index_t back = 0; back < 112; ++back) {
      const index_t i = ratio * t - back;
      sum += (1.0 + static_cast<double>(back % 7)) * (i > 0 ? frames[static_cast<std::size_t>(i)] : 2 * frames[0] + 1);
    }
    out.push_back(sum);
  }
  return out;
}

std::vector<double> clip() {
  std::vector<double> x;
  for (index_t i = 0; i < 381; ++i) x.push_back(static_cast<double>((i * 37 + i * i % 11) % 101));
  return x;
}

/// The latents that differ from those of one rank, when `ranks` encode their windows.
std::vector<index_t> wrong_latents(int ranks, index_t halo) {
  const causal_windows windows{.latents = latents, .ratio = ratio, .halo = halo};
  const contiguous layout{.tokens = latents, .ranks = ranks};
  const std::vector<double> whole = clip(), expected = encode(whole);
  std::vector<std::vector<index_t>> wrong(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](threads::transport world) {
    const int me = world.rank();
    auto plan = plan_root_windows(ring(world), layout, windows, ranks - 1, {.row_bytes = sizeof(double)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<double> mine(static_cast<std::size_t>(plan.wanted_rows()));
    check(plan.forward(me == ranks - 1 ? whole.data() : nullptr, mine.data(), memory, on_host{}));
    // [snippet]
    const interval keep = shard(latents, ranks, me);
    const std::vector<double> encoded = encode(mine);
    const index_t drop = windows.of(keep).drop;  // encoded[drop + i] is latent keep.lo + i
    // [/snippet]
    if (static_cast<index_t>(encoded.size()) != drop + keep.size()) raise(error(errc::invalid_argument, "the drop"));
    for (index_t i = 0; i < keep.size(); ++i)
      if (encoded[static_cast<std::size_t>(drop + i)] != expected[static_cast<std::size_t>(keep.lo + i)])
        wrong[static_cast<std::size_t>(me)].push_back(keep.lo + i);
  });
  std::vector<index_t> all;
  for (const auto& list : wrong) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

TEST_CASE("windows of 96 latents over 2, 4 and 8 ranks are the published ones") {
  const causal_windows windows{.latents = latents, .ratio = ratio, .halo = 28};
  CHECK(windows.frames() == 381);
  const std::vector<std::vector<root_window>> published{
      {{{0, 189}, 0}, {{76, 381}, 29}},
      {{{0, 93}, 0}, {{0, 189}, 24}, {{76, 285}, 29}, {{172, 381}, 29}},
      {{{0, 45}, 0},
       {{0, 93}, 12},
       {{0, 141}, 24},
       {{28, 189}, 29},
       {{76, 237}, 29},
       {{124, 285}, 29},
       {{172, 333}, 29},
       {{220, 381}, 29}}};
  const index_t totals[] = {494, 700, 1084};
  for (std::size_t k = 0; k < 3; ++k) {
    const int ranks = 2 << k;
    index_t total = 0;
    for (int r = 0; r < ranks; ++r) {
      const root_window w = windows.of(shard(latents, ranks, r));
      CHECK(w == published[k][static_cast<std::size_t>(r)]);
      total += w.frames.size();
    }
    CHECK(total == totals[k]);
  }
  CHECK(windows.of({5, 5}) == root_window{});
  CHECK(windows.of({28, 40}) == root_window{{0, 157}, 28});
  CHECK(windows.of({29, 40}) == root_window{{0, 157}, 29});
  CHECK(causal_windows{.latents = 0, .ratio = 4, .halo = 28}.frames() == 0);
  CHECK(causal_windows{.latents = 5, .ratio = 1, .halo = 2}.of({4, 5}) == root_window{{1, 5}, 3});
}

TEST_CASE("28 and 27 latents of halo give every rank the latents of one rank; 26 differ in the first of a shard") {
  for (int ranks : {1, 2, 4, 8}) {
    CHECK(wrong_latents(ranks, 28).empty());
    CHECK(wrong_latents(ranks, 27).empty());
    std::vector<index_t> first;
    for (int r = 1; r < ranks; ++r)
      if (const index_t lo = shard(latents, ranks, r).lo; lo > 26) first.push_back(lo);
    CHECK(wrong_latents(ranks, 26) == first);
  }
}

TEST_CASE("windows from a root move what others want of it, each once, and the adjoint sums onto the root") {
  std::minstd_rand draw(13);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int turn = 0; turn < 80; ++turn) {
    const int ranks = 1 + turn % 8, root = static_cast<int>(below(ranks));
    const index_t frames = below(30);
    std::vector<interval> windows;
    rows_of_ranks owned(static_cast<std::size_t>(ranks)), wanted;
    for (index_t i = 0; i < frames; ++i) owned[static_cast<std::size_t>(root)].push_back(i);
    for (int r = 0; r < ranks; ++r) {
      const index_t lo = below(frames + 1);
      windows.push_back({lo, lo + below(frames + 1 - lo)});
      auto& list = wanted.emplace_back();
      for (index_t i = lo; i < windows.back().hi; ++i) list.push_back(i);
    }
    const arrangement a{.batch = 1 + below(2), .columns = 1 + below(2), .dim = 1 + below(3)};
    CAPTURE(turn);
    CHECK(broken(
              ranks, a, owned, wanted,
              [&](const auto& team) {
                return plan_root_windows(
                    team, frames, [&](int r) { return windows[static_cast<std::size_t>(r)]; }, root, a.options());
              },
              [&](const auto& p) {
                return std::pair{dense_spots(p.own_rows(), a), dense_spots(p.wanted_rows(), a)};
              }) == "");
  }
}

TEST_CASE("windows from a root that make no sense are refused alike on every rank") {
  const causal_windows windows{.latents = 12, .ratio = 4, .halo = 2};
  const contiguous layout{.tokens = 12, .ranks = 3};
  const auto says = [&](const std::string& part, auto&& plan) {
    const std::string text = refusal(3, plan);
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto plan = [](auto l, causal_windows w, int root, exchange_options o = {.row_bytes = 4}) {
    return [=](const auto& team) { return try_plan_root_windows(team, l, w, root, o); };
  };
  says("root 3 is not one of 3", plan(layout, windows, 3));
  says("root -1 is not one of 3", plan(layout, windows, -1));
  says("halo is negative", plan(layout, {.latents = 12, .ratio = 4, .halo = -1}, 0));
  says("ratio is below 1", plan(layout, {.latents = 12, .ratio = 0, .halo = 1}, 0));
  says("give both the same", plan(layout, {.latents = 13, .ratio = 4, .halo = 1}, 0));
  says("not one run of neighbours", plan(zigzag{.tokens = 12, .ranks = 3}, windows, 0));
  says("columns must divide", plan(layout, windows, 0, {.row_bytes = 10, .columns = 3}));
  says("beyond the 10 frames", [](const auto& team) {
    return try_plan_root_windows(team, 10, [](int r) { return interval{r, 9 + r}; }, 0, {.row_bytes = 4});
  });
}
