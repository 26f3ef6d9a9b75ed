// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step of long-video generation by teacher forcing, forward and backward, equal to one rank:
// frames -> causal encoder -> clean and noisy latents -> attention layers -> loss on noisy tokens -> all gradients.
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/arguments.hpp"
#include "support/causal_conv.hpp"
#include "support/layer.hpp"
#include "support/patches.hpp"
#include "support/svg.hpp"
#include "support/table.hpp"
#include "support/wanted.hpp"
#include "support/y4m.hpp"

namespace {

using namespace seqpar;
using demo::at, demo::numbers;

constexpr index_t width = 32, taps = 3, block_frames = 2, row_bytes = width * index_t{sizeof(float)};
constexpr demo::layer_shape shape{.width = width, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr attention_shape heads{.batch = 1, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr float signal = .8f, noise = .6f;
/// fp32 sums in another order: |x − one rank's x| ≤ tolerance·max|one rank's x|, for each tensor.
constexpr double tolerance = 2e-5;

struct outcome {
  mean loss;
  numbers out;                        ///< [tokens][width], in global order: [clean ; noisy]
  std::vector<numbers> gradients;     ///< of each group of weights, summed over ranks
  std::vector<index_t> loss_tokens;   ///< of each rank
  std::vector<index_t> frames, halo;  ///< each rank encodes, and takes from other ranks for each convolution
};

template <class Plan>
host_memory prepared(Plan& plan) {
  host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  return memory;
}

/// One step on one rank. Frames are encoded by time; attention deals them as `layout`, which keeps both copies of a
/// token on one rank: only clean latents travel, and noise is added where they arrive.
template <class Inner>
void train(const threads::transport& world, const demo::patches& clip, const paired<Inner>& layout, outcome& all) {
  const mesh team = ring(world);
  const int me = team.index();
  const index_t n = clip.tokens(), frame = clip.tokens_per_frame(), rows = layout.count_of(me), half = rows / 2 * width;
  const contiguous by_time{.tokens = n, .ranks = team.size(), .granule = frame};

  auto halo = plan_halo(team, by_time, {.before = taps - 1, .border = border::edge, .unit = frame},
                        {.row_bytes = row_bytes, .placement = placement::in_place});
  auto deal = plan_reshard(team, by_time, layout.inner, {.row_bytes = row_bytes});
  auto attention = plan_attention<float>(
      team, layout, teacher_forcing{.clean = n, .block = block_frames * frame}, heads, {.passes = forward_backward});
  auto token_loss = plan_token_mean(team);
  const host_memory halo_memory = prepared(halo), deal_memory = prepared(deal), attention_memory = prepared(attention),
                    loss_memory = prepared(token_loss);

  std::vector<index_t> time(at(rows));
  positions_of(layout, me, std::span(time));  // the same for both copies of a token
  demo::linear embed(clip.features, width, 1), head(width, width, 30);
  demo::causal_conv conv1(halo, halo_memory, taps, frame, width, 2), conv2(halo, halo_memory, taps, frame, width, 3);
  demo::layer layer1(shape, attention, attention_memory, time, 10), layer2(shape, attention, attention_memory, time, 20);

  numbers mine;  // the patches of my frames
  for (index_t i = 0; i < by_time.count_of(me); ++i) {
    const auto patch = clip.values.begin() + by_time.global_of(me, i) * clip.features;
    mine.insert(mine.end(), patch, patch + clip.features);
  }
  const numbers latents = conv2.forward(conv1.forward(embed.forward(mine)));

  numbers tokens(at(rows * width)), added(at(half));
  check(deal.forward(latents.data(), tokens.data(), deal_memory, on_host{}));
  for (index_t e = 0; e < half; ++e) {  // noise belongs to the token, wherever it lies
    added[at(e)] = demo::uniform(7, time[at(e / width)] * width + e % width);
    tokens[at(half + e)] = signal * tokens[at(e)] + noise * added[at(e)];
  }
  const numbers out = head.forward(layer2.forward(layer1.forward(tokens)));

  const auto noisy = [&](index_t row) { return layout.is_noisy(layout.global_of(me, row)); };
  numbers losses(at(rows)), dlosses(at(rows)), dout(out.size());  // of a noisy token: mean (out − noise)²
  for (index_t e = 0; e < half; ++e) {
    const float wrong = out[at(half + e)] - added[at(e)];
    losses[at((half + e) / width)] += wrong * wrong / float{width};
    dout[at(half + e)] = 2 * wrong / float{width};
  }
  mean loss;
  check(token_loss.forward(std::span<const float>(losses), noisy, loss, loss_memory, on_host{}));
  check(token_loss.adjoint(1., loss, noisy, std::span(dlosses), loss_memory, on_host{}));
  for (index_t e = 0; e < rows * width; ++e) dout[at(e)] *= dlosses[at(e / width)];

  const numbers dtokens = layer1.backward(layer2.backward(head.backward(dout)));
  numbers dclean(at(half)), dlatents(latents.size());
  for (index_t e = 0; e < half; ++e) dclean[at(e)] = dtokens[at(e)] + signal * dtokens[at(half + e)];
  check(deal.adjoint<float>(dclean.data(), dlatents.data(), deal_memory, on_host{}));
  embed.backward(conv1.backward(conv2.backward(dlatents)));

  const numbers shares[] = {embed.gradient(),   conv1.gradient(),   conv2.gradient(),
                            layer1.gradients(), layer2.gradients(), head.gradient()};
  std::vector<numbers> gradients(std::begin(shares), std::end(shares));
  for (numbers& g : gradients) {
    auto sum = plan_all_reduce<float>(team, static_cast<index_t>(g.size()));
    check(sum.forward(std::span<const float>(g), std::span(g), prepared(sum), on_host{}));
  }
  for (index_t e = 0; e < rows * width; ++e) all.out[at(layout.global_of(me, e / width) * width + e % width)] = out[at(e)];
  for (index_t i = 0; i < rows; ++i) all.loss_tokens[at(me)] += noisy(i);
  for (const placed_window& w : halo.windows()) {
    all.frames[at(me)] += w.own.t.size();
    all.halo[at(me)] += w.inside.t.size() - w.own.t.size();
  }
  if (me == 0) all.loss = loss, all.gradients = gradients;
}
