// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What was denoised on which ranks, in words and as a picture.
#pragma once

#include <cstdio>
#include <string>

#include <seqpar/seqpar.hpp>

#include "patches.hpp"
#include "svg.hpp"
#include "table.hpp"

namespace demo {

/// `counted`: prompt tokens among the keys of each query.
inline void print_clip(const patches& clip, const seqpar::process_grid& ranks, const seqpar::grid& tiles, int layers,
                       int steps, index_t prompt_tokens, index_t counted) {
  std::printf(
      "%s of %d x %d tokens; dp %d x sp %d ranks, tiles %d x %d; %d layers, %d steps\n"
      "the prompt's %d tokens lie on each of %s; counted: %d\n\n",
      count_text(clip.frames, "frame").c_str(), clip.rows, clip.columns, static_cast<int>(ranks.data),
      static_cast<int>(ranks.sequence), static_cast<int>(tiles.split_h), static_cast<int>(tiles.split_w), layers, steps,
      static_cast<int>(prompt_tokens), count_text(ranks.sequence, "rank").c_str(), static_cast<int>(counted));
}

/// Who has which tile, beside the mask of a clip that is generated frame by frame.
inline void draw_tiles(const std::string& path, const patches& clip, const seqpar::grid& tiles) {
  const index_t n = clip.tokens(), ranks = tiles.rank_count();
  const seqpar::block_causal frames{.block = clip.tokens_per_frame()};
  const picture_text text{"h x w tiles of each frame",
                          count_text(n, "token") + " over " + count_text(ranks, "rank"),
                          {},
                          clip.rows,
                          clip.columns,
                          clip.brightness};
  write_file(path, draw_picture(
                       text, n, tiles.rank_count(), [&](index_t t) { return tiles.place_of(t).rank; },
                       [&](index_t q, index_t k) { return frames.allows(q, k); }));
  std::printf("picture %s\n\n", path.c_str());
}

}  // namespace demo
