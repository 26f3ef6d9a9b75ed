// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the accumulators of mma to rows in memory, 16 bytes at a time: the four lanes that hold a row trade columns.
#pragma once

#include <seqpar/cuda/concept.hpp>
#include <seqpar/cuda/each.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// row[d] = weight·x[d / 8][2·half + d % 2] for the columns d that each lane holds. Columns: a multiple of 32; those
/// from `columns` (a multiple of 8) on are left out, and all of a row that is not there. All 32 lanes together.
template <int Columns, class Hw, class To>
SEQPAR_DEVICE void store_row(Hw& hw, const float (&x)[times<Columns / 8>][4], int half, float weight, bool there,
                             To* row, int columns) {
  const int lane = hw.lane() & 3;
  const bool odd = (lane & 1) != 0, high = lane >= 2;
  if constexpr (sizeof(To) == 2) {
    // Four words w[n] of columns 8·n + 2·lane become four of columns 8·lane: a 4 × 4 transpose.
    each<Columns / 32>([&](int group) {
      const int n = 4 * group;
      std::int32_t w[4];
      each<4>([&](int i) {
        w[i] = static_cast<std::int32_t>(
            hw.template pack<To>(x[n + i][2 * half] * weight, x[n + i][2 * half + 1] * weight));
      });
      each<2>([&](int pair) {
        const int i = 2 * pair;
        const std::int32_t got = hw.shuffle_xor(odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
      });
      each<2>([&](int i) {
        const std::int32_t got = hw.shuffle_xor(high ? w[i] : w[i + 2], 2);
        w[i] = high ? got : w[i];
        w[i + 2] = high ? w[i + 2] : got;
      });
      if (there && n * 8 < columns - lane * 8) {
        quad q;
        each<4>([&](int i) { q.word[i] = static_cast<std::uint32_t>(w[i]); });
        hw.store(reinterpret_cast<quad*>(row + lane * 8 + n * 8), q);
      }
    });
  } else {
    To* at = row + lane * 2;
    each<Columns / 8>([&](int n) {
      if (!there || n * 8 >= columns) return;
      at[n * 8] = x[n][2 * half] * weight;
      at[n * 8 + 1] = x[n][2 * half + 1] * weight;
    });
  }
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
