// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step of long-video generation by teacher forcing, forward and backward, equal to one rank:
// frames -> causal encoder -> clean and noisy latents -> attention layers -> loss on noisy tokens -> all gradients.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/causal_conv.hpp"
#include "support/compare.hpp"
#include "support/generation_report.hpp"
#include "support/layer.hpp"
#include "support/program.hpp"
#include "support/weights.hpp"

namespace {

using namespace seqpar;
using demo::at, demo::numbers, demo::prepared;

constexpr index_t width = 32, taps = 3, block_frames = 2, row_bytes = width * index_t{sizeof(float)};
constexpr demo::layer_shape shape{.width = width, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr attention_shape heads{
    .batch = 1, .heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
constexpr float signal = .8f, noise = .6f;
/// fp32 sums in another order: |x − one rank's x| ≤ tolerance·max|one rank's x|, for each tensor.
constexpr double tolerance = 2e-5;

struct outcome {
  mean loss;
  numbers out;                        ///< [tokens][width], in global order: [clean ; noisy]
  demo::named_gradients gradients;    ///< summed over ranks
  std::vector<demo::rank_work> work;  ///< of each rank
};

/// One step on one rank. Frames are encoded by time; attention deals them as `layout`, which keeps both copies of a
/// token on one rank: only clean latents travel, and noise is added where they arrive.
template <class Inner>
void train(const threads::transport& world, const demo::patches& clip, const paired<Inner>& layout, outcome& all) {
  const mesh team = ring(world);
  const int me = team.index();
  const index_t n = clip.tokens(), frame = clip.tokens_per_frame(), rows = layout.count_of(me);
  // My rows are my clean tokens, then their noisy copies: numbers 0 … half − 1, then as many again.
  const index_t half = rows / 2 * width;
  const contiguous by_time{.tokens = n, .ranks = team.size(), .granule = frame};

  auto halo = plan_halo(team, by_time, {.before = taps - 1, .border = border::edge, .unit = frame},
                        {.row_bytes = row_bytes, .placement = placement::in_place});
  auto deal = plan_reshard(team, by_time, layout.inner, {.row_bytes = row_bytes});
  auto attention = plan_attention<float>(team, layout, teacher_forcing{.clean = n, .block = block_frames * frame},
                                         heads, {.passes = forward_backward});
  auto average = plan_token_mean(team);
  const host_memory halo_memory = prepared(halo), deal_memory = prepared(deal), attention_memory = prepared(attention),
                    average_memory = prepared(average);

  std::vector<index_t> positions(at(rows));
  positions_of(layout, me, std::span(positions));  // the same for both copies of a token
  demo::linear embed(clip.features, width, 1), head(width, width, 30);
  demo::causal_conv conv1(halo, halo_memory, taps, frame, width, 2), conv2(halo, halo_memory, taps, frame, width, 3);
  demo::layer layer1(shape, attention, attention_memory, positions, 10),
      layer2(shape, attention, attention_memory, positions, 20);

  // Every rank has all weights: their gradients are summed over ranks, in one piece.
  const auto own_gradients = [&] {
    return demo::named_gradients{{"d embedding", embed.gradient()},          {"d first convolution", conv1.gradient()},
                                 {"d second convolution", conv2.gradient()}, {"d first layer", layer1.gradients()},
                                 {"d second layer", layer2.gradients()},     {"d head", head.gradient()}};
  };
  auto add = plan_all_reduce<float>(team, static_cast<index_t>(demo::joined(own_gradients()).size()));
  const host_memory add_memory = prepared(add);

  const numbers latents =
      conv2.forward(conv1.forward(embed.forward(demo::rows_of(by_time, me, clip.values, clip.features))));

  numbers tokens(at(rows * width)), added(at(half));
  check(deal.forward(latents.data(), tokens.data(), deal_memory, on_host{}));
  for (index_t e = 0; e < half; ++e) {  // noise belongs to the token, wherever it lies
    added[at(e)] = demo::uniform(7, positions[at(e / width)] * width + e % width);
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
  check(average.forward<float>(losses, noisy, loss, average_memory, on_host{}));
  check(average.adjoint<float>(1, loss, noisy, std::span(dlosses), average_memory, on_host{}));
  for (index_t e = 0; e < rows * width; ++e) dout[at(e)] *= dlosses[at(e / width)];

  const numbers dtokens = layer1.backward(layer2.backward(head.backward(dout)));
  numbers dclean(at(half)), dlatents(latents.size());
  for (index_t e = 0; e < half; ++e) dclean[at(e)] = dtokens[at(e)] + signal * dtokens[at(half + e)];
  check(deal.template adjoint<float>(dclean.data(), dlatents.data(), deal_memory, on_host{}));
  embed.backward(conv1.backward(conv2.backward(dlatents)));

  demo::named_gradients gradients = own_gradients();
  numbers weights = demo::joined(gradients);
  check(add.forward(weights, std::span(weights), add_memory, on_host{}));
  demo::split(weights, gradients);

  for (index_t e = 0; e < rows * width; ++e)
    all.out[at(layout.global_of(me, e / width) * width + e % width)] = out[at(e)];
  for (index_t i = 0; i < rows; ++i) all.work[at(me)].loss_tokens += noisy(i);
  for (const placed_window& w : halo.windows()) {
    all.work[at(me)].frames += w.own.t.size();
    all.work[at(me)].halo += w.inside.t.size() - w.own.t.size();
  }
  if (me == 0) all.loss = loss, all.gradients = gradients;
}

template <class Inner>
outcome run(const demo::patches& clip, const paired<Inner>& layout) {
  outcome all{.loss = {},
              .out = numbers(at(layout.token_count() * width)),
              .gradients = {},
              .work = std::vector<demo::rank_work>(at(layout.rank_count()))};
  run_ranks(layout.rank_count(), [&](threads::transport world) { train(world, clip, layout, all); });
  return all;
}

template <class Inner>
bool compare(demo::generation_report& report, const std::string& name, const demo::patches& clip,
             const paired<Inner>& layout, const outcome& one) {
  const outcome many = run(clip, layout);
  demo::comparison loss(tolerance), out(tolerance), gradients(tolerance);
  loss.see("loss", {static_cast<float>(many.loss.value)}, {static_cast<float>(one.loss.value)});
  out.see("outputs", many.out, one.out);
  for (std::size_t g = 0; g < one.gradients.size(); ++g)
    gradients.see(one.gradients[g].first, many.gradients[g].second, one.gradients[g].second);
  return report.add(name, clip, layout, block_frames, many.work, many.loss, {loss, out, gradients});
}

/// A clip of N frames, then one of half as many again, whose blocks may not divide by the pieces of zigzag.
int run_example(const demo::arguments& arguments) {
  demo::generation_report report;
  bool good = true;
  int shown = 0;
  for (int most : {arguments.frames, arguments.frames + arguments.frames / 2}) {
    const demo::video video =
        arguments.video.empty() ? demo::moving_scene(64, 32, most) : demo::read_y4m_file(arguments.video, most);
    const demo::patches clip = demo::cut_patches(video, std::max(2, std::min(video.height, video.width / 8) / 2 * 2));
    if (clip.frames == shown) break;
    const index_t n = clip.tokens(), block = block_frames * clip.tokens_per_frame();
    const outcome one = run(clip, paired{contiguous{.tokens = n, .ranks = 1, .granule = block}});
    const paired by_time{contiguous{.tokens = n, .ranks = arguments.ranks, .granule = block}};
    const paired balanced{zigzag{.tokens = n, .ranks = arguments.ranks, .granule = block}};
    good = compare(report, "paired contiguous", clip, by_time, one) && good;
    good = compare(report, "paired zigzag", clip, balanced, one) && good;
    if (shown == 0) report.draw(arguments.out + "/long_video_generation.svg", clip, balanced, block_frames);
    shown = clip.frames;
  }
  report.print(tolerance);
  std::printf(good ? "Loss, outputs and all gradients equal one rank.\n" : "Something DIFFERS from one rank.\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return demo::program(argc, argv, "long_video_generation: a training step over ranks, checked against one rank",
                       {.video = {}, .ranks = 4, .frames = 16}, run_example);
}
