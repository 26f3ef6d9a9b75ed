// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a ring costs beside its arithmetic: the processor time of eight ranks together over that of one rank, for the
// same attention. Each rank's best of several, in turns; waiting costs nothing, so it does not matter how many cores
// there are.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <bench/support/peak.hpp>
#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/transport/threads.hpp>
#include <tests/support/recipe.hpp>

namespace {

using namespace seqpar;
using bench::thread_seconds;

constexpr double never = std::numeric_limits<double>::infinity();
constexpr int turns = 4;

struct seconds {
  double forward = never, backward = never;
};

/// Keeps in best[r] the least that rank r spent on each pass.
template <class Mask>
void measure(index_t tokens, index_t dim, const Mask& mask, std::vector<seconds>& best) {
  const int ranks = static_cast<int>(best.size());
  run_ranks(ranks, [&](threads::transport engine) {
    auto plan = plan_attention<float>(ring(engine), zigzag{.tokens = tokens, .ranks = ranks}, mask,
                                      {.heads = 1, .kv_heads = 1, .head_dim = dim}, {.passes = forward_backward});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const index_t rows = plan.q_rows();
    std::vector<float> q = test::filled(test::tag::q, rows * dim), k = q, v = q, dout = q, out(q.size()), dq = out,
                       dk = out, dv = out, lse(static_cast<std::size_t>(rows));
    const auto rows_of = [&](auto& x) { return dense_view(x.data(), {1, rows, 1, dim}); };
    const auto numbers = dense_heads(lse.data(), {1, 1, rows});
    seconds& mine = best[static_cast<std::size_t>(engine.rank())];
    for (int turn = 0; turn < turns; ++turn) {
      const double start = thread_seconds();
      check(plan.forward({.q = rows_of(q), .k = rows_of(k), .v = rows_of(v), .out = rows_of(out), .lse = numbers},
                         memory, on_host{}));
      const double middle = thread_seconds();
      check(plan.backward({.q = rows_of(q),
                           .k = rows_of(k),
                           .v = rows_of(v),
                           .out = rows_of(out),
                           .lse = numbers,
                           .dout = rows_of(dout),
                           .dq = rows_of(dq),
                           .dk = rows_of(dk),
                           .dv = rows_of(dv)},
                          memory, on_host{}));
      mine = {std::min(mine.forward, middle - start), std::min(mine.backward, thread_seconds() - middle)};
    }
  });
}

template <class Mask>
void ring_of_8(benchmark::State& state, index_t tokens, index_t dim, const Mask& mask) {
  std::vector<seconds> one(1), eight(8);
  for (auto _ : state) {
    measure(tokens, dim, mask, one);
    measure(tokens, dim, mask, eight);
  }
  seconds all{0, 0};
  for (const seconds& s : eight) all = {all.forward + s.forward, all.backward + s.backward};
  state.counters["forward_over_one_rank"] = all.forward / one[0].forward;
  state.counters["backward_over_one_rank"] = all.backward / one[0].backward;
  state.counters["one_rank_forward_ms"] = 1e3 * one[0].forward;
  state.counters["one_rank_backward_ms"] = 1e3 * one[0].backward;
}

}  // namespace

namespace seqpar::bench {

void add_ring(index_t tokens) {
  const auto add = [&](const char* name, const auto& mask, index_t dim) {
    benchmark::RegisterBenchmark(name, [=](benchmark::State& s) { ring_of_8(s, tokens, dim, mask); })
        ->ArgNames({"tokens", "dim"})
        ->Args({tokens, dim})
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime();
  };
  for (index_t dim : {64, 128}) {
    add("ring_of_8/full", full{}, dim);
    add("ring_of_8/causal", causal{}, dim);
  }
}

}  // namespace seqpar::bench
