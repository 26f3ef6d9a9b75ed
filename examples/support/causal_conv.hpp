// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A convolution over time that looks back, on frames dealt over ranks: the frames before a rank's own come by a halo
// exchange.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "layer.hpp"

namespace demo {

/// y(t) = tanh(Σ_k x(t − taps + 1 + k)·w_k) for every token of a frame, w[taps·width][width] fixed by a seed.
///
/// `halo` was planned in place with .before = taps − 1 frames and a filled border, for rows of `width` floats.
template <class Halo>
class causal_conv {
 public:
  causal_conv(Halo& halo, const seqpar::memory& memory, index_t taps, index_t frame_tokens, index_t width,
              std::uint64_t seed)
      : halo_(halo),
        memory_(memory),
        taps_(taps),
        step_(frame_tokens * width),
        width_(width),
        weights_(taps * width, width, seed) {}

  numbers forward(const numbers& x) {
    numbers padded(at(halo_.padded_bytes()) / sizeof(float));
    std::copy(x.begin(), x.end(), padded.end() - size_of(x));
    seqpar::check(halo_.forward(padded.data(), padded.data(), memory_, seqpar::on_host{}));
    numbers seen(x.size() * at(taps_));  // a row: the same place of a frame in `taps` frames, oldest first
    each_tap(x.size(), [&](std::size_t row, std::size_t from) {
      std::copy_n(padded.begin() + static_cast<std::ptrdiff_t>(from), width_,
                  seen.begin() + static_cast<std::ptrdiff_t>(row));
    });
    y_ = weights_.forward(seen);
    for (float& y : y_) y = std::tanh(y);
    return y_;
  }
  /// dx, with what later ranks' frames saw of mine; the weights' gradient is added up inside.
  numbers backward(numbers dy) {
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= 1 - y_[i] * y_[i];
    const numbers dseen = weights_.backward(dy);
    numbers dpadded(at(halo_.padded_bytes()) / sizeof(float));
    each_tap(dy.size(), [&](std::size_t row, std::size_t from) {
      for (std::size_t c = 0; c < at(width_); ++c) dpadded[from + c] += dseen[row + c];
    });
    seqpar::check(halo_.template adjoint<float>(dpadded.data(), dpadded.data(), memory_, seqpar::on_host{}));
    return {dpadded.end() - size_of(dy), dpadded.end()};
  }
  const numbers& gradient() const { return weights_.gradient(); }

 private:
  static std::ptrdiff_t size_of(const numbers& x) { return static_cast<std::ptrdiff_t>(x.size()); }
  /// f(place in the rows of `taps`·width, place in the padded frames) for every token and tap.
  template <class F>
  void each_tap(std::size_t own, F&& f) const {
    for (index_t i = 0; i < static_cast<index_t>(own); i += width_)
      for (index_t k = 0; k < taps_; ++k) f(at(i * taps_ + k * width_), at(i + k * step_));
  }

  Halo& halo_;
  seqpar::memory memory_;
  index_t taps_, step_, width_;
  linear weights_;
  numbers y_;
};

}  // namespace demo
