// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention of one sequence over four thread ranks, per mesh, schedule and mask: GFLOP/s of all ranks together
// (4·pairs·D·heads forward, 10·pairs·D·heads backward), that over their processor time as percent of one core's
// multiply-add peak, GB/s sent by all ranks together, the bytes sent over those wanted (1: nothing too much), and how
// unevenly the ranks' processor time was spread (max/mean).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <bench/support/peak.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>
#include <tests/support/attention.hpp>

namespace {

using namespace seqpar;
using test::any_layout, test::any_mask, test::problem;

enum class pass { forward, backward };

constexpr index_t heads = 8, kv_heads = 4, dim = 64;
constexpr int ranks = 4, runs = 3;

struct figures {
  double seconds = 0, busy = 0, imbalance = 0, sent = 0;  ///< busy: processor time of all ranks
};

/// A few runs of one pass on all ranks.
figures attend(const problem& p, pass which) {
  const bool back = which == pass::backward;
  std::vector<double> took(ranks), busy(ranks), sent(ranks);
  run_ranks(ranks, [&](threads::transport engine) {
    flight_record record(engine.rank(), ranks, 1);
    const mesh team(traced<threads::transport>(engine, record), p.team);
    auto plan = plan_attention<float>(team, p.q_layout, p.mask, p.shape, p.options);
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
    const auto before = record.bytes(direction::send);
    const auto start = std::chrono::steady_clock::now();
    const double cpu = bench::thread_seconds();
    for (int i = 0; i < runs; ++i) run();
    const auto me = static_cast<std::size_t>(engine.rank());
    busy[me] = (bench::thread_seconds() - cpu) / runs;
    took[me] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
    sent[me] = static_cast<double>(record.bytes(direction::send) - before) / runs;
  });
  const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  return {*std::max_element(took.begin(), took.end()), sum(busy),
          *std::max_element(busy.begin(), busy.end()) * ranks / sum(busy), sum(sent)};
}

/// How many pairs of a query and a key the mask allows.
double pairs_of(const any_mask& mask, index_t tokens) {
  const any_mask m = mask.bound(tokens, tokens);
  index_t n = 0;
  for (index_t q = 0; q < tokens; ++q) {
    const interval_pair keys = *m.try_key_intervals(q);  // may reach beyond the sequence
    n += intersection(keys.first, {0, tokens}).size() + intersection(keys.second, {0, tokens}).size();
  }
  return static_cast<double>(n);
}

void measure(benchmark::State& state, const problem& p, pass which) {
  const bool back = which == pass::backward;
  figures best;
  double busy = std::numeric_limits<double>::infinity(), peak = 0;  // the best of each, in turns
  for (auto _ : state) {
    const figures f = attend(p, which);
    state.SetIterationTime(f.seconds);
    busy = std::min(busy, f.busy);
    peak = std::max(peak, bench::measured_peak());
    if (best.seconds == 0 || f.seconds < best.seconds) best = f;
  }
  double wanted = 0;
  for (const test::byte_count& n : test::wanted_bytes<float>(p))
    wanted += static_cast<double>(back ? n.backward : n.forward);
  const double flops = (back ? 10 : 4) * pairs_of(p.mask, p.q_layout.token_count()) * static_cast<double>(dim * heads);
  state.counters["GFLOP/s"] = flops / best.seconds / 1e9;
  state.counters["percent_of_peak"] = 100 * flops / busy / peak;
  state.counters["GB/s"] = best.sent / best.seconds / 1e9;
  state.counters["sent_MB"] = best.sent / 1e6;
  state.counters["sent_over_wanted"] = wanted > 0 ? best.sent / wanted : 1;
  state.counters["imbalance"] = best.imbalance;
}

void register_all(index_t tokens) {
  static const std::vector<index_t> bounds =  // in a static: masks only view them
      pack({tokens / 2, tokens / 16, tokens / 4, tokens / 8, tokens / 16});
  struct way {
    const char* name;
    mesh_shape team;
    attention_options options{};
  };
  const way ways[] = {
      {"ring4/direct", {.ring = 4, .all_to_all = 1}},
      {"mesh2x2/direct", {.ring = 2, .all_to_all = 2}},
      {"all_to_all4", {.ring = 1, .all_to_all = 4}},
      {"ring4/pass_along", {.ring = 4, .all_to_all = 1}, {.schedule = schedule::pass_along}},
      {"ring4/all_gather", {.ring = 4, .all_to_all = 1}, {.schedule = schedule::all_gather}},
      {"ring4/double_ring2", {.ring = 4, .all_to_all = 1}, {.schedule = schedule::double_ring, .window = 2}},
      {"mesh2x2/pass_along", {.ring = 2, .all_to_all = 2}, {.schedule = schedule::pass_along}},
      {"mesh2x2_ring_inside/direct", {.ring = 2, .all_to_all = 2, .inside = axis::ring}},
  };
  const auto balanced = [=](mesh_shape t) {
    return any_layout(nested<zigzag, contiguous>{
        {.tokens = tokens, .ranks = t.ring}, {.tokens = tokens, .ranks = t.all_to_all}, t.inside});
  };
  const auto blocks = [=](mesh_shape) { return any_layout(contiguous{.tokens = tokens, .ranks = ranks}); };
  const auto copies = [=](mesh_shape) {
    return any_layout(paired<zigzag>{{.tokens = tokens / 2, .ranks = ranks, .granule = 16}});
  };
  const auto add = [](const std::string& mask_name, const any_mask& mask, const any_layout& layout, const way& w) {
    problem p{.q_layout = layout,
              .kv_layout = layout,
              .mask = mask,
              .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim},
              .team = w.team,
              .options = w.options};
    p.options.passes = forward_backward;
    for (const pass which : {pass::forward, pass::backward})
      benchmark::RegisterBenchmark(
          (mask_name + "/" + w.name + (which == pass::forward ? "/forward" : "/backward")).c_str(),
          [=](benchmark::State& s) { measure(s, p, which); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
  };
  for (const way& w : ways) add("causal", any_mask(causal{}), balanced(w.team), w);
  for (const way& w : {ways[0], ways[1], ways[2]}) {
    add("full", any_mask(full{}), blocks(w.team), w);
    add("window256", any_mask(window{.left = 255, .right = 0}), blocks(w.team), w);
    add("documents", any_mask(seqpar::within{documents{bounds}, causal{}}), balanced(w.team), w);
    add("teacher_forcing", any_mask(teacher_forcing{.clean = tokens / 2, .block = 16}), copies(w.team), w);
  }
  // an eighth of the tokens asks: queries are fewer bytes than keys
  const any_layout turns(striped{.tokens = tokens, .ranks = ranks, .granule = tokens / 64});
  for (const auto& [name, moving] : {std::pair{"ring4/keys", side::keys}, {"ring4/queries", side::queries}})
    add("eighth_asks", any_mask(valid{.queries = tokens / 8, .keys = tokens}), turns,
        {name, {.ring = 4, .all_to_all = 1}, {.moves = {moving, moving}}});
}

}  // namespace

/// attention_bench [options of Google Benchmark] [tokens]: a multiple of 128.
int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  register_all(argc > 1 ? std::strtol(argv[1], nullptr, 10) : 4096);
  benchmark::RunSpecifiedBenchmarks();
}
