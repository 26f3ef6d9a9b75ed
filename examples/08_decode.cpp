// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generating token by token over a key/value cache that lies on four ranks. Returns 0 when every step equals one rank.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <seqpar/seqpar.hpp>

namespace {

namespace sp = seqpar;
using sp::index_t;
constexpr index_t heads = 4, kv_heads = 2, dim = 8, prompt = 21, steps = 16;

/// Row `token` of a model's q (which = 0), k (1) or v (2): any numbers will do.
std::vector<float> row_of(int which, index_t token, index_t heads_of_row) {
  std::vector<float> x;
  for (index_t i = 0; i < heads_of_row * dim; ++i)
    x.push_back(static_cast<float>(std::sin(1 + 7 * which + 0.9 * static_cast<double>(token * 5 + i))));
  return x;
}

/// Generates on the ranks of `world`; what every step's attention gives, one row a step.
std::vector<float> generate(const sp::threads::transport& world) {
  std::vector<float> results;
  // [snippet]
  const auto team = sp::ring(world);
  sp::appended cache{
      sp::zigzag{.tokens = prompt, .ranks = team.size()}};  // as the prefill left it; later tokens in turn
  const index_t rows = cache.rows_for(prompt + steps);      // room that every rank needs

  auto plan = sp::plan_decode<float>(
      team, sp::causal{}, {.heads = heads, .kv_heads = kv_heads, .head_dim = dim, .queries = 1, .cache_rows = rows});
  const sp::host_memory memory(plan.memory());
  plan.prepare(memory, sp::on_host{});

  std::vector<float> k(static_cast<std::size_t>(rows * kv_heads * dim)), v = k, out(heads * dim);
  const auto cached = [&](std::vector<float>& x) { return sp::dense_view(x.data(), {1, rows, kv_heads, dim}); };
  for (index_t i = 0; i < cache.count_of(team.index()); ++i) {  // the prompt's keys and values, as prefill dealt them
    const index_t token = cache.global_of(team.index(), i);
    std::ranges::copy(row_of(1, token, kv_heads), cached(k).row(0, i, 0));
    std::ranges::copy(row_of(2, token, kv_heads), cached(v).row(0, i, 0));
  }

  for (index_t step = 0; step < steps; ++step) {
    const index_t token = cache.token_count();
    const std::vector<float> q = row_of(0, token, heads), k_row = row_of(1, token, kv_heads),
                             v_row = row_of(2, token, kv_heads);  // every rank has the new token
    cache = cache.grown(1);
    sp::check(plan.advance(cache, 1, memory));  // once a step, for all layers

    sp::check(plan.append(cache, {.k = sp::dense_view(k_row.data(), {1, 1, kv_heads, dim}),  // its owner keeps it
                                  .v = sp::dense_view(v_row.data(), {1, 1, kv_heads, dim}),
                                  .k_cache = cached(k),
                                  .v_cache = cached(v)}));
    sp::check(plan.forward({.q = sp::dense_view(q.data(), {1, 1, heads, dim}),
                            .k = cached(k),
                            .v = cached(v),
                            .out = sp::dense_view(out.data(), {1, 1, heads, dim})},
                           memory, sp::on_host{}));  // the same bits on every rank
    results.insert(results.end(), out.begin(), out.end());
  }
  // [/snippet]
  return results;
}

std::vector<std::vector<float>> on(int ranks) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
  sp::run_ranks(ranks, [&](const sp::threads::transport& world) {
    all[static_cast<std::size_t>(world.rank())] = generate(world);
  });
  return all;
}

}  // namespace

int main() {
  const std::vector<float> want = on(1)[0];
  double worst = 0;
  for (const std::vector<float>& got : on(4)) {
    if (got.size() != want.size()) return 1;
    for (std::size_t i = 0; i < want.size(); ++i)
      worst = std::fmax(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  std::printf("%d steps on four ranks: within %.1e of one rank\n", static_cast<int>(steps), worst);
  return worst < 1e-6 ? 0 : 1;
}
