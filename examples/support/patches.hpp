// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From video to attention inputs: square patches become tokens, and fixed weights project them to q, k and v.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <seqpar/types.hpp>

#include "y4m.hpp"

namespace demo {

using seqpar::index_t;

/// Tokens of a video: token (t·rows + y)·columns + x is the patch in row y, column x of frame t.
/// Each has `features` numbers: its luma, then cb, then cr, with mean 0 and variance 1 over the patch.
struct patches {
  int frames = 0, rows = 0, columns = 0, side = 0;
  index_t features = 0;
  std::vector<float> values;      ///< [tokens][features]
  std::vector<float> brightness;  ///< [tokens], 0 to 1; for pictures
  index_t tokens_per_frame() const { return index_t{rows} * columns; }
  index_t tokens() const { return frames * tokens_per_frame(); }
};

/// Cuts each frame into patches of side × side samples; what is left over at the right and the bottom is dropped.
inline patches cut_patches(const video& v, int side) {
  if (side < 2 || side % 2 != 0 || side > v.width || side > v.height)
    throw bad_input("a " + std::to_string(v.width) + "x" + std::to_string(v.height) +
                    " video cannot be cut into patches of side " + std::to_string(side) +
                    "; the side must be even and fit");
  patches p{
      static_cast<int>(v.frames.size()), v.height / side, v.width / side, side, index_t{side} * side * 3 / 2, {}, {}};
  p.values.reserve(static_cast<std::size_t>(p.tokens() * p.features));
  const auto append = [&p](const std::vector<std::uint8_t>& plane, int width, int edge, int top, int left) {
    for (int y = top; y < top + edge; ++y)
      for (int x = left; x < left + edge; ++x)
        p.values.push_back(static_cast<float>(plane[static_cast<std::size_t>(index_t{y} * width + x)]));
  };
  for (const picture& frame : v.frames)
    for (int y = 0; y < p.rows; ++y)
      for (int x = 0; x < p.columns; ++x) {
        const std::size_t begin = p.values.size();
        append(frame.luma, v.width, side, y * side, x * side);
        append(frame.cb, v.width / 2, side / 2, y * side / 2, x * side / 2);
        append(frame.cr, v.width / 2, side / 2, y * side / 2, x * side / 2);
        double luma = 0, sum = 0, squares = 0;
        for (std::size_t i = begin; i < p.values.size(); ++i) {
          if (i < begin + static_cast<std::size_t>(index_t{side} * side)) luma += double{p.values[i]};
          sum += double{p.values[i]};
          squares += double{p.values[i]} * double{p.values[i]};
        }
        const double n = static_cast<double>(p.features), mean = sum / n;
        const double scale = 1 / std::sqrt(squares / n - mean * mean + 1);  // + 1: a flat patch stays near 0
        for (std::size_t i = begin; i < p.values.size(); ++i)
          p.values[i] = static_cast<float>((double{p.values[i]} - mean) * scale);
        p.brightness.push_back(static_cast<float>(luma / (255.0 * side * side)));
      }
  return p;
}

/// Number i of the stream `seed`, uniform in [−1, 1): a hash, so the same everywhere and in any order.
inline float uniform(std::uint64_t seed, index_t i) {
  std::uint64_t z = (seed << 32) + static_cast<std::uint64_t>(i) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-23f - 1;
}

/// out[token][c] = Σ_f values[token][f]·w[f][c] + b[c], [tokens][width], with fixed w and b that depend on `seed`
/// only. Features of variance 1 give outputs of variance about 1.
inline std::vector<float> project(const patches& p, index_t width, std::uint64_t seed) {
  std::vector<float> weights(static_cast<std::size_t>((p.features + 1) * width));
  const float gain = std::sqrt(3.0f / static_cast<float>(p.features));
  for (index_t i = 0; i < p.features * width; ++i) weights[static_cast<std::size_t>(i)] = gain * uniform(seed, i);
  for (index_t i = p.features * width; i < (p.features + 1) * width; ++i)
    weights[static_cast<std::size_t>(i)] = 0.5f * uniform(seed, i);
  std::vector<float> out(static_cast<std::size_t>(p.tokens() * width));
  for (index_t t = 0; t < p.tokens(); ++t) {
    float* row = out.data() + t * width;
    const float* bias = weights.data() + p.features * width;
    for (index_t c = 0; c < width; ++c) row[c] = bias[c];
    for (index_t f = 0; f < p.features; ++f) {
      const float x = p.values[static_cast<std::size_t>(t * p.features + f)];
      const float* w = weights.data() + f * width;
      for (index_t c = 0; c < width; ++c) row[c] += x * w[c];
    }
  }
  return out;
}

}  // namespace demo
