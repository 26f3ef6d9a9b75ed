// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each rank has in a step of long-video understanding, and what must move.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "moved.hpp"
#include "table.hpp"
#include "vision_language.hpp"
#include "wanted.hpp"

namespace demo {

/// A line for each rank; labels[r]: those of rank r that count.
inline void print_dealing(const conversation& talk, const seqpar::item_deal& encoders, const seqpar::zigzag& layout,
                          const std::vector<index_t>& labels) {
  table ranks({"", "frames encoded", "rows made", "tokens", "labels that count"});
  for (int r = 0; r < layout.rank_count(); ++r) {
    const index_t frames = encoders.count_of(r), made = frames * vision_tower::tokens_per_frame(talk.clip);
    ranks.add({"rank " + std::to_string(r), count_text(frames), count_text(made), count_text(layout.count_of(r)),
               count_text(labels[at(r)])});
  }
  ranks.print();
  std::printf("\n");
}

/// The bytes of rows that ranks want and do not have, of each step of the program, counted token by token without
/// asking the plans. `weights`: how many numbers are summed over the ranks.
inline bytes_of_steps count_wanted(const conversation& talk, const seqpar::item_deal& encoders,
                                   const seqpar::zigzag& layout, const layer_shape& shape, index_t layers,
                                   index_t weights) {
  const index_t ranks = layout.rank_count(), tokens = layout.token_count(), number = sizeof(float);
  const auto owner = [&](index_t t) { return layout.place_of(t).rank; };
  index_t rows = 0, labels = 0, attention = 0;
  for (index_t t = 0; t < tokens; ++t) {
    const index_t frame = talk.sequence.source_of(t).item;
    rows += frame >= 0 && encoders.place_of(frame).rank != owner(t);
    labels += t + 1 < tokens && owner(t + 1) != owner(t);
  }
  const seqpar::attention_shape heads{.heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
  for (const member_work& w : count_work(layout, seqpar::causal{}, {.ring = ranks, .all_to_all = 1}, heads))
    attention += layers * w.wanted_bytes;
  return {{"frames' rows to their tokens", rows * shape.width * number},
          {"labels, from the next token", labels * index_t{sizeof(index_t)}},
          {"attention, forward", attention},
          {"mean of the loss", ranks * (ranks - 1) * index_t{2 * sizeof(double)}},  // a sum and a count
          {"attention, backward", 2 * attention},                                   // K, V again; dK, dV home
          {"gradients back to frames' rows", rows * shape.width * number},
          {"weights' gradients, summed up", ranks * (ranks - 1) * weights * number}};
}

}  // namespace demo
