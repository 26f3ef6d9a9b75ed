// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What it costs to weigh a candidate and to solve for a layout: for 1000 documents on 8 ranks, and for ten million
// tokens on 1024.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include <seqpar/cost/balanced.hpp>
#include <seqpar/cost/weigh.hpp>
#include <seqpar/cost/work.hpp>
#include <seqpar/layout/striped.hpp>

namespace {

using namespace seqpar;

constexpr attention_shape grouped{.heads = 64, .kv_heads = 8, .head_dim = 128};
constexpr attention_shape ungrouped{.heads = 64, .kv_heads = 64, .head_dim = 128};  // queries travel: they are fewer

std::vector<index_t> thousand_documents() {
  std::vector<index_t> lengths;
  std::uint32_t state = 1;
  for (int i = 0; i < 1000; ++i) {
    state = state * 1664525u + 1013904223u;
    lengths.push_back(100 + state % 2000);
  }
  return pack(lengths);
}

template <class Mask>
void weigh_one(benchmark::State& state, const mesh_shape& team, const dealt& layout, const Mask& mask, int per_node,
               const attention_shape& shape = grouped) {
  const machine m{.flops = 4e14, .inside = {5e-6, 2e11}, .across = {1e-5, 5e10}, .ranks_per_node = per_node};
  const mask_pieces pieces(mask, layout.token_count(), layout.token_count());
  for (auto _ : state)
    benchmark::DoNotOptimize(
        weigh<bfloat16>("", team, layout, mask, shape, m, {.passes = forward_backward}, pieces).least);
  state.counters["pieces"] = static_cast<double>(pieces.pieces().size());
}

void thousand_on(benchmark::State& state, const char* name, int ranks, int per_node, const attention_shape& shape) {
  const std::vector<index_t> bounds = thousand_documents();
  const within mask{documents{bounds}, causal{}};
  const index_t n = bounds.back();
  const std::string which = name;
  const dealt layout = which == "contiguous" ? dealt::from(contiguous{.tokens = n, .ranks = ranks})
                       : which == "zigzag"   ? dealt::from(zigzag{.tokens = n, .ranks = ranks})
                       : which == "striped"  ? dealt::from(striped{.tokens = n, .ranks = ranks})
                                             : balanced(mask, {.tokens = n, .ranks = ranks, .granule = n / 512});
  weigh_one(state, {ranks, 1}, layout, mask, per_node, shape);
}
BENCHMARK_CAPTURE(thousand_on, contiguous, "contiguous", 8, 0, grouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, zigzag, "zigzag", 8, 0, grouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, striped, "striped", 8, 0, grouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, balanced, "balanced", 8, 0, grouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, zigzag_two_nodes, "zigzag", 8, 4, grouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, zigzag_queries_travel, "zigzag", 8, 0, ungrouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, striped_queries_travel, "striped", 8, 0, ungrouped)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thousand_on, striped_on_7_queries_travel, "striped", 7, 0, ungrouped)->Unit(benchmark::kMicrosecond);

void pieces_of_documents(benchmark::State& state) {
  const std::vector<index_t> bounds = thousand_documents();
  for (auto _ : state)
    benchmark::DoNotOptimize(mask_pieces(within{documents{bounds}, causal{}}, bounds.back(), bounds.back()).pieces());
}
BENCHMARK(pieces_of_documents)->Unit(benchmark::kMicrosecond);

void solver_on_documents(benchmark::State& state) {
  const std::vector<index_t> bounds = thousand_documents();
  for (auto _ : state)
    benchmark::DoNotOptimize(balanced(within{documents{bounds}, causal{}},
                                      {.tokens = bounds.back(), .ranks = 8, .granule = bounds.back() / 512})
                                 .token_count());
}
BENCHMARK(solver_on_documents)->Unit(benchmark::kMicrosecond);

template <class Mask>
void solver_on_1024(benchmark::State& state, const Mask& mask, index_t tokens) {
  for (auto _ : state)
    benchmark::DoNotOptimize(
        balanced(mask, {.tokens = tokens, .ranks = 1024, .granule = tokens / (1024 * 64)}).token_count());
}
void solver_causal_on_1024(benchmark::State& state) {
  solver_on_1024(state, causal{}, 10'000'000);
}
BENCHMARK(solver_causal_on_1024)->Unit(benchmark::kMillisecond);

void solver_documents_on_1024(benchmark::State& state) {
  std::vector<index_t> bounds = thousand_documents();
  for (index_t& b : bounds) b *= 10;
  solver_on_1024(state, within{documents{bounds}, causal{}}, bounds.back());
}
BENCHMARK(solver_documents_on_1024)->Unit(benchmark::kMillisecond);

void ten_million_on_1024(benchmark::State& state) {
  weigh_one(state, {1024, 1}, dealt::from(zigzag{.tokens = 10'000'000, .ranks = 1024}), causal{}, 8);
}
BENCHMARK(ten_million_on_1024)->Unit(benchmark::kMillisecond);

void work_matrix_on_1024(benchmark::State& state) {
  const mask_pieces pieces(causal{}, 10'000'000, 10'000'000);
  const zigzag layout{.tokens = 10'000'000, .ranks = 1024};
  for (auto _ : state) {
    const needs n({1024, 1}, layout, layout, causal{}, grouped, pieces);
    benchmark::DoNotOptimize(work(n, pieces).total());
  }
}
BENCHMARK(work_matrix_on_1024)->Unit(benchmark::kMillisecond);

}  // namespace
