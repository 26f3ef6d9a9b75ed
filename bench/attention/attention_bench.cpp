// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Causal attention of one sequence over four thread ranks, per mesh and schedule: GFLOP/s of all ranks together
// (4·pairs·D·heads forward, 10·pairs·D·heads backward) and the bytes sent over the bytes wanted (1: nothing too much).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <tests/support/attention.hpp>

namespace {

using namespace seqpar;

enum class pass { forward, backward };

constexpr index_t tokens = 2048, heads = 8, kv_heads = 4, dim = 64;
constexpr int ranks = 4, runs = 3;

void attend(benchmark::State& state, mesh_shape shape, schedule order, pass which) {
  const bool back = which == pass::backward;
  const test::any_layout layout(nested<zigzag, contiguous>{
      {.tokens = tokens, .ranks = shape.ring}, {.tokens = tokens, .ranks = shape.all_to_all}, shape.inside});
  const test::problem p{.q_layout = layout,
                        .kv_layout = layout,
                        .mask = test::any_mask(causal{}),
                        .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim},
                        .team = shape,
                        .options = {.passes = forward_backward, .schedule = order}};
  index_t wanted = 0;
  for (const test::byte_count& n : test::wanted_bytes<float>(p)) wanted += back ? n.backward : n.forward;

  double best = 0;
  std::vector<index_t> sent(ranks);
  for (auto _ : state) {
    std::vector<double> took(ranks);
    run_ranks(ranks, [&](threads::transport engine) {
      flight_record record(engine.rank(), ranks, 1);
      const mesh team(traced<threads::transport>(engine, record), shape);
      auto plan = plan_attention<float>(team, layout, causal{}, p.shape, p.options);
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const index_t rows = plan.q_rows();
      std::vector<float> q = test::filled(test::tag::q, rows * heads * dim), dout = q, out(q.size()), dq(q.size());
      std::vector<float> k = test::filled(test::tag::k, rows * kv_heads * dim), v = k, dk(k.size()), dv(k.size());
      std::vector<float> lse(static_cast<std::size_t>(rows * heads));
      const auto wide = [&](auto& x) { return dense_view(x.data(), {1, rows, heads, dim}); };
      const auto narrow = [&](auto& x) { return dense_view(x.data(), {1, rows, kv_heads, dim}); };
      const auto numbers = dense_heads(lse.data(), {1, heads, rows});
      const auto forward = [&] {
        check(plan.forward({.q = wide(q), .k = narrow(k), .v = narrow(v), .out = wide(out), .lse = numbers}, memory,
                           on_host{}));
      };
      const auto run = [&] {
        if (!back) return forward();
        check(plan.backward({.q = wide(q),
                             .k = narrow(k),
                             .v = narrow(v),
                             .out = wide(out),
                             .lse = numbers,
                             .dout = wide(dout),
                             .dq = wide(dq),
                             .dk = narrow(dk),
                             .dv = narrow(dv)},
                            memory, on_host{}));
      };
      forward();
      const index_t before = record.bytes(direction::send);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < runs; ++i) run();
      const auto me = static_cast<std::size_t>(engine.rank());
      took[me] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
      sent[me] = (record.bytes(direction::send) - before) / runs;
    });
    const double slowest = *std::max_element(took.begin(), took.end());
    state.SetIterationTime(slowest);
    best = best == 0 ? slowest : std::min(best, slowest);
  }
  index_t total = 0;
  for (index_t bytes : sent) total += bytes;
  const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  state.counters["GFLOP/s"] = (back ? 10 : 4) * pairs * static_cast<double>(dim * heads) / best / 1e9;
  state.counters["sent_MB"] = static_cast<double>(total) / 1e6;
  state.counters["sent_over_wanted"] = static_cast<double>(total) / static_cast<double>(wanted);
}

const bool registered = [] {
  const auto add = [](const std::string& name, mesh_shape shape, schedule order) {
    for (pass which : {pass::forward, pass::backward})
      benchmark::RegisterBenchmark((name + (which == pass::forward ? "/forward" : "/backward")).c_str(),
                                   [=](benchmark::State& s) { attend(s, shape, order, which); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
  };
  add("ring4/direct", {.ring = 4, .all_to_all = 1}, schedule::direct);
  add("ring4/pass_along", {.ring = 4, .all_to_all = 1}, schedule::pass_along);
  add("all_to_all4", {.ring = 1, .all_to_all = 4}, schedule::direct);
  add("mesh2x2/direct", {.ring = 2, .all_to_all = 2}, schedule::direct);
  add("mesh2x2/pass_along", {.ring = 2, .all_to_all = 2}, schedule::pass_along);
  add("mesh2x2_ring_inside/direct", {.ring = 2, .all_to_all = 2, .inside = axis::ring}, schedule::direct);
  return true;
}();

}  // namespace
