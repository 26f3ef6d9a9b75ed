// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each rank has to do in a step of teacher forcing, as a table and a picture.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "compare.hpp"
#include "patches.hpp"
#include "svg.hpp"
#include "table.hpp"

namespace demo {

struct rank_work {
  index_t loss_tokens = 0;
  index_t frames = 0;  ///< encoded
  index_t halo = 0;    ///< frames of other ranks that each convolution reads
};

/// Pairs (query, key) that the rows of a rank attend to: counted from the mask.
template <class Layout, class Mask>
index_t pairs_of(const Layout& layout, const Mask& mask, int rank) {
  index_t pairs = 0;
  for (index_t i = 0; i < layout.count_of(rank); ++i) {
    const seqpar::interval_pair keys = mask.key_intervals(layout.global_of(rank, i));
    pairs += keys.first.size() + keys.second.size();
  }
  return pairs;
}

class generation_report {
 public:
  /// A line of the table. Compared are loss, outputs and gradients. False: something is wrong.
  template <class Inner>
  bool add(const std::string& name, const patches& clip, const seqpar::paired<Inner>& layout, index_t block_frames,
           const std::vector<rank_work>& work, const seqpar::mean& loss, const std::vector<comparison>& compared) {
    const index_t n = clip.tokens(), block = block_frames * clip.tokens_per_frame();
    index_t frames = 0, loss_tokens = 0;
    std::string encoded, losses, comma;
    for (const rank_work& w : work) {
      frames += w.frames;
      loss_tokens += w.loss_tokens;
      encoded += comma + count_text(w.frames) + "+" + count_text(w.halo);
      losses += comma + count_text(w.loss_tokens);
      comma = ", ";
    }
    bool good = frames == clip.frames && loss_tokens == n && loss.count == n && follows_rule(layout, block);
    std::vector<std::string> line{std::to_string((n + block - 1) / block) + " blocks, " + name,
                                  joined(block_pairs(layout, block)), losses, encoded, fixed_text(loss.value, 5)};
    for (const comparison& c : compared) {
      line.push_back(tiny_text(c.worst()));
      good = good && c.good();
    }
    line.push_back(good ? "equal" : "WRONG");
    table_.add(line);
    return good;
  }
  void print(double tolerance) const {
    table_.print();
    std::printf(
        "\npairs: attended (query block, key block) of each rank · loss tokens: the noisy ones · frames: encoded + "
        "read from other ranks by each convolution\n"
        "d: largest difference from one rank / max|x|, over all tensors; tolerance %s\n\n",
        tiny_text(tolerance).c_str());
  }
  /// Owners and mask of a layout.
  template <class Inner>
  void draw(const std::string& path, const patches& clip, const seqpar::paired<Inner>& layout,
            index_t block_frames) const {
    const index_t n = clip.tokens(), block = block_frames * clip.tokens_per_frame();
    const seqpar::teacher_forcing mask{.clean = n, .block = block};
    std::vector<std::string> legend = block_pairs(layout, block);
    for (std::size_t r = 0; r < legend.size(); ++r)
      legend[r] = "rank " + std::to_string(r) + ": " + legend[r] + " block pairs, " +
                  count_text(layout.inner.count_of(static_cast<int>(r))) + " loss tokens";
    const picture_text text{"Teacher forcing, clean then noisy",
                            count_text(n) + " clean tokens and their noisy copies, each beside its own on one rank",
                            legend,
                            clip.rows,
                            clip.columns,
                            clip.brightness};
    write_file(path, draw_picture(
                         text, 2 * n, layout.rank_count(), [&](index_t t) { return layout.place_of(t).rank; },
                         [&](index_t q, index_t k) { return mask.allows(q, k); }));
    std::printf("picture %s\n\n", path.c_str());
  }

 private:
  /// Of each rank; with a fraction where the last block is short.
  template <class Inner>
  static std::vector<std::string> block_pairs(const seqpar::paired<Inner>& layout, index_t block) {
    const index_t n = layout.inner.token_count();
    std::vector<std::string> pairs;
    for (int r = 0; r < layout.rank_count(); ++r) {
      const index_t tokens = pairs_of(layout, seqpar::teacher_forcing{.clean = n, .block = block}, r);
      pairs.push_back(
          fixed_text(static_cast<double>(tokens) / static_cast<double>(block * block), n % block == 0 ? 0 : 1));
    }
    return pairs;
  }
  /// The mask in one sentence: a token, clean or noisy, sees as many as there are clean ones up to its block's end.
  template <class Inner>
  static bool follows_rule(const seqpar::paired<Inner>& layout, index_t block) {
    const index_t n = layout.inner.token_count();
    bool good = true;
    for (int r = 0; r < layout.rank_count(); ++r) {
      index_t rule = 0;
      for (index_t i = 0; i < layout.inner.count_of(r); ++i)
        rule += 2 * std::min(n, (layout.inner.global_of(r, i) / block + 1) * block);
      good = good && rule == pairs_of(layout, seqpar::teacher_forcing{.clean = n, .block = block}, r);
    }
    return good;
  }
  static std::string joined(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
    return all;
  }

  table table_{{"", "pairs", "loss tokens", "frames", "loss", "d loss", "d outputs", "d gradients", ""}};
};

}  // namespace demo
