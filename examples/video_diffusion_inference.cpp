// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Video diffusion on data x sequence parallel ranks, equal to one rank: a clip denoised whole, in h x w tiles with a
// prompt on every rank; then a video generated frame by frame over a sharded key/value cache.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/patches.hpp"
#include "support/program.hpp"
#include "support/stages.hpp"
#include "support/svg.hpp"
#include "support/video_model.hpp"
#include "support/y4m.hpp"

namespace {

using namespace seqpar;
using demo::at, demo::noise, demo::numbers, demo::prepared;
using work = std::vector<demo::stage>;
using team_type = mesh<traced<threads::transport>>;

constexpr index_t width = 32, prompt_tokens = 21, row_bytes = width * index_t{sizeof(float)};
constexpr demo::layer_shape shape{.width = width, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr demo::layer_shape with_prompt{
    .width = width, .heads = 4, .kv_heads = 2, .head_dim = 8, .joint = prompt_tokens};
constexpr int depth = 2, steps = 4;
constexpr float pace = 0.1f;
/// fp32 sums in another order: |x - one rank's x| <= tolerance * max|one rank's x|, for each result.
constexpr double tolerance = 1e-5;

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

/// All of one rank's work.
work infer(const threads::transport& world, const process_grid& ranks, const demo::patches& clip) {
  flight_record record(world.rank(), world.size());
  const index_t sp = ranks.sequence, exchanging = sp % 4 == 0 ? 2 : 1;
  const team_type team({world, record}, {.ring = sp / exchanging, .all_to_all = exchanging},
                       ranks.group(parallel::sequence, world.rank()));
  const int seed = 10 + team.rank_of(0) / team.size();  // each data-parallel group denoises its own noise
  const grid tiles = tiles_of(clip, sp);
  const index_t n = clip.tokens(), frame = clip.tokens_per_frame(), rows = tiles.count_of(team.index());
  const demo::after_prompt by_frame{.prompt = prompt_tokens, .frame = frame};
  const exchange_options options{.row_bytes = row_bytes, .passes = forward_only};
  work told;
  auto sent = [&, before = index_t{0}]() mutable {  // since the last call
    return record.bytes(direction::send) - std::exchange(before, record.bytes(direction::send));
  };

  // The prompt: the group's root encodes it, every rank of the group gets it.
  auto spread = plan_broadcast(team, prompt_tokens, 0, options);
  const host_memory spread_memory = prepared(spread);
  const numbers encoded = noise(1, 0, team.index() == 0 ? prompt_tokens : 0, width);
  numbers prompt(at(prompt_tokens * width));
  sent();
  check(spread.forward(encoded.data(), prompt.data(), spread_memory, on_host{}));
  told.push_back({"the prompt, from the root to all", prompt_tokens, sent(), prompt});

  // The clip with noise, denoised whole: tiles on the ranks, every token sees every token and the prompt.
  auto gather = plan_gather(team, tiles, 0, options);
  const host_memory gather_memory = prepared(gather);
  const auto to_root = [&](const numbers& x) {
    numbers whole(at(gather.wanted_rows() * width));
    check(gather.forward(x.data(), whole.data(), gather_memory, on_host{}));
    return whole;
  };
  const auto my_tiles = [&](const numbers& whole) {
    numbers x;
    for (index_t i = 0; i < rows; ++i) {
      const auto row = whole.begin() + tiles.global_of(team.index(), i) * width;
      x.insert(x.end(), row, row + width);
    }
    return x;
  };
  demo::dealt_model diffusion(team, tiles, full{}, with_prompt, depth);
  sent();
  const index_t keys = diffusion.keys_counted(),
                right = n + prompt_tokens;  // the prompt once, though all ranks have it
  told.push_back(
      {"keys that each query counts", rows, sent(), {static_cast<float>(keys)}, {static_cast<float>(right)}});

  const numbers latents = demo::project(clip, width, 5);
  numbers x = noise(seed, 0, n, width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.6f * latents[i] + 0.8f * x[i];
  x = my_tiles(x);
  denoise(x, [&](const numbers& now) { return diffusion.forward(prompt, now); });
  const numbers denoised = to_root(x);
  told.push_back({"the clip denoised, to the root", rows, sent(), denoised});

  // Frames from noise, one by one: each is denoised against the cache, then leaves its clean keys there.
  const appended empty{contiguous{.tokens = prompt_tokens, .ranks = team.ring_size()}, 0, clip.columns};
  demo::cached_model causal_model(team, empty, by_frame, shape, depth, prompt_tokens + n,
                                  std::max(prompt_tokens, frame));
  causal_model.forward(prompt);
  numbers video, outputs;
  for (index_t f = 0; f < clip.frames; ++f) {
    causal_model.grow(frame);
    numbers block = noise(seed + 1000, f * frame, frame, width);
    sent();
    denoise(block, [&](const numbers& now) { return causal_model.forward(now); });
    const numbers y = causal_model.forward(block);
    video.insert(video.end(), block.begin(), block.end());
    outputs.insert(outputs.end(), y.begin(), y.end());
    told.push_back({"frame " + std::to_string(f) + " over the cache", causal_model.cached_here(), sent(), block});
  }

  // The generated video once more, all frames at once and without a cache: the layers must say what they said.
  demo::dealt_model at_once(team, tiles, by_frame, with_prompt, depth);
  const numbers mine = my_tiles(video);
  sent();
  const numbers again = to_root(at_once.forward(prompt, mine));
  told.push_back({"the same frames, no cache", rows, sent(), again, outputs});
  return told;
}

std::vector<work> run(const process_grid& ranks, const demo::patches& clip) {
  std::vector<work> all(at(ranks.size()));
  run_ranks(static_cast<int>(ranks.size()),
            [&](threads::transport world) { all[at(world.rank())] = infer(world, ranks, clip); });
  return all;
}

int compare(const demo::arguments& arguments) {
  const demo::video video = arguments.video.empty() ? demo::moving_scene(160, 90, arguments.frames)
                                                    : demo::read_y4m_file(arguments.video, arguments.frames);
  const int side = std::max(2, std::min(video.height, video.width / 16) / 2 * 2);
  const demo::patches clip = demo::cut_patches(video, side);
  const int dp = arguments.ranks % 2 == 0 ? 2 : 1, sp = arguments.ranks / dp;
  const std::vector<work> many = run({.data = dp, .sequence = sp, .tensor = 1}, clip),
                          one = run({.data = dp, .sequence = 1, .tensor = 1}, clip);

  const grid tiles = tiles_of(clip, sp);
  const int n = static_cast<int>(clip.tokens()), keys = static_cast<int>(many[0][1].result[0]);
  std::printf(
      "%d frames of %d x %d tokens; dp %d x sp %d ranks, tiles %d x %d; %d layers, %d steps\n"
      "the prompt's %d tokens lie on each of %d ranks; counted: %d\n\n",
      clip.frames, clip.rows, clip.columns, dp, sp, static_cast<int>(tiles.split_h), static_cast<int>(tiles.split_w),
      depth, steps, static_cast<int>(prompt_tokens), sp, keys - n);
  const bool good = demo::compare_stages(many, one, tolerance);

  const std::string path = arguments.out + "/video-diffusion-inference.svg";
  const block_causal frames{.block = clip.tokens_per_frame()};
  demo::write_file(path, demo::draw_picture(
                             {"h x w tiles of each frame",
                              std::to_string(n) + " tokens over " + std::to_string(sp) + " ranks",
                              {},
                              clip.rows,
                              clip.columns,
                              clip.brightness},
                             n, sp, [&](index_t t) { return tiles.place_of(t).rank; },
                             [&](index_t q, index_t k) { return frames.allows(q, k); }));
  std::printf("picture %s\n\n%s\n", path.c_str(),
              good ? "Every stage equals one rank." : "Something DIFFERS from one rank.");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return demo::program(argc, argv, "video_diffusion_inference: diffusion over ranks, checked against one rank",
                       {.video = {}, .ranks = 4, .frames = 4}, compare);
}
