// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One training step on a long video: frames are encoded where they were dealt, tokens attended where a zigzag wants
// them, and gradients find their way back to the vision tower. Any number of ranks gives what one rank gives.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/compare.hpp"
#include "support/layer.hpp"
#include "support/moved.hpp"
#include "support/patches.hpp"
#include "support/program.hpp"
#include "support/stages_picture.hpp"
#include "support/understanding_report.hpp"
#include "support/vision_language.hpp"
#include "support/weights.hpp"
#include "support/y4m.hpp"

namespace {

using namespace seqpar;
using demo::at;
using demo::numbers;
using transport_type = traced<threads::transport>;

constexpr demo::layer_shape shape{.width = 48, .heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr attention_shape heads{.heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
constexpr index_t layers = 2, words = 40, ignore = demo::no_word, row_bytes = shape.width * index_t{sizeof(float)};
/// fp32 sums in another order: |x − one rank's x| ≤ tolerance·max|one rank's x|, for each tensor.
constexpr double tolerance = 2e-5;

struct outcome {
  item_deal encoders;
  zigzag layout;
  mean loss{};
  numbers logits{};  ///< [tokens][words], in global order
  demo::named_gradients gradients{};
  std::vector<index_t> counted{};            ///< labels of each rank
  std::vector<demo::bytes_of_steps> sent{};  ///< by each rank
};

/// What one rank does.
void train(const demo::conversation& talk, const threads::transport& world, outcome& o) {
  flight_record record(world.rank(), world.size());
  const mesh team = ring(transport_type(world, record));
  const int me = team.index();

  auto embed = plan_two_stage(team, talk.sequence, o.encoders, o.layout, {.row_bytes = row_bytes});
  auto shift = plan_successors(team, o.layout, {.row_bytes = sizeof(index_t), .passes = forward_only});
  auto attend = plan_attention<float>(team, o.layout, causal{}, heads, {.passes = forward_backward});
  auto average = plan_token_mean(team);

  const host_memory embed_memory = demo::prepared(embed), shift_memory = demo::prepared(shift),
                    attend_memory = demo::prepared(attend), average_memory = demo::prepared(average);

  demo::vision_tower tower(talk.clip, 32, shape.width, 10);
  demo::word_table table(words, shape.width, 20);
  std::vector<index_t> positions(at(o.layout.count_of(me)));
  positions_of(o.layout, me, std::span(positions));
  demo::layer first(shape, attend, attend_memory, positions, 30), second(shape, attend, attend_memory, positions, 40);
  demo::rms_norm norm(shape.width);
  demo::linear head(shape.width, words, 50);

  // Every rank has all weights: their gradients are summed over ranks, in one piece.
  const auto own_gradients = [&] {
    return demo::named_gradients{{"d vision tower", tower.gradients()},
                                 {"d word table", table.gradients()},
                                 {"d first layer", first.gradients()},
                                 {"d second layer", second.gradients()},
                                 {"d head", head.gradient()}};
  };
  auto add = plan_all_reduce<float>(team, static_cast<index_t>(demo::joined(own_gradients()).size()));
  const host_memory add_memory = demo::prepared(add);
  demo::meter sent(record);

  // Stage 1: encode the frames that this rank was dealt. Stage 2: their rows and the text go where the layout says.
  const numbers visual = tower.forward(talk.pixels_of(o.encoders.items_of(me))), text = table.forward(talk.text);
  numbers x(at(embed.rows() * shape.width));
  check(embed.forward(visual.data(), text.data(), x.data(), embed_memory, on_host{}));
  sent.note("frames' rows to their tokens");

  // Labels come from the next token of the global order, wherever it lies; frames are no labels.
  std::vector<index_t> ids, labels(at(embed.rows()));
  for (index_t i = 0; i < embed.rows(); ++i) ids.push_back(talk.id_of(o.layout.global_of(me, i)));
  check(shift.forward(ids.data(), labels.data(), ignore, shift_memory, on_host{}));
  check(check_labels(team, std::span<const index_t>(labels), words, ignore));
  sent.note("labels, from the next token");

  const numbers logits = head.forward(norm.forward(second.forward(first.forward(x))));
  sent.note("attention, forward");

  const auto valid = [&](index_t i) { return labels[at(i)] != ignore; };
  mean loss;
  check(average.forward<float>(demo::cross_entropy(logits, labels, words), valid, loss, average_memory, on_host{}));
  sent.note("mean of the loss");

  numbers d_losses(labels.size()), d_logits, d_visual(visual.size()), d_text(text.size());
  check(average.adjoint<float>(1, loss, valid, std::span(d_losses), average_memory, on_host{}));
  demo::cross_entropy(logits, labels, words, d_losses, &d_logits);
  const numbers dx = first.backward(second.backward(norm.backward(head.backward(d_logits))));
  sent.note("attention, backward");
  check(embed.adjoint<float>(dx.data(), d_visual.data(), d_text.data(), embed_memory, on_host{}));
  tower.backward(d_visual);
  table.backward(d_text);
  sent.note("gradients back to frames' rows");

  demo::named_gradients gradients = own_gradients();
  numbers weights = demo::joined(gradients);
  check(add.forward(weights, std::span(weights), add_memory, on_host{}));
  demo::split(weights, gradients);
  sent.note("weights' gradients, summed up");

  for (index_t i = 0; i < embed.rows(); ++i)
    std::copy_n(logits.begin() + i * words, words, o.logits.begin() + o.layout.global_of(me, i) * words);
  o.sent[at(me)] = sent.steps();
  o.counted[at(me)] = std::count_if(labels.begin(), labels.end(), [](index_t l) { return l != ignore; });
  if (me != 0) return;
  o.loss = loss;
  o.gradients = std::move(gradients);
}

outcome train(const demo::conversation& talk, int ranks) {
  const index_t tokens = talk.sequence.token_count();
  outcome o{.encoders = deal_items(talk.clip.frames, ranks), .layout = {.tokens = tokens, .ranks = ranks}};
  o.logits.resize(at(tokens * words));
  o.counted.resize(at(ranks));
  o.sent.resize(at(ranks));
  run_ranks(ranks, [&](threads::transport world) { train(talk, world, o); });
  return o;
}

int understand(const demo::arguments& given) {
  const demo::video video = demo::video_of(given, 160, 90);
  const demo::conversation talk(demo::cut_patches(video, demo::patch_side(video)), words);
  const outcome one = train(talk, 1), many = train(talk, given.ranks);

  const index_t per_frame = demo::vision_tower::tokens_per_frame(talk.clip), tokens = talk.sequence.token_count();
  std::printf("%s of %d x %d, %s each; with text %s, dealt by zigzag over %s\n\n",
              demo::count_text(talk.clip.frames, "frame").c_str(), video.width, video.height,
              demo::count_text(per_frame, "token").c_str(), demo::count_text(tokens, "token").c_str(),
              demo::count_text(given.ranks, "rank").c_str());
  demo::print_dealing(talk, many.encoders, many.layout, many.counted);
  index_t weights = 0;
  for (const auto& [name, gradient] : many.gradients) weights += static_cast<index_t>(gradient.size());
  const bool only_wanted =
      demo::print_moved(many.sent, demo::count_wanted(talk, many.encoders, many.layout, shape, layers, weights));

  demo::comparison same(tolerance);
  same.see("loss", {static_cast<float>(many.loss.value)}, {static_cast<float>(one.loss.value)});
  same.see("logits", many.logits, one.logits);
  for (std::size_t g = 0; g < one.gradients.size(); ++g)
    same.see(one.gradients[g].first, many.gradients[g].second, one.gradients[g].second);
  std::printf("loss over %lld labels: %.9f on one rank, %.9f on %d\n\n", static_cast<long long>(many.loss.count),
              one.loss.value, many.loss.value, given.ranks);
  same.print();

  const std::string path = given.out + "/long-video-understanding.svg";
  demo::write_file(path,
                   demo::draw_stages("From frames to tokens", talk.clip, talk.sequence, many.encoders, many.layout));
  std::printf("picture %s\n\n", path.c_str());
  const bool good = same.good() && only_wanted && many.loss.count == one.loss.count;
  std::printf(good ? "Loss, logits and gradients equal one rank's, and only wanted bytes moved.\n"
                   : "Something DIFFERS from one rank.\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  demo::arguments defaults;
  defaults.ranks = 4;
  defaults.frames = 10;
  return demo::program(argc, argv, "long_video_understanding: a training step over ranks, checked against one rank",
                       defaults, understand);
}
