// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The mean of a loss over tokens, as kernel bodies: from two sums, and back to every token.
#pragma once

#include <seqpar/cuda/block_kernels.hpp>
#include <seqpar/exchange/sums.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// Σ loss over the valid tokens, and their number: what all_reduce<double> of two elements adds.
struct loss_sums {
  double loss, tokens;
};

/// out = the mean of the sums; 0 when there are no tokens.
struct mean_body {
  static constexpr int threads = 32, blocks_per_sm = 1, shared_bytes = 0;
  struct params {
    const loss_sums* sums;
    mean* out;
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    if (hw.block() > 0 || hw.thread() > 0) return;
    const double tokens = p.sums->tokens;
    p.out->count = static_cast<index_t>(tokens);  // exact below 2^53
    p.out->value = tokens > 0 ? p.sums->loss / tokens : 0;
  }
};

/// d_losses[i] = d_mean / count for the tokens i that count, else 0. `valid` is called on the device.
template <element T, class Valid>
struct mean_adjoint_body : unit_body<4> {
  struct params {
    const mean* of;
    T* d_losses;
    index_t tokens;
    double d_mean;
    Valid valid;
    index_t work() const { return work_of(tokens); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    const index_t count = p.of->count;
    const float each[] = {count > 0 ? static_cast<float>(p.d_mean * (1 / static_cast<double>(count))) : 0.f};
    const float none[] = {0.f};
    for (index_t w = hw.block(), n = work_of(p.tokens); w < n; w += hw.blocks())
      mean_adjoint_body::for_own(w, hw.thread(), p.tokens, [&](std::size_t, index_t i) {
        detail::put_elements<T>(hw, reinterpret_cast<std::byte*>(p.d_losses + i), p.valid(i) ? each : none);
      });
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
