// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One picture of a run: which rank owns which token, over the frames of the video, and the mask coloured by rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <seqpar/types.hpp>

#include "y4m.hpp"

namespace demo {

using seqpar::index_t;

struct colour {
  int r, g, b;
  std::string text() const {
    char s[8];
    std::snprintf(s, sizeof s, "#%02x%02x%02x", static_cast<unsigned>(r) & 255u, static_cast<unsigned>(g) & 255u,
                  static_cast<unsigned>(b) & 255u);
    return s;
  }
};

/// The colour of a rank: eight that colour-blind readers can tell apart, then the same, paler each time round. None is
/// grey, which is for what is no rank's.
inline colour colour_of(int rank) {
  constexpr std::array<colour, 8> base{{{68, 119, 170},
                                        {238, 119, 51},
                                        {34, 136, 51},
                                        {204, 51, 17},
                                        {51, 187, 238},
                                        {170, 51, 119},
                                        {204, 187, 68},
                                        {51, 34, 136}}};
  colour c = base[static_cast<std::size_t>(rank % 8)];
  for (int round = std::min(rank / 8, 4); round > 0; --round)
    c = {c.r + (255 - c.r) / 3, c.g + (255 - c.g) / 3, c.b + (255 - c.b) / 3};
  return c;
}

/// An SVG under construction; lengths in pixels.
class svg {
 public:
  svg(int width, int height) : width_(width), height_(height) {}
  void text(double x, double y, std::string_view words, int size = 12, std::string_view fill = "#333") {
    body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + std::to_string(size) +
             "\" fill=\"" + std::string(fill) + "\">";
    for (char c : words) body_ += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    body_ += "</text>\n";
  }
  void box(double x, double y, double w, double h, std::string_view fill, std::string_view stroke = "none") {
    body_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(w) + "\" height=\"" + number(h) +
             "\" fill=\"" + std::string(fill) + "\" stroke=\"" + std::string(stroke) + "\"/>\n";
  }
  /// Cells of one colour as one path, in a grid whose cells are cell_w × cell_h and whose corner is (x, y).
  void cells(double x, double y, double cell_w, double cell_h, std::string_view path, std::string_view fill) {
    if (path.empty()) return;
    body_ += "<path transform=\"translate(" + number(x) + " " + number(y) + ") scale(" + number(cell_w) + " " +
             number(cell_h) + ")\" fill=\"" + std::string(fill) + "\" d=\"" + std::string(path) + "\"/>\n";
  }
  std::string text() const {
    const std::string w = std::to_string(width_), h = std::to_string(height_);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " + w +
           " " + h +
           "\" font-family=\"Helvetica, Arial, sans-serif\" shape-rendering=\"crispEdges\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
           body_ + "</svg>\n";
  }

 private:
  static std::string number(double x) {
    char s[32];
    std::snprintf(s, sizeof s, "%.6g", x);
    return s;
  }
  int width_, height_;
  std::string body_;
};

/// What a picture says in words and shows of the video.
struct picture_text {
  std::string title, subtitle;     ///< the subtitle may have several lines
  std::vector<std::string> ranks;  ///< a line of the legend per rank
  int rows = 1, columns = 1;       ///< of one frame, in tokens; frame f is tokens f·rows·columns …
  std::vector<float> brightness;   ///< of each token, 0 to 1; read modulo its size; empty: plain colours
};

namespace detail {

/// At most 256 positions that stand for `count`. The step is odd, so that a deal in turns is not hidden by it.
struct sampling {
  explicit sampling(index_t count) : step(((count + 255) / 256) | 1), cells((count + step - 1) / step) {}
  index_t at(index_t cell, index_t count) const { return std::min(cell * step + step / 2, count - 1); }
  index_t step, cells;
};

/// One path per rank of a row or matrix of cells; neighbours of one rank are drawn as one piece.
class cell_paths {
 public:
  explicit cell_paths(int ranks) : paths_(static_cast<std::size_t>(ranks)) {}
  /// rank_of(cell) for cells 0 … n−1 of row y; −1 leaves a cell white.
  template <class RankOf>
  void row(index_t y, index_t n, RankOf rank_of) {
    for (index_t begin = 0, end; begin < n; begin = end) {
      const int rank = rank_of(begin);
      for (end = begin + 1; end < n && rank_of(end) == rank;) ++end;
      if (rank < 0) continue;
      const std::string w = std::to_string(end - begin);
      paths_[static_cast<std::size_t>(rank)] +=
          "M" + std::to_string(begin) + " " + std::to_string(y) + "h" + w + "v1h-" + w + "z";
    }
  }
  void draw(svg& s, double x, double y, double cell_w, double cell_h) const {
    for (std::size_t r = 0; r < paths_.size(); ++r)
      s.cells(x, y, cell_w, cell_h, paths_[r], colour_of(static_cast<int>(r)).text());
  }

