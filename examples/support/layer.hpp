// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A small transformer layer around a sequence-parallel attention plan: everything but attention is local to a rank's
// rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "patches.hpp"

namespace demo {

using seqpar::index_t;
using numbers = std::vector<float>;

inline std::size_t at(index_t i) {
  return static_cast<std::size_t>(i);
}

/// The rows of x[n][width] that `rank` owns, in its order.
template <class Layout>
numbers rows_of(const Layout& layout, int rank, const numbers& x, index_t width) {
  numbers mine;
  for (index_t i = 0; i < layout.count_of(rank); ++i) {
    const auto row = x.begin() + layout.global_of(rank, i) * width;
    mine.insert(mine.end(), row, row + width);
  }
  return mine;
}

/// y[n][out] = x[n][in]·w, w[in][out] fixed by a seed; the gradient of w is this rank's share, to be summed over ranks.
class linear {
 public:
  linear(index_t in, index_t out, std::uint64_t seed) : in_(in), out_(out), w_(at(in * out)), dw_(w_.size()) {
    const float gain = std::sqrt(3.f / static_cast<float>(in));
    for (index_t i = 0; i < in * out; ++i) w_[at(i)] = gain * uniform(seed, i);
  }
  numbers forward(const numbers& x) {
    x_ = x;
    const index_t n = static_cast<index_t>(x.size()) / in_;
    numbers y(at(n * out_));
    for (index_t r = 0; r < n; ++r)
      for (index_t i = 0; i < in_; ++i)
        for (index_t o = 0; o < out_; ++o) y[at(r * out_ + o)] += x[at(r * in_ + i)] * w_[at(i * out_ + o)];
    return y;
  }
  /// dx; adds to the gradient of w.
  numbers backward(const numbers& dy) {
    const index_t n = static_cast<index_t>(dy.size()) / out_;
    numbers dx(at(n * in_));
    for (index_t r = 0; r < n; ++r)
      for (index_t i = 0; i < in_; ++i) {
        float sum = 0;
        for (index_t o = 0; o < out_; ++o) {
          const float d = dy[at(r * out_ + o)];
          sum += d * w_[at(i * out_ + o)];
          dw_[at(i * out_ + o)] += x_[at(r * in_ + i)] * d;
        }
        dx[at(r * in_ + i)] = sum;
      }
    return dx;
  }
  const numbers& gradient() const { return dw_; }

 private:
  index_t in_, out_;
  numbers w_, dw_, x_;
};

/// y = x / √(mean x² + ε), row by row.
class rms_norm {
 public:
  explicit rms_norm(index_t width) : width_(width) {}
  numbers forward(const numbers& x) {
    y_ = x;
    scale_.clear();
    for (index_t r = 0; r < static_cast<index_t>(x.size()) / width_; ++r) {
      float sum = 0;
      for (index_t i = 0; i < width_; ++i) sum += x[at(r * width_ + i)] * x[at(r * width_ + i)];
      const float s = 1 / std::sqrt(sum / static_cast<float>(width_) + 1e-5f);
      for (index_t i = 0; i < width_; ++i) y_[at(r * width_ + i)] *= s;
      scale_.push_back(s);
    }
    return y_;
  }
  numbers backward(const numbers& dy) const {
    numbers dx(dy.size());
    for (index_t r = 0; r < static_cast<index_t>(dy.size()) / width_; ++r) {
      float dot = 0;
      for (index_t i = 0; i < width_; ++i) dot += dy[at(r * width_ + i)] * y_[at(r * width_ + i)];
      dot /= static_cast<float>(width_);
      for (index_t i = 0; i < width_; ++i) {
        const std::size_t e = at(r * width_ + i);
        dx[e] = scale_[at(r)] * (dy[e] - y_[e] * dot);
      }
    }
    return dx;
  }

