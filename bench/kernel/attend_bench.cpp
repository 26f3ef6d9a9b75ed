// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much of one core's fp32 multiply-add peak, measured in the same run, do the host kernels reach?
// Operations: 4·pairs·D forward, 10·pairs·D backward, pairs = n² (full) or n(n+1)/2 (causal).
#include <benchmark/benchmark.h>

#include <ctime>
#include <vector>

#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <seqpar/kernel/tables.hpp>
#include <tests/support/recipe.hpp>

namespace {

using namespace seqpar;

/// Independent multiply-adds in registers: nothing but the peak. More sums than latency × units.
[[gnu::noinline]] float multiply_adds(index_t rounds, float factor) {
  using V = vectors<native_vector_bytes>;
  constexpr int sums = V::registers == 32 ? 24 : 12;
  V::floats sum[sums], total{};
#pragma GCC unroll 32
  for (int i = 0; i < sums; ++i) sum[i] = V::splat(static_cast<float>(i));
  const V::floats a = V::splat(factor), b = V::splat(1);
  for (index_t r = 0; r < rounds; ++r)
#pragma GCC unroll 32
    for (int i = 0; i < sums; ++i) sum[i] = sum[i] * a + b;
#pragma GCC unroll 32
  for (int i = 0; i < sums; ++i) total += sum[i];
  return total[0];
}

/// FLOP/s of the best of several short runs, by the time this process had the core.
double measured_peak() {
  using V = vectors<native_vector_bytes>;
  constexpr index_t sums = V::registers == 32 ? 24 : 12;
  index_t rounds = 2000000;
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const std::clock_t start = std::clock();
    benchmark::DoNotOptimize(rounds);
    benchmark::DoNotOptimize(multiply_adds(rounds, 0.5f));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(rounds * sums * V::lanes * 2) / seconds);
  }
  return best;
}

/// One head of n tokens with every buffer that a call needs.
template <class Kernel, class T>
struct problem {
  problem(index_t n, index_t dim, bool causal)
      : q(test::filled<T>(test::tag::q, n * dim)),
        k(test::filled<T>(test::tag::k, n * dim)),
        v(test::filled<T>(test::tag::v, n * dim)),
        dout(test::filled<T>(test::tag::dout, n * dim)),
        out(q.size()),
        lse(static_cast<std::size_t>(n)),
        delta(lse.size(), 0.25f),
        dq(q.size()),
        dk(q.size()),
        dv(q.size()),
        shape{1, n, 1, dim},
        workspace(static_cast<std::size_t>(Kernel::workspace_bytes(dim, dim)) + 64) {
    const std::vector<run> rows{{0, n, 1}};
    queries = lower_intervals(
        rows,
        [&](index_t p) {
          return make_intervals({0, causal ? p + 1 : n});
        },
        n, Kernel::query_tile_rows);
    keys = lower_keys(rows, queries, Kernel::key_tile_rows);
    segment = {dense_view<const T>(k.data(), shape), dense_view<const T>(v.data(), shape), keys.table(),
               dense_view(dk.data(), shape), dense_view(dv.data(), shape)};
    pairs = static_cast<double>(n) * static_cast<double>(causal ? n + 1 : 2 * n) / 2;
  }
  void* space() {
    const auto at = reinterpret_cast<std::uintptr_t>(workspace.data());
    return workspace.data() + (64 - at % 64) % 64;
  }
  void forward() {
    forward_call<T, T> call;
    call.q = dense_view<const T>(q.data(), shape);
    call.queries = queries.table();
    call.segments = {&segment, 1};
    call.scale = 0.125f;
    call.out = dense_view(out.data(), shape);
    call.lse = dense_heads(lse.data(), {1, 1, shape[1]});
    call.workspace = space();
    Kernel{}.forward(call, by_intervals{});
  }
  void backward() {
    backward_call<T> call;
    call.q = dense_view<const T>(q.data(), shape);
    call.dout = dense_view<const T>(dout.data(), shape);
    call.queries = queries.table();
    call.segments = {&segment, 1};
    call.scale = 0.125f;
    call.lse = dense_heads<const float>(lse.data(), {1, 1, shape[1]});
    call.delta = dense_heads<const float>(delta.data(), {1, 1, shape[1]});
    call.dq = dense_view(dq.data(), shape);
    call.workspace = space();
    Kernel{}.backward(call, by_intervals{});
  }

  std::vector<T> q, k, v, dout, out;
  std::vector<float> lse, delta, dq, dk, dv;
  std::array<index_t, 4> shape;
  std::vector<std::byte> workspace;
  query_rows queries;
  key_rows keys;
  kv_segment<T> segment;
  double pairs;
};

enum class pass { forward, backward };

template <class Kernel, class T, pass Pass>
void attend(benchmark::State& state) {
  const index_t n = state.range(0), dim = state.range(1);
  problem<Kernel, T> p(n, dim, state.range(2) != 0);
  p.forward();
  const double before = measured_peak();
  const std::clock_t start = std::clock();
  for (auto _ : state) {
    if constexpr (Pass == pass::forward)
      p.forward();
    else
      p.backward();
    benchmark::ClobberMemory();
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const double peak = std::max(before, measured_peak());
  const double work = (Pass == pass::forward ? 4 : 10) * p.pairs * static_cast<double>(dim);
  const double rate = work * static_cast<double>(state.iterations()) / seconds;
  state.counters["GFLOP/s"] = rate / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.counters["percent_of_peak"] = 100 * rate / peak;
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"tokens", "dim", "causal"})->Unit(benchmark::kMillisecond);
  for (int causal : {0, 1})
    for (int dim : {64, 128}) b->Args({4096, dim, causal});
}
void small(benchmark::internal::Benchmark* b) {
  b->ArgNames({"tokens", "dim", "causal"})->Unit(benchmark::kMillisecond)->Args({512, 64, 0});
}

BENCHMARK(attend<host_fast, float, pass::forward>)->Name("fast/forward/float")->Apply(sizes);
BENCHMARK(attend<host_fast, float, pass::backward>)->Name("fast/backward/float")->Apply(sizes);
BENCHMARK(attend<host_fast, bfloat16, pass::forward>)->Name("fast/forward/bfloat16")->Apply(sizes);
BENCHMARK(attend<host_fast, bfloat16, pass::backward>)->Name("fast/backward/bfloat16")->Apply(sizes);
BENCHMARK(attend<host_reference<>, float, pass::forward>)->Name("reference/forward/float")->Apply(small);
BENCHMARK(attend<host_reference<>, float, pass::backward>)->Name("reference/backward/float")->Apply(small);

}  // namespace
