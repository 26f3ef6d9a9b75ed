// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A picture of two-stage sharding: who encodes which frame, who owns which token, and which rows move.
#pragma once

#include <algorithm>
#include <string>

#include <seqpar/exchange/two_stage.hpp>

#include "patches.hpp"
#include "svg.hpp"
#include "table.hpp"

namespace demo {

/// Frames stand above their tokens. `encoders` deals the frames, which are the items of `sequence`; `layout` the
/// tokens.
template <class Deal, class Layout>
std::string draw_stages(const std::string& title, const patches& clip, const seqpar::assembly& sequence,
                        const Deal& encoders, const Layout& layout) {
  constexpr double margin = 24, width = 1000, strip = 26;
  const index_t tokens = layout.token_count();
  const int ranks = layout.rank_count();
  const double cell = width / static_cast<double>(std::max<index_t>(tokens, 1));
  const double frame_width = clip.frames > 0 ? cell * static_cast<double>(sequence.rows_of(0)) : 0;
  const double frame_height = std::clamp(frame_width * clip.rows / clip.columns, 12., 90.);
  const double tokens_y = 96 + frame_height, moves_y = tokens_y + strip + 44, legend_y = moves_y + strip + 28;
  svg s(static_cast<int>(width + 2 * margin), static_cast<int>(legend_y) + 18 * ranks + 12);
  s.text(margin, 34, title, 20, "#111");

  s.text(margin, 60, "Stage 1: each frame in the colour of the rank that encodes it");
  const bool shows = clip.frames <= 64;  // the pictures themselves, while they can be seen
  for (const seqpar::assembly::part& p : sequence.parts()) {
    if (p.item < 0) continue;
    const double x = margin + cell * static_cast<double>(p.begin), w = cell * static_cast<double>(p.rows);
    const colour own = colour_of(encoders.place_of(p.item).rank);
    if (!shows) s.box(x, 68, w, frame_height, own.text());
    for (int row = 0; shows && row < clip.rows; ++row)
      for (int column = 0; column < clip.columns; ++column) {
        const index_t patch = p.item * clip.tokens_per_frame() + index_t{row} * clip.columns + column;
        const float light = 0.6f + 0.6f * clip.brightness[static_cast<std::size_t>(patch)];
        const auto lit = [light](int v) { return std::min(255, static_cast<int>(static_cast<float>(v) * light)); };
        s.box(x + w * column / clip.columns, 68 + frame_height * row / clip.rows, w / clip.columns,
              frame_height / clip.rows, colour{lit(own.r), lit(own.g), lit(own.b)}.text());
      }
  }

  const auto owner = [&](index_t t) { return layout.place_of(t).rank; };
  const auto encoder = [&](index_t t) {
    const index_t item = sequence.source_of(t).item;
    return item < 0 ? -1 : encoders.place_of(item).rank;
  };
  detail::cell_paths owners(ranks), moves(ranks);
  owners.row(0, tokens, owner);
  moves.row(0, tokens, [&](index_t t) { return encoder(t) < 0 || encoder(t) == owner(t) ? -1 : owner(t); });
  s.text(margin, tokens_y - 8, "Stage 2: each token in the colour of the rank that attends with it");
  owners.draw(s, margin, tokens_y, cell, strip);
  for (const seqpar::assembly::part& p : sequence.parts())  // text is underlined
    if (p.item < 0)
      s.box(margin + cell * static_cast<double>(p.begin), tokens_y + strip + 2, cell * static_cast<double>(p.rows), 4,
            "#111");
  s.text(margin, tokens_y + strip + 18, "underlined: text, which every rank has", 10, "#666");
  s.text(margin, moves_y - 8, "Rows that move, in the colour of the rank that gets them");
  s.box(margin, moves_y, width, strip, "#f4f4f4");
  moves.draw(s, margin, moves_y, cell, strip);
  for (int r = 0; r < ranks; ++r) {
    const double y = legend_y + 18 * r;
    s.box(margin, y - 10, 12, 12, colour_of(r).text());
    s.text(margin + 18, y,
           "rank " + std::to_string(r) + ": " + count_text(encoders.count_of(r)) + " frames, " +
               count_text(layout.count_of(r)) + " tokens",
           11);
  }
  return s.text();
}

}  // namespace demo
