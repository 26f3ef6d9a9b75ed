// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention as its definition says, in double, with the size of the terms behind every element: what results are
// compared with, and how near they must come.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <seqpar/types.hpp>

namespace seqpar::test {

/// q [batch][q_tokens][heads][qk_dim], k [batch][k_tokens][kv_heads][qk_dim], v [batch][k_tokens][kv_heads][v_dim],
/// out and dout like q with v_dim, lse and dlse [batch][heads][q_tokens].
struct dense_shape {
  index_t batch = 1, q_tokens = 0, k_tokens = 0, heads = 1, kv_heads = 1, qk_dim = 0, v_dim = 0;
  constexpr index_t q_size() const { return batch * q_tokens * heads * qk_dim; }
  constexpr index_t k_size() const { return batch * k_tokens * kv_heads * qk_dim; }
  constexpr index_t v_size() const { return batch * k_tokens * kv_heads * v_dim; }
  constexpr index_t out_size() const { return batch * q_tokens * heads * v_dim; }
  constexpr index_t lse_size() const { return batch * heads * q_tokens; }
};

/// Self attention: as many keys as queries, as many kv heads as heads, one width.
constexpr dense_shape self_shape(index_t tokens, index_t heads, index_t dim, index_t batch = 1) {
  return {batch, tokens, tokens, heads, heads, dim, dim};
}

/// Values, and per element its magnitude: (1 + max|s|)·Σ|terms|, where |s| = Σ_d |scale·q_d·k_d|.
/// An fp32 computation is right when |error| ≤ c·2^-24·magnitude (tolerance.hpp).
struct dense_result {
  std::vector<double> out, lse, delta, dq, dk, dv;
  std::vector<double> out_magnitude, lse_magnitude, dq_magnitude, dk_magnitude, dv_magnitude;
};

struct dense_options {
  double scale = 1;
  /// Relative rounding of the out that delta was computed from (2^-8 for bfloat16), widening the gradients' magnitude.
  double out_roundoff = 0;
};

constexpr double default_scale = std::numeric_limits<double>::quiet_NaN();

/// The definition. `allows(q, k)` on token indices (add offsets inside it). Keys and values that a query may not see
/// are never read, so they may be NaN. Empty dout: forward only; empty dlse: zero. scale = default_scale: 1/√qk_dim.
template <class Q, class K, class V, class D, class Allows>
dense_result dense_attention(const dense_shape& n, dense_options options, const std::vector<Q>& q,
                             const std::vector<K>& k, const std::vector<V>& v, const std::vector<D>& dout,
                             const std::vector<float>& dlse, Allows&& allows) {
  const double scale = std::isnan(options.scale) ? 1 / std::sqrt(static_cast<double>(n.qk_dim)) : options.scale;
  const auto zeros = [](index_t size) { return std::vector<double>(static_cast<std::size_t>(size)); };
  const auto at = [](const auto& values, index_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  const auto ref = [](std::vector<double>& values, index_t i) -> double& {
    return values[static_cast<std::size_t>(i)];
  };
  const bool backward = !dout.empty();
  dense_result r{zeros(n.out_size()), zeros(n.lse_size()), {}, {}, {}, {},
                 zeros(n.out_size()), zeros(n.lse_size()), {}, {}, {}};
  if (backward) {
    r.delta = zeros(n.lse_size());
    r.dq = r.dq_magnitude = zeros(n.q_size());
    r.dk = r.dk_magnitude = zeros(n.k_size());
    r.dv = r.dv_magnitude = zeros(n.v_size());
  }
  std::vector<double> p(static_cast<std::size_t>(n.k_tokens));
  std::vector<index_t> seen;
  for (index_t b = 0; b < n.batch; ++b)
    for (index_t h = 0; h < n.heads; ++h)
      for (index_t i = 0; i < n.q_tokens; ++i) {
        const index_t kv = h / (n.heads / n.kv_heads);
        const index_t q0 = ((b * n.q_tokens + i) * n.heads + h) * n.qk_dim;
        const index_t o0 = ((b * n.q_tokens + i) * n.heads + h) * n.v_dim;
        const index_t l0 = (b * n.heads + h) * n.q_tokens + i;
        const auto k0 = [&](index_t j) { return ((b * n.k_tokens + j) * n.kv_heads + kv) * n.qk_dim; };
        const auto v0 = [&](index_t j) { return ((b * n.k_tokens + j) * n.kv_heads + kv) * n.v_dim; };
        seen.clear();
        for (index_t j = 0; j < n.k_tokens; ++j)
          if (allows(i, j)) seen.push_back(j);
        if (seen.empty()) {
          ref(r.lse, l0) = -std::numeric_limits<double>::infinity();
          continue;
        }
        double max = -std::numeric_limits<double>::infinity(), size = 0, sum = 0;
        for (index_t j : seen) {
          double s = 0, s_size = 0;
          for (index_t d = 0; d < n.qk_dim; ++d) {
            const double term = scale * at(q, q0 + d) * at(k, k0(j) + d);
            s += term;
            s_size += std::abs(term);
          }
          ref(p, j) = s;
          max = std::max(max, s);
          size = std::max(size, s_size);
        }
        for (index_t j : seen) sum += ref(p, j) = std::exp(at(p, j) - max);
        for (index_t j : seen) ref(p, j) /= sum;
        const double weight = 1 + size;
        ref(r.lse, l0) = max + std::log(sum);
        ref(r.lse_magnitude, l0) = weight;
        for (index_t j : seen)
          for (index_t d = 0; d < n.v_dim; ++d) {
            const double term = at(p, j) * at(v, v0(j) + d);
            ref(r.out, o0 + d) += term;
            ref(r.out_magnitude, o0 + d) += weight * std::abs(term);
          }
        if (!backward) continue;

        double delta = dlse.empty() ? 0 : -at(dlse, l0), delta_size = std::abs(delta);
        for (index_t d = 0; d < n.v_dim; ++d) {
          const double term = at(dout, o0 + d) * at(r.out, o0 + d);
          delta += term;
          delta_size += std::abs(term) * (1 + options.out_roundoff * 0x1p24);
        }
        ref(r.delta, l0) = delta;
        for (index_t j : seen) {
          double dp = 0, dp_size = 0;
          for (index_t d = 0; d < n.v_dim; ++d) {
            const double term = at(dout, o0 + d) * at(v, v0(j) + d);
            dp += term;
            dp_size += std::abs(term);
            ref(r.dv, v0(j) + d) += at(p, j) * at(dout, o0 + d);
            ref(r.dv_magnitude, v0(j) + d) += weight * at(p, j) * std::abs(at(dout, o0 + d));
          }
          const double ds = scale * at(p, j) * (dp - delta);
          const double ds_size = weight * std::abs(scale) * at(p, j) * (dp_size + delta_size);
          for (index_t d = 0; d < n.qk_dim; ++d) {
            ref(r.dq, q0 + d) += ds * at(k, k0(j) + d);
            ref(r.dq_magnitude, q0 + d) += ds_size * std::abs(at(k, k0(j) + d));
            ref(r.dk, k0(j) + d) += ds * at(q, q0 + d);
            ref(r.dk_magnitude, k0(j) + d) += ds_size * std::abs(at(q, q0 + d));
          }
        }
      }
  return r;
}

}  // namespace seqpar::test
