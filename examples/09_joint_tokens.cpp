// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A video dealt to ranks and a prompt that lies whole on each of them attend to one another. Returns 0 when all ranks
// count the prompt once and get the same bits for it.
#include <cmath>
#include <cstdio>
#include <vector>

#include <seqpar/seqpar.hpp>

namespace {

namespace sp = seqpar;
constexpr sp::index_t video = 90, prompt = 7, heads = 4, dim = 8;

/// What attention gives for the prompt, of one rank.
std::vector<float> attend(const sp::threads::transport& world) {
  const auto numbers = [](sp::index_t rows) {
    return std::vector<float>(static_cast<std::size_t>(rows * heads * dim), 1);
  };
  // [snippet]
  const auto team = sp::ring(world);
  const sp::contiguous frames{.tokens = video, .ranks = team.size(), .granule = 10};  // of the video only
  auto plan = sp::plan_attention<float>(team, frames, sp::full{},
                                        {.heads = heads,
                                         .kv_heads = heads,
                                         .head_dim = dim,
                                         .joint_q = prompt,
                                         .joint_kv = prompt,
                                         .joint_at = sp::joint_place::rear});  // positions 90 … 96 of the mask
  const sp::host_memory memory(plan.memory());
  plan.prepare(memory, sp::on_host{});

  const sp::index_t n = plan.q_rows();  // of the video, here
  std::vector<float> q = numbers(n), k = q, v = q, out = q, lse(static_cast<std::size_t>(n * heads));
  std::vector<float> jq = numbers(prompt), jk = jq, jv = jq, jout = jq, jlse(prompt * heads);
  const auto mine = [&](auto& x) { return sp::dense_view(x.data(), {1, n, heads, dim}); };
  const auto whole = [&](auto& x) { return sp::dense_view(x.data(), {1, prompt, heads, dim}); };
  sp::check(plan.forward({.q = mine(q),
                          .k = mine(k),
                          .v = mine(v),
                          .out = mine(out),
                          .lse = sp::dense_heads(lse.data(), {1, heads, n}),
                          .joint = {.q = whole(jq),  // the same numbers on every rank
                                    .k = whole(jk),
                                    .v = whole(jv),
                                    .out = whole(jout),  // the same bits on every rank
                                    .lse = sp::dense_heads(jlse.data(), {1, heads, prompt})}},
                         memory, sp::on_host{}));
  // [/snippet]
  for (const std::vector<float>* numbers_of_keys : {&lse, &jlse})  // all scores are equal: lse − score = log(keys)
    for (float x : *numbers_of_keys)
      if (std::fabs(x - std::sqrt(float{dim}) - std::log(float{video + prompt})) > 1e-5f) return {};
  return jout;
}

}  // namespace

int main() {
  std::vector<std::vector<float>> all(4);
  sp::run_ranks(
      4, [&](const sp::threads::transport& world) { all[static_cast<std::size_t>(world.rank())] = attend(world); });
  for (const std::vector<float>& got : all)
    if (got.empty() || got != all[0]) return std::printf("the prompt is not counted once, or differs\n"), 1;
  std::printf("each of %d queries counts %d keys, the prompt once\n", static_cast<int>(video + prompt),
              static_cast<int>(video + prompt));
}