 private:
  index_t width_;
  numbers y_, scale_;
};

/// Rotates pairs of x[n][heads][dim] by position·10000^(−2i/dim); sign −1 undoes it, which is also its gradient.
inline void rotate(numbers& x, std::span<const index_t> positions, index_t heads, index_t dim, float sign = 1) {
  for (index_t r = 0; r < static_cast<index_t>(positions.size()); ++r)
    for (index_t i = 0; i < dim / 2; ++i) {
      const double angle = static_cast<double>(positions[at(r)]) *
                           std::pow(10000., -2. * static_cast<double>(i) / static_cast<double>(dim));
      const float c = static_cast<float>(std::cos(angle)), s = sign * static_cast<float>(std::sin(angle));
      for (index_t h = 0; h < heads; ++h) {
        float* p = x.data() + (r * heads + h) * dim + 2 * i;
        const float a = p[0], b = p[1];
        p[0] = c * a - s * b;
        p[1] = s * a + c * b;
      }
    }
}

struct layer_shape {
  index_t width, heads, kv_heads, head_dim;
  index_t joint = 0;  ///< the first rows are the plan's joint tokens, in front of the dealt ones; forward only
};

/// x + W_o·attention(rope(W_q·norm(x)), rope(W_k·norm(x)), W_v·norm(x)), with attention over all ranks by `plan`.
template <class Plan>
class layer {
 public:
  layer(const layer_shape& n, Plan& plan, const seqpar::memory& memory, std::span<const index_t> positions,
        std::uint64_t seed)
      : n_(n),
        plan_(plan),
        memory_(memory),
        positions_(positions.begin(), positions.end()),
        norm_(n.width),
        q_(n.width, n.heads * n.head_dim, seed),
        k_(n.width, n.kv_heads * n.head_dim, seed + 1),
        v_(n.width, n.kv_heads * n.head_dim, seed + 2),
        o_(n.heads * n.head_dim, n.width, seed + 3) {}

  numbers forward(const numbers& x) {
    const numbers y = norm_.forward(x);
    query_ = q_.forward(y);
    key_ = k_.forward(y);
    value_ = v_.forward(y);
    rotate(query_, positions_, n_.heads, n_.head_dim);
    rotate(key_, positions_, n_.kv_heads, n_.head_dim);
    out_.assign(query_.size(), 0);
    lse_.assign(positions_.size() * at(n_.heads), 0);
    seqpar::check(
        plan_.forward({.q = wide(query_),
                       .k = narrow(key_),
                       .v = narrow(value_),
                       .out = wide(out_),
                       .lse = lse(),
                       .joint = {.q = joint(query_, n_.heads),
                                 .k = joint(key_, n_.kv_heads),
                                 .v = joint(value_, n_.kv_heads),
                                 .out = joint(out_, n_.heads),
                                 .lse = seqpar::dense_heads(lse_.data() + rows() * n_.heads, {1, n_.heads, n_.joint})}},
                      memory_, seqpar::on_host{}));
    return sum(x, o_.forward(out_));
  }
  /// Where the rows of the coming runs stand.
  void move_to(std::span<const index_t> positions) { positions_.assign(positions.begin(), positions.end()); }
  /// dx; the weights' gradients are added up inside.
  numbers backward(const numbers& dy) {
    numbers dout = o_.backward(dy), dq(query_.size()), dk(key_.size()), dv(value_.size());
    seqpar::check(plan_.backward({.q = wide(query_),
                                  .k = narrow(key_),
                                  .v = narrow(value_),
                                  .out = wide(out_),
                                  .lse = lse(),
                                  .dout = wide(dout),
                                  .dq = wide(dq),
                                  .dk = narrow(dk),
                                  .dv = narrow(dv)},
                                 memory_, seqpar::on_host{}));
    rotate(dq, positions_, n_.heads, n_.head_dim, -1);
    rotate(dk, positions_, n_.kv_heads, n_.head_dim, -1);
    return sum(dy, norm_.backward(sum(sum(q_.backward(dq), k_.backward(dk)), v_.backward(dv))));
  }
  /// This rank's share of the gradients of all weights, one behind the other.
  numbers gradients() const {
    numbers all;
    for (const linear* w : {&q_, &k_, &v_, &o_}) all.insert(all.end(), w->gradient().begin(), w->gradient().end());
    return all;
  }

 private:
  static numbers sum(numbers a, const numbers& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  index_t rows() const { return static_cast<index_t>(positions_.size()) - n_.joint; }  // dealt ones
  seqpar::rows_view<float> dealt(numbers& x, index_t heads) const {
    return seqpar::dense_view(x.data() + n_.joint * heads * n_.head_dim, {1, rows(), heads, n_.head_dim});
  }
  seqpar::rows_view<float> wide(numbers& x) const { return dealt(x, n_.heads); }
  seqpar::rows_view<float> narrow(numbers& x) const { return dealt(x, n_.kv_heads); }
  seqpar::rows_view<float> joint(numbers& x, index_t heads) const {
    return seqpar::dense_view(x.data(), {1, n_.joint, heads, n_.head_dim});
  }
  seqpar::heads_view<float> lse() { return seqpar::dense_heads(lse_.data(), {1, n_.heads, rows()}); }

  layer_shape n_;
  Plan& plan_;
  seqpar::memory memory_;
  std::vector<index_t> positions_;
  rms_norm norm_;
  linear q_, k_, v_, o_;
  numbers query_, key_, value_, out_, lse_;
};

}  // namespace demo
