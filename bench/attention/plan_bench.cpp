// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What it costs to plan attention on one rank, 1 Mi tokens: causal inside documents in zigzag, against the number of
// documents and of ranks; and what asks most of a plan, against the side that moves.
#include <benchmark/benchmark.h>

#include <vector>

#include <seqpar/attention/plan.hpp>
#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/window.hpp>
#include <seqpar/transport/threads.hpp>

namespace {

using namespace seqpar;

/// Lengths from an eighth of the mean to nearly twice as much, in an order that repeats nothing.
std::vector<index_t> bounds_of(index_t tokens, index_t count) {
  std::vector<index_t> bounds{0};
  for (index_t i = 1; i < count; ++i)
    bounds.push_back(bounds.back() + tokens / count * (1 + (i * 7 + i * i * 3) % 15) / 8);
  bounds.push_back(tokens);
  return bounds;
}

void plan(benchmark::State& state) {
  const index_t tokens = index_t{1} << 20, documents_count = state.range(0);
  const int ranks = static_cast<int>(state.range(1));
  const std::vector<index_t> bounds = bounds_of(tokens, documents_count);
  const within mask{documents{bounds}, causal{}};
  const zigzag layout{.tokens = tokens, .ranks = ranks};
  threads::world world({.ranks = ranks});  // nobody runs: a plan asks nobody
  int rank = 0;
  index_t tables = 0;
  for (auto _ : state) {
    const auto p = plan_attention<float>(ring(world.rank(rank)), layout, mask,
                                         {.heads = 8, .kv_heads = 2, .head_dim = 128}, {.passes = forward_backward});
    tables = p.memory().tables;
    rank = (rank + 7) % ranks;
  }
  state.counters["table_bytes"] = static_cast<double>(tables);
}
BENCHMARK(plan)
    ->Name("plan_attention")
    ->ArgNames({"documents", "ranks"})
    ->ArgsProduct({{1, 64, 1024}, {8}})
    ->ArgsProduct({{64}, {2, 64, 512}})
    ->Unit(benchmark::kMicrosecond);

/// Says intervals and nothing else: a plan asks every query.
struct own_causal {
  bool allows(index_t q, index_t k) const { return k <= q; }
  interval_pair key_intervals(index_t q) const { return make_intervals({0, q + 1}); }
};

constexpr index_t keys = 0, cheaper = 1;
template <class Layout, class Mask>
void plan_moving(benchmark::State& state, const Mask& mask) {
  const int ranks = static_cast<int>(state.range(0));
  const side moving = state.range(1) == cheaper ? side::cheaper : side::keys;
  threads::world world({.ranks = ranks});
  for (auto _ : state) {
    const auto p = plan_attention<float>(
        ring(world.rank(ranks / 2)), Layout{.tokens = index_t{1} << 20, .ranks = ranks}, mask,
        {.heads = 8, .kv_heads = 8, .head_dim = 64}, {.passes = forward_backward, .moves = {moving, moving}});
    benchmark::DoNotOptimize(p.memory().tables);
  }
}
void with(benchmark::internal::Benchmark* b) {
  b->ArgNames({"ranks", "cheaper"})->Unit(benchmark::kMillisecond);
}
void plan_own_mask(benchmark::State& state) {
  plan_moving<zigzag>(state, own_causal{});
}
void plan_causal(benchmark::State& state) {
  plan_moving<zigzag>(state, causal{});
}
void plan_striped_window(benchmark::State& state) {
  plan_moving<striped>(state, window{.left = 3, .right = 0});
}
BENCHMARK(plan_own_mask)->Name("plan_attention_own_mask")->Apply(with)->ArgsProduct({{64}, {keys, cheaper}});
BENCHMARK(plan_causal)->Name("plan_attention_causal")->Apply(with)->ArgsProduct({{64}, {keys, cheaper}});
BENCHMARK(plan_striped_window)
    ->Name("plan_attention_striped_window")
    ->Apply(with)
    ->ArgsProduct({{8, 64}, {keys, cheaper}});

}  // namespace
