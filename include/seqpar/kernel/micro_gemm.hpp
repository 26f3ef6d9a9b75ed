// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A small matrix product held in registers: the loop in which the host kernel spends its time.
#pragma once

#include <type_traits>

#include <seqpar/kernel/vector.hpp>

namespace seqpar {
inline namespace v0_1 {

/// C[i][j] = or += Σ_p A(i, p)·B[p][j] for i < m, j < n, p = 0, 1, … in this order.
/// A(i, p) = a[i·a_row + p·a_depth], read one element at a time; B and C are row-major with dense rows of n rounded up
/// to whole vectors. The order of the sum does not depend on the shape of the blocks.
template <int Bytes>
struct micro_gemm {
  using V = vectors<Bytes>;
  using floats = typename V::floats;

  static constexpr int block_vectors = V::registers == 32 ? 4 : 2;
  static constexpr int block_rows = 6;

  enum class into { set, add };

  template <into To>
  static void multiply(index_t m, index_t n, index_t depth, const float* a, index_t a_row, index_t a_depth,
                       const float* b, index_t b_row, float* c, index_t c_row) {
    if (m <= 0) return;
    const index_t b_step = depth > 0 ? V::lanes : 0;  // without depth A and B may be null
    if (depth <= 0) a_row = 0;
    // Columns outside, so that a panel of B stays in the first-level cache while A streams by; panels of even width.
    const index_t all = (n + V::lanes - 1) / V::lanes, panels = (all + block_vectors - 1) / block_vectors;
    for (index_t panel = 0, done = 0; panel < panels; ++panel) {
      const index_t width = (all - done + panels - panel - 1) / (panels - panel);
      const auto panel_of = [&](auto w) {
        columns<To, w>(m, depth, a, a_row, a_depth, b + done * b_step, b_row, c + done * V::lanes, c_row);
      };
      if (width == 1) panel_of(std::integral_constant<int, 1>{});
      if (width == 2) panel_of(std::integral_constant<int, 2>{});
      if constexpr (block_vectors == 4) {
        if (width == 3) panel_of(std::integral_constant<int, 3>{});
        if (width == 4) panel_of(std::integral_constant<int, 4>{});
      }
      done += width;
    }
  }

 private:
  template <into To, int Width>
  static void columns(index_t m, index_t depth, const float* a, index_t a_row, index_t a_depth, const float* b,
                      index_t b_row, float* c, index_t c_row) {
    index_t i = 0;
    const auto rows = [&](auto height) {
      block<To, height, Width>(depth, a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row, c_row);
      i += height;
    };
    // 6, 6, … and a rest of 4 + 4, 4, 2 or 1: the last blocks still have enough sums to hide the adder's latency.
    while (m - i >= block_rows && m - i != 8) rows(std::integral_constant<int, block_rows>{});
    while (m - i >= 4) rows(std::integral_constant<int, 4>{});
    if (m - i >= 2) rows(std::integral_constant<int, 2>{});
    if (m - i >= 1) rows(std::integral_constant<int, 1>{});
  }

  template <into To, int Height, int Width>
  static void block(index_t depth, const float* a, index_t a_row, index_t a_depth, const float* b, index_t b_row,
                    float* c, index_t c_row) {
    floats sum[std::size_t{Height}][std::size_t{Width}];
#pragma GCC unroll 8
    for (int i = 0; i < Height; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Width; ++j) sum[i][j] = To == into::add ? V::load(c + i * c_row + j * V::lanes) : floats{};
    for (index_t p = 0; p < depth; ++p, a += a_depth, b += b_row) {
      floats row[std::size_t{Width}];
#pragma GCC unroll 8
      for (int j = 0; j < Width; ++j) row[j] = V::load(b + j * V::lanes);
#pragma GCC unroll 8
      for (int i = 0; i < Height; ++i) {
        const floats x = V::splat(a[i * a_row]);
#pragma GCC unroll 8
        for (int j = 0; j < Width; ++j) sum[i][j] += x * row[j];
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Height; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Width; ++j) V::store(c + i * c_row + j * V::lanes, sum[i][j]);
  }
};

}  // namespace v0_1
}  // namespace seqpar
