// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Video diffusion on data x sequence parallel ranks, equal to one rank: a clip denoised whole, in h x w tiles with a
// prompt on every rank; then a video generated frame by frame over a sharded key/value cache.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/inference_report.hpp"
#include "support/patches.hpp"
#include "support/program.hpp"
#include "support/stages.hpp"
#include "support/video_model.hpp"

namespace {

using namespace seqpar;
using demo::at, demo::noise, demo::numbers, demo::prepared;
using transport_type = traced<threads::transport>;
using work = std::vector<demo::stage>;

constexpr index_t width = 32, prompt_tokens = 21, row_bytes = width * index_t{sizeof(float)};
constexpr exchange_options options{.row_bytes = row_bytes, .passes = forward_only};
constexpr const char* count_of_keys = "keys that each query counts";
constexpr demo::layer_shape shape{.width = width, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr demo::layer_shape with_prompt{
    .width = width, .heads = 4, .kv_heads = 2, .head_dim = 8, .joint = prompt_tokens};
constexpr int depth = 2, steps = 4;
constexpr float pace = 0.1f;
/// fp32 sums in another order: |x - one rank's x| <= tolerance * max|one rank's x|, for each result.
constexpr double tolerance = 1e-5;

/// Block-causal behind a prompt: positions 0 … prompt−1 are a block of their own, then come frames of `frame` tokens.
struct after_prompt {
  extent prompt, frame;

  constexpr index_t end_of(index_t q) const {
    return q < prompt ? index_t{prompt} : prompt + ((q - prompt) / frame + 1) * frame;
  }
  constexpr bool allows(index_t q, index_t k) const { return k < end_of(q); }
  constexpr interval_pair key_intervals(index_t q) const { return make_intervals({0, end_of(q)}); }
};
static_assert(explain_mask<after_prompt>());

/// x <- x - pace * predict(x), several times.
template <class Predict>
void denoise(numbers& x, Predict predict) {
  for (int step = 0; step < steps; ++step) {
    const numbers y = predict(x);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= pace * y[i];
  }
}
grid tiles_of(const demo::patches& clip, index_t ranks) {
  const grid_split split = best_split(clip.rows, clip.columns, ranks);
  return {clip.frames, clip.rows, clip.columns, split.h, split.w};
}

/// One rank: the stages of its work, one by one.
class worker {
 public:
  worker(const threads::transport& world, const process_grid& ranks, const demo::patches& clip)
      : log_(world.rank(), world.size()),
        clip_(clip),
        team_({world, log_.record()}, mesh_of(ranks.sequence), ranks.group(parallel::sequence, world.rank())),
        tiles_(tiles_of(clip, ranks.sequence)),
        frame_mask_{.prompt = prompt_tokens, .frame = clip.tokens_per_frame()},
        seed_(10 + team_.rank_of(0) / team_.size()),  // each data-parallel group denoises its own noise
        gather_(plan_gather(team_, tiles_, 0, options)),
        gather_memory_(prepared(gather_)) {}

  /// The group's root encodes the prompt, every rank of the group gets it.
  void spread_prompt() {
    auto spread = plan_broadcast(team_, prompt_tokens, 0, options);
    const host_memory memory = prepared(spread);
    const numbers encoded = noise(1, 0, team_.index() == 0 ? prompt_tokens : 0, width);
    prompt_.resize(at(prompt_tokens * width));
    log_.begin();
    check(spread.forward(encoded.data(), prompt_.data(), memory, on_host{}));
    log_.end("the prompt, from the root to all", prompt_tokens, prompt_);
  }

  /// A clip with noise, denoised whole: tiles on the ranks, every token sees every token and the prompt.
  void denoise_clip() {
    demo::dealt_model model(team_, tiles_, full{}, with_prompt, depth);
    log_.begin();
    // The prompt counts once, though all ranks have it.
    log_.end(count_of_keys, rows(), {static_cast<float>(model.keys_counted())},
             {static_cast<float>(clip_.tokens() + prompt_tokens)});

    const numbers latents = demo::project(clip_, width, 5);
    numbers x = noise(seed_, 0, clip_.tokens(), width);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.6f * latents[i] + 0.8f * x[i];
    x = my_tiles(x);
    denoise(x, [&](const numbers& now) { return model.forward(prompt_, now); });
    log_.end("the clip denoised, to the root", rows(), to_root(x));
  }

  /// Frames from noise, one by one: each is denoised against the cache, then leaves its clean keys there.
  void generate_over_cache() {
    // Behind the prompt, lines of a frame go to the ranks in turn: every rank gets some of every frame, in few runs.
    const appended prompt_cache{contiguous{.tokens = prompt_tokens, .ranks = team_.ring_size()}, 0, clip_.columns};
    const index_t frame = clip_.tokens_per_frame();
    demo::cached_model model(team_, prompt_cache, frame_mask_, shape, depth, prompt_tokens + clip_.tokens(),
                             std::max(prompt_tokens, frame));
    model.forward(prompt_);
    for (index_t f = 0; f < clip_.frames; ++f) {
      model.grow(frame);
      numbers x = noise(seed_ + 1000, f * frame, frame, width);
      log_.begin();
      denoise(x, [&](const numbers& now) { return model.forward(now); });
      const numbers y = model.forward(x);
      video_.insert(video_.end(), x.begin(), x.end());
      outputs_.insert(outputs_.end(), y.begin(), y.end());
      log_.end("frame " + std::to_string(f) + " over the cache", model.cached_here(), x);
    }
  }

  /// The generated video once more, all frames at once and without a cache: the layers must say what they said.
  void check_without_cache() {
    demo::dealt_model model(team_, tiles_, frame_mask_, with_prompt, depth);
    log_.begin();
    log_.end("the same frames, no cache", rows(), to_root(model.forward(prompt_, my_tiles(video_))), outputs_);
  }

  const work& stages() const { return log_.stages(); }

 private:
  static mesh_shape mesh_of(index_t n) { return n % 4 == 0 ? mesh_shape{n / 2, 2} : mesh_shape{n, 1}; }
  index_t rows() const { return tiles_.count_of(team_.index()); }
  numbers my_tiles(const numbers& whole) const { return demo::rows_of(tiles_, team_.index(), whole, width); }
  numbers to_root(const numbers& x) const {
    numbers whole(at(gather_.wanted_rows() * width));
    check(gather_.forward(x.data(), whole.data(), gather_memory_, on_host{}));
    return whole;
  }

  demo::stage_log log_;
  const demo::patches& clip_;
  mesh<transport_type> team_;
  grid tiles_;
  after_prompt frame_mask_;
  int seed_;
  exchange<transport_type> gather_;
  host_memory gather_memory_;
  numbers prompt_, video_, outputs_;
};

std::vector<work> run(const process_grid& ranks, const demo::patches& clip) {
  std::vector<work> all(at(ranks.size()));
  run_ranks(static_cast<int>(ranks.size()), [&](threads::transport world) {
    worker me(world, ranks, clip);
    me.spread_prompt();
    me.denoise_clip();
    me.generate_over_cache();
    me.check_without_cache();
    all[at(world.rank())] = me.stages();
  });
  return all;
}

int compare(const demo::arguments& arguments) {
  const demo::video video = demo::video_of(arguments, 160, 90);
  const demo::patches clip = demo::cut_patches(video, std::max(2, std::min(video.height, video.width / 16) / 2 * 2));
  const int dp = arguments.ranks % 2 == 0 ? 2 : 1, sp = arguments.ranks / dp;
  const process_grid ranks{.data = dp, .sequence = sp, .tensor = 1}, alone{.data = dp, .sequence = 1, .tensor = 1};
  const std::vector<work> many = run(ranks, clip), one = run(alone, clip);

  const grid tiles = tiles_of(clip, sp);
  const auto keys = static_cast<index_t>(demo::stage_of(many[0], count_of_keys).result[0]);
  demo::print_clip(clip, ranks, tiles, depth, steps, prompt_tokens, keys - clip.tokens());
  const bool good = demo::compare_stages(many, one, tolerance);
  demo::draw_tiles(arguments.out + "/video-diffusion-inference.svg", clip, tiles);
  std::printf(good ? "Every stage equals one rank.\n" : "Something DIFFERS from one rank.\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return demo::program(argc, argv, "video_diffusion_inference: diffusion over ranks, checked against one rank",
                       {.video = {}, .ranks = 4, .frames = 4}, compare);
}
