// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two partial results over different keys made into the result over both.
#pragma once

#include <cmath>

#include <seqpar/types.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

/// How two normalised partials of one row are averaged: out = first·out₁ + second·out₂, and the lse of both.
///   lse = log(e^lse₁ + e^lse₂),  first = e^(lse₁ − lse),  second = e^(lse₂ − lse)
/// A partial that saw nothing has lse = −∞ and weight exactly 0; the other then has weight exactly 1, and its lse
/// stays. Two empty ones: both weights 0, lse −∞. Large differences do not overflow.
struct merge_weights {
  float first, second, lse;

  SEQPAR_HD static merge_weights of(float a, float b) {
    const float none = -HUGE_VALF;
    if (b == none) return {a == none ? 0.0f : 1.0f, 0, a};
    if (a == none) return {0, 1, b};
    const float max = a > b ? a : b, ea = std::exp(a - max), eb = std::exp(b - max), sum = ea + eb;
    return {ea / sum, eb / sum, max + std::log(sum)};
  }
};

/// (out, lse) ← the merge of (out, lse) and (other, other_lse), row by row. All fp32; out and other
/// [batch, rows, heads, dim], lse and other_lse [batch, heads, rows]. A part of weight 0 is not read, so it may hold
/// anything. merge is commutative, and associative up to rounding; an empty partial changes no bit.
inline void merge(const rows_view<float>& out, const heads_view<float>& lse, const rows_view<const float>& other,
                  const heads_view<const float>& other_lse) {
  for (index_t b = 0; b < out.batch(); ++b)
    for (index_t h = 0; h < out.heads(); ++h)
      for (index_t t = 0; t < out.tokens(); ++t) {
        const merge_weights weight = merge_weights::of(lse.at(b, h, t), other_lse.at(b, h, t));
        lse.at(b, h, t) = weight.lse;
        if (weight.first == 1 && weight.second == 0) continue;
        float* to = out.row(b, t, h);
        const float* from = other.row(b, t, h);
        for (index_t d = 0; d < out.dim(); ++d)
          to[d] = (weight.first == 0 ? 0 : weight.first * to[d]) + (weight.second == 0 ? 0 : weight.second * from[d]);
      }
}

}  // namespace v0_1
}  // namespace seqpar
