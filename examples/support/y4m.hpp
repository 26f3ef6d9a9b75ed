// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Video for the demo: a reader of 4:2:0 Y4M files, and a small moving scene for when there is no file.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <istream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace demo {

/// An input that cannot be used; the text says which, why, and what to do.
struct bad_input : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One frame, 8 bits per sample: luma width × height, cb and cr half as wide and high, all row-major.
struct picture {
  std::vector<std::uint8_t> luma, cb, cr;
};

struct video {
  int width = 0, height = 0;
  std::vector<picture> frames;
};

namespace detail {

constexpr int longest_line = 1024, largest_side = 16384;

/// Reads up to the end of the line; false at the end of the stream, before the line's end.
inline bool read_line(std::istream& in, std::string& line) {
  line.clear();
  for (char c; static_cast<int>(line.size()) < longest_line && in.get(c);) {
    if (c == '\n') return true;
    line += c;
  }
  return false;
}

/// Reads `bytes` bytes; memory grows with what is really there, so that a header's lie costs nothing.
inline bool read_plane(std::istream& in, std::size_t bytes, std::vector<std::uint8_t>& plane) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  while (plane.size() < bytes) {
    const std::size_t begin = plane.size(), want = std::min(piece, bytes - begin);
    plane.resize(begin + want);
    in.read(reinterpret_cast<char*>(plane.data() + begin), static_cast<std::streamsize>(want));
    if (static_cast<std::size_t>(in.gcount()) != want) {
      plane.resize(begin + static_cast<std::size_t>(in.gcount()));
      return false;
    }
  }
  return true;
}

inline int read_side(const std::string& name, std::string_view field) {
  int side = 0;
  const auto [end, failed] = std::from_chars(field.data() + 1, field.data() + field.size(), side);
  if (failed != std::errc{} || end != field.data() + field.size() || side < 1 || side > largest_side)
    throw bad_input(name + ": the header's " + std::string(field) + " is no size from 1 to " +
                    std::to_string(largest_side));
  return side;
}

}  // namespace detail

/// The first `most` frames of a Y4M stream (all of them when most = 0). `name` is what messages call the stream.
inline video read_y4m(std::istream& in, const std::string& name, int most = 0) {
  std::string line;
  const bool whole = detail::read_line(in, line);
  constexpr std::string_view magic = "YUV4MPEG2";
  if (line.substr(0, magic.size()) != magic || (line.size() > magic.size() && line[magic.size()] != ' '))
    throw bad_input(name + ": not a Y4M file; one can be made with: ffmpeg -i FILE -pix_fmt yuv420p out.y4m");
  if (!whole) throw bad_input(name + ": the Y4M header is truncated or longer than 1024 bytes");

  video v;
  std::string chroma, old_chroma;
  for (std::size_t begin = magic.size(); begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin + 1), line.size());
    const std::string_view field = std::string_view(line).substr(begin + 1, end - begin - 1);
    begin = end;
    if (field.empty()) continue;
    if (field[0] == 'W') v.width = detail::read_side(name, field);
    if (field[0] == 'H') v.height = detail::read_side(name, field);
    if (field[0] == 'C') chroma = field.substr(1);
    if (field.substr(0, 7) == "XYSCSS=") old_chroma = field.substr(7);
  }
  if (v.width == 0 || v.height == 0) throw bad_input(name + ": the Y4M header gives no width (W) or no height (H)");
  if (chroma.empty()) chroma = old_chroma.substr(0, 3) == "420" || old_chroma.empty() ? "420" : old_chroma;
  if (chroma != "420" && chroma != "420jpeg" && chroma != "420mpeg2" && chroma != "420paldv")
    throw bad_input(name + ": its samples are " + chroma +
                    ", not 8-bit 4:2:0; convert it with: ffmpeg -i FILE -pix_fmt yuv420p out.y4m");
  if (v.width < 2 || v.height < 2)
    throw bad_input(name + ": it is " + std::to_string(v.width) + "x" + std::to_string(v.height) +
                    "; 4:2:0 video has at least 2x2 pixels");
  if (v.width % 2 != 0 || v.height % 2 != 0)
    throw bad_input(name + ": it is " + std::to_string(v.width) + "x" + std::to_string(v.height) +
                    ", an odd size; crop it to an even one with: ffmpeg -i FILE -vf crop=" +
                    std::to_string(v.width / 2 * 2) + ":" + std::to_string(v.height / 2 * 2) + " out.y4m");

  const std::size_t luma = static_cast<std::size_t>(v.width) * static_cast<std::size_t>(v.height);
  while ((most <= 0 || static_cast<int>(v.frames.size()) < most) && in.peek() != std::istream::traits_type::eof()) {
    const std::string which = name + ": frame " + std::to_string(v.frames.size() + 1);
    const bool complete = detail::read_line(in, line);
    if (line.substr(0, 5) != "FRAME" || (line.size() > 5 && line[5] != ' '))
      throw bad_input(which + " does not begin with FRAME; the file is damaged or truncated");
    picture p;
    if (!complete || !detail::read_plane(in, luma, p.luma) || !detail::read_plane(in, luma / 4, p.cb) ||
        !detail::read_plane(in, luma / 4, p.cr))
      throw bad_input(which + " is truncated: it has " + std::to_string(p.luma.size() + p.cb.size() + p.cr.size()) +
                      " of " + std::to_string(luma * 3 / 2) + " bytes");
    v.frames.push_back(std::move(p));
  }
  if (v.frames.empty()) throw bad_input(name + ": it has no frames");
  return v;
}

inline video read_y4m_file(const std::string& path, int most = 0) {
  std::ifstream in(path, std::ios::binary);
  if (!in || in.peek() == std::istream::traits_type::eof())
    throw bad_input(path + ": cannot be read, or is empty; give the path of a Y4M file");
  return read_y4m(in, path, most);
}

/// A disc and a bar that move over a drifting gradient; the same on every machine.
inline video moving_scene(int width, int height, int frames) {
  video v{width, height, {}};
  const auto byte = [](int x) { return static_cast<std::uint8_t>(std::clamp(x, 0, 255)); };
  const auto area = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  for (int t = 0; t < frames; ++t) {
    picture p{std::vector<std::uint8_t>(area), std::vector<std::uint8_t>(area / 4),
              std::vector<std::uint8_t>(area / 4)};
    const int disc_x = width / 4 + 3 * t % std::max(1, width / 2), disc_y = height / 2 + (t % 8 - 4) * height / 32;
    const int radius = height / 5, bar = (width - 5 * t % width) % width;
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const int dx = x - disc_x, dy = y - disc_y;
        const bool disc = dx * dx + dy * dy < radius * radius, in_bar = x >= bar && x < bar + width / 16;
        const int texture = ((x + 2 * t) / 8 + y / 8) % 2 * 24;
        const auto at = static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x);
        p.luma[at] = byte(disc ? 225 - 2 * (dy + radius) : in_bar ? 40 : 60 + 100 * y / height + texture);
        if (x % 2 == 0 && y % 2 == 0) {
          const auto half =
              static_cast<std::size_t>(y / 2) * static_cast<std::size_t>(width / 2) + static_cast<std::size_t>(x / 2);
          p.cb[half] = byte(disc ? 80 : 128 + 60 * x / width);
          p.cr[half] = byte(disc ? 190 : in_bar ? 100 : 120);
        }
      }
    v.frames.push_back(std::move(p));
  }
  return v;
}

}  // namespace demo
