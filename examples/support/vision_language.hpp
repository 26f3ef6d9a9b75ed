// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A small vision-language model around its layers: vision tower, words, and the loss over them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "layer.hpp"

namespace demo {

/// The side of patches that gives a frame 4 or more rows and 8 or more columns of them, where it has the samples.
inline int patch_side(const video& v) {
  return std::max(2, std::min(v.height / 4, v.width / 8) / 2 * 2);
}

/// Patches of frames to tokens: linear and SiLU for each patch, then 2 × 2 patches merged by a second linear.
class vision_tower {
 public:
  /// Of frames cut as `clip` is. Rows and columns of patches left over by the merge are dropped.
  vision_tower(const patches& clip, index_t hidden, index_t width, std::uint64_t seed)
      : rows_(clip.rows),
        columns_(clip.columns),
        hidden_(hidden),
        patch_(clip.features, hidden, seed),
        merge_(4 * hidden, width, seed + 1) {}

  static index_t tokens_per_frame(const patches& clip) { return index_t{clip.rows / 2} * (clip.columns / 2); }

  /// [frames][patches][features] → [frames][tokens][width]
  numbers forward(const numbers& x) {
    before_ = patch_.forward(x);
    numbers merged(at(frames() * (rows_ / 2) * (columns_ / 2) * 4 * hidden_));
    for_each_element([&](std::size_t patch, std::size_t token) { merged[token] = silu(before_[patch]); });
    return merge_.forward(merged);
  }
  void backward(const numbers& dy) {
    const numbers d_merged = merge_.backward(dy);
    numbers d_before(before_.size());
    for_each_element(
        [&](std::size_t patch, std::size_t token) { d_before[patch] = d_merged[token] * silu_slope(before_[patch]); });
    patch_.backward(d_before);
  }
  /// This rank's share of the gradients of all weights.
  numbers gradients() const {
    numbers all = patch_.gradient();
    all.insert(all.end(), merge_.gradient().begin(), merge_.gradient().end());
    return all;
  }

 private:
  static float silu(float x) { return x / (1 + std::exp(-x)); }
  static float silu_slope(float x) {
    const float s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  index_t frames() const { return static_cast<index_t>(before_.size()) / (rows_ * columns_ * hidden_); }
  /// f(element of a patch, the same in the merged row): a row holds its four patches one behind the other.
  template <class F>
  void for_each_element(F&& f) const {
    std::size_t token = 0;
    for (index_t frame = 0; frame < frames(); ++frame)
      for (index_t y = 0; y < rows_ / 2; ++y)
        for (index_t x = 0; x < columns_ / 2; ++x)
          for (index_t of_four = 0; of_four < 4; ++of_four) {
            const index_t patch = (frame * rows_ + 2 * y + of_four / 2) * columns_ + 2 * x + of_four % 2;
            for (index_t h = 0; h < hidden_; ++h) f(at(patch * hidden_ + h), token++);
          }
  }

  index_t rows_, columns_, hidden_;
  linear patch_, merge_;
  numbers before_;  ///< what the nonlinearity sees
};

inline constexpr index_t no_word = -100;

/// A made-up conversation over a clip: "<question> <time 0> frame 0 <time 1> frame 1 … <answer>": all ranks know the
/// text, and where the frames stand.
struct conversation {
  patches clip;
  seqpar::assembly sequence;
  std::vector<index_t> text;  ///< ids of all text tokens

  conversation(patches frames, index_t words)
      : clip(std::move(frames)), sequence(std::vector(at(clip.frames), vision_tower::tokens_per_frame(clip))) {
    sequence.text(8);
    for (index_t f = 0; f < clip.frames; ++f) sequence.text(1).item(f);
    sequence.text(16);
    for (index_t i = 0; i < sequence.text_rows(); ++i)
      text.push_back(static_cast<index_t>((uniform(5, i) + 1) / 2 * static_cast<float>(words)));
  }
  /// no_word for frames.
  index_t id_of(index_t token) const {
    const seqpar::assembly::source s = sequence.source_of(token);
    return s.item < 0 ? text[at(s.row)] : no_word;
  }
  numbers pixels_of(std::span<const index_t> frames) const {
    const index_t size = clip.tokens_per_frame() * clip.features;
    numbers pixels;
    for (index_t f : frames)
      pixels.insert(pixels.end(), clip.values.begin() + f * size, clip.values.begin() + (f + 1) * size);
    return pixels;
  }
};

/// Row id of a table of words for each token of text.
class word_table {
 public:
  word_table(index_t words, index_t width, std::uint64_t seed)
      : width_(width), table_(at(words * width)), d_table_(table_.size()) {
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = uniform(seed, static_cast<index_t>(i));
  }
  numbers forward(const std::vector<index_t>& ids) {
    ids_ = ids;
    numbers y;
    for (index_t id : ids)
      for (index_t i = 0; i < width_; ++i) y.push_back(table_[at(id * width_ + i)]);
    return y;
  }
  void backward(const numbers& dy) {
    for (std::size_t r = 0; r < ids_.size(); ++r)
      for (index_t i = 0; i < width_; ++i) d_table_[at(ids_[r] * width_ + i)] += dy[r * at(width_) + at(i)];
  }
  const numbers& gradients() const { return d_table_; }

 private:
  index_t width_;
  numbers table_, d_table_;
  std::vector<index_t> ids_;
};

/// log Σ exp(logits) − logit of the label, for each row; 0 where the label is negative. d_logits, where given, takes
/// d_losses[row]·(softmax(logits) − 1 at the label).
inline numbers cross_entropy(const numbers& logits, const std::vector<index_t>& labels, index_t classes,
                             const numbers& d_losses = {}, numbers* d_logits = nullptr) {
  numbers losses(labels.size());
  if (d_logits) d_logits->assign(logits.size(), 0);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    const float* row = logits.data() + r * at(classes);
    const float most = *std::max_element(row, row + classes);
    float sum = 0;
    for (index_t c = 0; c < classes; ++c) sum += std::exp(row[c] - most);
    losses[r] = std::log(sum) + most - row[labels[r]];
    if (d_logits)
      for (index_t c = 0; c < classes; ++c)
        (*d_logits)[r * at(classes) + at(c)] =
            d_losses[r] * (std::exp(row[c] - most) / sum - (c == labels[r] ? 1.f : 0.f));
  }
  return losses;
}

}  // namespace demo
