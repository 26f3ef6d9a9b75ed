// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much of one core's fp32 multiply-add peak, measured in the same run, do
// the host kernels reach? Operations: 4·pairs·D forward, 10·pairs·D backward,
// pairs = n² (full) or n(n+1)/2 (causal).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <bench/support/peak.hpp>
#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <seqpar/kernel/tables.hpp>
#include <tests/support/recipe.hpp>

using namespace seqpar;

namespace {

/// n tokens with every buffer that a call needs; several heads lie side by
/// side, so their rows are far apart.
template <class Kernel, class T>
struct problem {
  problem(index_t n, index_t heads, index_t dim, bool causal)
      : q(test::filled<T>(test::tag::q, n * heads * dim)),
        k(test::filled<T>(test::tag::k, n * heads * dim)),
        v(test::filled<T>(test::tag::v, n * heads * dim)),
        dout(test::filled<T>(test::tag::dout, n * heads * dim)),
        out(q.size()),
        lse(static_cast<std::size_t>(heads * n)),
        delta(lse.size(), 0.25f),
        dq(q.size()),
        dk(q.size()),
        dv(q.size()),
        shape{1, n, heads, dim},
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
    pairs = static_cast<double>(heads * n) * static_cast<double>(causal ? n + 1 : 2 * n) / 2;
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
    call.lse = dense_heads(lse.data(), {1, shape[2], shape[1]});
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
    call.lse = dense_heads<const float>(lse.data(), {1, shape[2], shape[1]});
    call.delta = dense_heads<const float>(delta.data(), {1, shape[2], shape[1]});
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
  const index_t dim = state.range(2);
  problem<Kernel, T> p(state.range(0), state.range(1), dim, state.range(3) != 0);
  p.forward();
  // In turns and the best of each, so that a slower clock or a busy neighbour
  // is not taken for the kernel.
  double best = std::numeric_limits<double>::infinity(), peak = 0;
  for (auto _ : state) {
    const double took = bench::seconds_of([&] { Pass == pass::forward ? p.forward() : p.backward(); });
    best = std::min(best, took);
    peak = std::max(peak, bench::measured_peak());
    state.SetIterationTime(took);
  }
  const double rate = (Pass == pass::forward ? 4 : 10) * p.pairs * static_cast<double>(dim) / best;
  state.counters["GFLOP/s"] = rate / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.counters["percent_of_peak"] = 100 * rate / peak;
}

template <class Kernel, class T>
void add(const std::string& kernel, const std::string& type, index_t tokens, index_t heads, int dim, int causal) {
  const auto one = [&](const char* pass, void (*f)(benchmark::State&)) {
    benchmark::RegisterBenchmark((kernel + pass + type).c_str(), f)
        ->ArgNames({"tokens", "heads", "dim", "causal"})
        ->Args({tokens, heads, dim, causal})
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime();
  };
  one("/forward/", attend<Kernel, T, pass::forward>);
  one("/backward/", attend<Kernel, T, pass::backward>);
}

template <class T>
void add_fast(const std::string& type, index_t tokens) {
  for (int dim : {64, 128})
    for (int causal : {0, 1}) add<host_fast, T>("fast", type, tokens, 1, dim, causal);
  add<host_fast, T>("fast", type, tokens / 8, 32, 128, 0);
}

}  // namespace

namespace seqpar::bench {
void add_ring(index_t tokens);  // ring_bench.cpp
}

/// kernel_bench [tokens…], by default 4096 and 16384.
int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<index_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtol(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {4096, 16384};
  for (const index_t tokens : sizes) {
    add_fast<float>("float", tokens);
    add_fast<bfloat16>("bfloat16", tokens);
    add_fast<float16>("float16", tokens);
    bench::add_ring(tokens);
  }
  add<host_reference<>, float>("reference", "float", 256, 1, 64, 0);
  benchmark::RunSpecifiedBenchmarks();
}
