// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pieces of the backward bodies: products of swizzled tiles, and sums added to rows of fp32.
#pragma once

#include <cstdint>

#include <seqpar/cuda/each.hpp>
#include <seqpar/cuda/tiles.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {
namespace backward {

/// Four neighbours in a row of fp32.
struct alignas(16) four_floats {
  float x[4];
};

/// 2^e; 0 below the normal numbers.
SEQPAR_HD inline float power_of_two(int e) {
  return e < -126 ? 0.0f : __builtin_bit_cast(float, static_cast<std::uint32_t>(e + 127) << 23);
}

/// sums[j] += A·Bᵀ for 16 rows of A from `row` and all rows of B, eight by eight; both swizzled, Columns elements a
/// row.
template <class T, int RowsB, int Columns, class Hw, class Place>
SEQPAR_DEVICE void multiply_rows(Hw& hw, float (&sums)[times<RowsB / 8>][4], Place a, int row, Place b, int columns) {
  const auto of_a = fragment<Columns>::by_row(hw.lane()), of_b = fragment<Columns>::by_column(hw.lane());
  for (int k = 0; 16 * k < columns; ++k) {
    std::uint32_t left[4];
    hw.template load_matrices<T>(left, a + of_a.at(row, k));
    for (int j = 0; j < RowsB / 16; ++j) {
      std::uint32_t both[4];
      hw.template load_matrices<T>(both, b + of_b.at(16 * j, k));
      const std::uint32_t first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
      hw.template mma<T>(sums[2 * j], left, first);
      hw.template mma<T>(sums[2 * j + 1], left, second);
    }
  }
}

/// sums[j] += P·B: P is 16 × RowsB, held as an mma leaves it; B as in multiply_rows.
template <class T, int RowsB, int Columns, class Hw, class Place>
SEQPAR_DEVICE void multiply_columns(Hw& hw, float (&sums)[times<Columns / 8>][4], const float (&p)[times<RowsB / 8>][4],
                                    Place b) {
  const auto of_b = fragment<Columns>::by_row(hw.lane());
  for (int k = 0; k < RowsB / 16; ++k) {
    const float(&lo)[4] = p[2 * k], (&hi)[4] = p[2 * k + 1];
    const std::uint32_t left[4] = {hw.template pack<T>(lo[0], lo[1]), hw.template pack<T>(lo[2], lo[3]),
                                   hw.template pack<T>(hi[0], hi[1]), hw.template pack<T>(hi[2], hi[3])};
    for (int j = 0; j < Columns / 16; ++j) {
      std::uint32_t both[4];
      hw.template load_matrices_transposed<T>(both, b + of_b.at(16 * k, j));
      const std::uint32_t first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
      hw.template mma<T>(sums[2 * j], left, first);
      hw.template mma<T>(sums[2 * j + 1], left, second);
    }
  }
}

/// to[row][column] += factor·sums for 16 rows, of which `rows` are there, and `columns` columns. Neighbouring lanes
/// swap halves, so that each adds to four columns of one row.
template <int Columns, class Hw>
SEQPAR_DEVICE void add_rows(Hw& hw, float* to, index_t stride, int rows, int columns,
                            const float (&sums)[times<Columns / 8>][4], float factor) {
  const int lane = hw.lane(), odd = lane % 2;
  const int row = lane / 4 + 8 * odd;
  float* at = to + row * stride + lane % 4 / 2 * 4;
  for (int j = 0; j < Columns / 8; ++j) {
    const float(&s)[4] = sums[j];
    const float got0 = hw.shuffle_xor(odd ? s[0] : s[2], 1), got1 = hw.shuffle_xor(odd ? s[1] : s[3], 1);
    if (row >= rows || j * 8 >= columns) continue;
    four_floats* four = reinterpret_cast<four_floats*>(at + j * 8);
    four_floats f = *four;
    f.x[0] += factor * (odd ? got0 : s[0]);
    f.x[1] += factor * (odd ? got1 : s[1]);
    f.x[2] += factor * (odd ? s[2] : got0);
    f.x[3] += factor * (odd ? s[3] : got1);
    *four = f;
  }
}

}  // namespace backward
}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