 private:
  std::vector<std::string> paths_;
};

}  // namespace detail

/// The picture of `tokens` tokens as SVG text: owner_of(token) → rank, allows(q, k) → may q see k.
template <class OwnerOf, class Allows>
std::string draw_picture(const picture_text& text, index_t tokens, int ranks, OwnerOf owner_of, Allows allows) {
  constexpr int margin = 24, side = 512, legend = 280, thumb_width = 100, most_thumbs = 12;
  constexpr int width = 2 * margin + side + legend;
  const int in_row = (width - 2 * margin) / (thumb_width + 10);
  const index_t per_frame = index_t{text.rows} * text.columns;
  const index_t frames = per_frame > 0 ? tokens / per_frame : 0;
  const index_t thumbs = std::min<index_t>(frames, most_thumbs);
  const double thumb_height = std::min(120.0, thumb_width * double(text.rows) / std::max(1, text.columns));
  const double thumbs_height = static_cast<double>((thumbs + in_row - 1) / in_row) * (thumb_height + 22);
  const auto breaks = std::count(text.subtitle.begin(), text.subtitle.end(), '\n');
  const double frames_y = 80 + 16 * static_cast<double>(breaks);
  const double strip_y = thumbs > 0 ? frames_y + 24 + thumbs_height : frames_y, matrix_y = strip_y + 66;
  svg s(width, static_cast<int>(matrix_y) + std::max(side, 18 * ranks) + margin + 8);

  s.text(margin, 34, text.title, 20, "#111");
  std::string_view lines = text.subtitle;
  for (double y = 54; !lines.empty(); y += 16) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    s.text(margin, y, line, 12, "#666");
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
  }
  if (thumbs > 0) s.text(margin, frames_y, "Owner of each token, on the frames", 13);
  for (index_t i = 0; i < thumbs; ++i) {
    const index_t f = thumbs > 1 ? i * (frames - 1) / (thumbs - 1) : 0;
    const double x = margin + static_cast<double>(i % in_row) * (thumb_width + 10);
    const double y = frames_y + 10 + static_cast<double>(i / in_row) * (thumb_height + 22);
    const int shown_rows = std::min(text.rows, 32), shown_columns = std::min(text.columns, 32);
    for (int r = 0; r < shown_rows; ++r)
      for (int c = 0; c < shown_columns; ++c) {
        const index_t token = f * per_frame + index_t{r} * text.rows / shown_rows * text.columns +
                              index_t{c} * text.columns / shown_columns;
        colour k = colour_of(owner_of(token));
        if (!text.brightness.empty()) {  // the clip shows through: dark patches darken the rank's colour
          const float light = 0.6f + 0.6f * text.brightness[static_cast<std::size_t>(token) % text.brightness.size()];
          const auto lit = [light](int v) { return std::min(255, static_cast<int>(static_cast<float>(v) * light)); };
          k = {lit(k.r), lit(k.g), lit(k.b)};
        }
        const double w = double(thumb_width) / shown_columns, h = thumb_height / shown_rows;
        s.box(x + c * w, y + r * h, w, h, k.text());
      }
    s.text(x, y + thumb_height + 13, "frame " + std::to_string(f), 10, "#888");
  }

  s.text(margin, strip_y, "The whole sequence, left to right", 13);
  const detail::sampling sample(tokens);
  const double cell = sample.cells > 0 ? double(side) / static_cast<double>(sample.cells) : side;
  const auto owner = [&](index_t i) { return static_cast<int>(owner_of(sample.at(i, tokens))); };
  detail::cell_paths strip(ranks), matrix(ranks);
  strip.row(0, sample.cells, owner);
  for (index_t q = 0; q < sample.cells; ++q)
    matrix.row(q, sample.cells,
               [&](index_t k) { return allows(sample.at(q, tokens), sample.at(k, tokens)) ? owner(q) : -1; });
  strip.draw(s, margin, strip_y + 10, cell, 20);
  s.text(margin, matrix_y - 8, "The mask: queries down, keys across, in the colour of the query's owner", 13);
  s.box(margin, matrix_y, side, side, "#f4f4f4", "#ccc");
  matrix.draw(s, margin, matrix_y, cell, cell);

  const double legend_x = margin + side + 20;
  for (int r = 0; r < ranks; ++r) {
    const double y = matrix_y + 18 * r;
    s.box(legend_x, y + 2, 12, 12, colour_of(r).text());
    const auto at = static_cast<std::size_t>(r);
    s.text(legend_x + 18, y + 12, at < text.ranks.size() ? text.ranks[at] : "rank " + std::to_string(r), 11);
  }
  if (sample.step > 1)
    s.text(margin, matrix_y + side + 18,
           "one cell stands for " + std::to_string(sample.step) + " tokens (the middle one is drawn)", 10, "#888");
  return s.text();
}

/// Writes text to a file. Throws bad_input.
inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw bad_input(path + ": cannot be written; give a folder that exists with --out");
}

}  // namespace demo
