// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How fast 64 MB change their layout over thread ranks, beside what memcpy moves on as many threads in the same run.
// Every byte that a rank ends with is counted once, whether it travelled or stayed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <seqpar/exchange/reshard.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/transport/threads.hpp>

namespace {

using namespace seqpar;

constexpr index_t total_bytes = index_t{64} << 20, row_bytes = 4096, rows = total_bytes / row_bytes;
using seconds = std::chrono::duration<double>;

/// GB/s of memcpy by `threads` threads, each its own part; the best of a few.
double copied(int threads, std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  double best = 0;
  const std::size_t part = from.size() / static_cast<std::size_t>(threads);
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> crew;
    for (int t = 0; t < threads; ++t)
      crew.emplace_back([&, t] {
        const std::size_t at = static_cast<std::size_t>(t) * part;
        std::memcpy(to.data() + at, from.data() + at, part);
      });
    for (std::thread& t : crew) t.join();
    best = std::max(best,
                    static_cast<double>(total_bytes) / 1e9 / seconds(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

template <class From>
void reshard(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const From from{.tokens = rows, .ranks = ranks};
  const contiguous to{.tokens = rows, .ranks = ranks};
  std::vector<std::byte> in(static_cast<std::size_t>(total_bytes), std::byte{1}), out(in.size());
  const double before = copied(ranks, out, in);
  double best = 0;
  for (auto _ : state) {
    std::vector<double> took(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](threads::transport world) {
      auto plan = plan_reshard(ring(world), from, to, {.row_bytes = row_bytes, .passes = forward_only});
      plan.prepare(memory{}, on_host{});
      const index_t part = total_bytes / ranks * world.rank();
      const auto run = [&] { check(plan.forward(in.data() + part, out.data() + part, memory{}, on_host{})); };
      run();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 4; ++i) run();
      took[static_cast<std::size_t>(world.rank())] = seconds(std::chrono::steady_clock::now() - start).count() / 4;
    });
    const double slowest = *std::max_element(took.begin(), took.end());
    state.SetIterationTime(slowest);
    best = std::max(best, static_cast<double>(total_bytes) / 1e9 / slowest);
  }
  const double copy = std::max(before, copied(ranks, out, in));
  state.counters["GB/s"] = best;
  state.counters["memcpy_GB/s"] = copy;
  state.counters["percent_of_memcpy"] = 100 * best / copy;
}

BENCHMARK(reshard<zigzag>)
    ->Name("reshard/zigzag_to_contiguous")
    ->ArgName("ranks")
    ->Arg(2)
    ->Arg(4)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(reshard<striped>)
    ->Name("reshard/striped_to_contiguous")
    ->ArgName("ranks")
    ->Arg(2)
    ->Arg(4)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
