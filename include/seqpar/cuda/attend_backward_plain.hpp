// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradients of attention in fp32 arithmetic: any dims, any strides, any type.
#pragma once

#include <cstdint>
#include <type_traits>

#include <seqpar/cuda/attend_backward_walk.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {
namespace backward {

/// The walks of attend_backward, 64 × 32 scores at a time; the operands pass through shared memory 32 columns at a
/// time, and sums go to memory after every step. A thread has four rows, 16 apart, and four columns, 8 apart, of
/// whatever is computed.
template <class T, class Mask, bool ByKeys>
struct plain_pass {
  static constexpr int threads = 128, blocks_per_sm = 4, rows = 64, step = 32, width = 32, pitch = width + 1;
  using side = std::conditional_t<ByKeys, keys_side<T, Mask, rows, step>, queries_side<T, Mask, rows, step>>;
  using params = arguments<T, Mask>;
  using held_sight = typename side::held;
  using walked_sight = typename side::walked;

  static constexpr int p_at = 0, ds_at = p_at + 4 * rows * pitch, held_at = ds_at + 4 * rows * pitch,
                       walked_at = held_at + 4 * rows * pitch, seen_at = walked_at + 4 * step * pitch,
                       numbers_at = seen_at + 4 * 8 * (threads / 32),
                       held_sights_at = numbers_at + rows * static_cast<int>(sizeof(row_numbers)),
                       walked_sights_at = held_sights_at + rows * static_cast<int>(sizeof(held_sight)),
                       shared_bytes = walked_sights_at + step * static_cast<int>(sizeof(walked_sight));

  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = side::work(p); w < n; w += hw.blocks())
      for (side at(p, w); at.more(); at.next()) add_step(hw, p, at);
  }

 private:
  struct matrix {
    float x[4][4];
  };
  template <class T2>
  struct tile {
    const T2* from;
    index_t stride;
    int rows;
  };

  template <class Hw>
  SEQPAR_DEVICE static void add_step(Hw& hw, const params& p, const side& at) {
    const auto numbers = hw.template shared<row_numbers>(numbers_at);
    const auto held_sights = hw.template shared<held_sight>(held_sights_at);
    const auto walked_sights = hw.template shared<walked_sight>(walked_sights_at);
    const int mine = hw.thread(), there = at.walked_rows() < step ? at.walked_rows() : step;
    hw.sync();
    if (mine < rows) held_sights[mine] = at.held_of(mine);
    if (mine < (ByKeys ? step : rows)) numbers[mine] = at.numbers_of(mine, 0);
    if (mine < step) walked_sights[mine] = at.walked_of(mine);
    const tile<T> walked1{at.walked1(), at.walked_stride1(), there}, walked2{at.walked2(), at.walked_stride2(), there};
    matrix s = products(hw, tile<T>{at.held1(), at.held_stride1(), at.held_rows()}, walked1, p.qk_dim);
    matrix ds = products(hw, tile<T>{at.held2(), at.held_stride2(), at.held_rows()}, walked2, p.v_dim);

    const float scale = p.scale * log2e;
    int seen = 0;
    each<4>([&](int i) {
      const int row = mine / 8 + 16 * i;
      const held_sight held = held_sights[row];
      each<4>([&](int j) {
        const int column = mine % 8 + 8 * j;
        const row_numbers n = numbers[ByKeys ? column : row];
        const walked_sight walked = walked_sights[column];
        const bool sees = row < at.held_rows() && column < there && n.adds() && side::see(held, walked, p.mask);
        if (sees) seen |= 1 << j;
        s.x[i][j] = sees ? hw.exp2(s.x[i][j] * scale - n.lse) : 0.0f;
        ds.x[i][j] = sees ? s.x[i][j] * (ds.x[i][j] - n.delta) : 0.0f;
      });
    });
    put(hw, p_at, s);
    put(hw, ds_at, ds);
    seen |= hw.shuffle_xor(seen, 8);
    seen |= hw.shuffle_xor(seen, 16);
    if (hw.lane() < 8) hw.template shared<std::int32_t>(seen_at)[8 * hw.warp() + hw.lane()] = seen;

    if constexpr (ByKeys) add(hw, p_at, walked2, p.v_dim, 1, at.sums2(0), at.sums_stride2(), at.held_rows());
    add(hw, ds_at, walked1, p.qk_dim, p.scale, at.sums1(0), at.sums_stride1(), at.held_rows());
  }

  /// Σ_d a[row][d]·b[column][d]
  template <class Hw>
  SEQPAR_DEVICE static matrix products(Hw& hw, const tile<T>& a, const tile<T>& b, int columns) {
    matrix sums{};
    for (int first = 0; first < columns; first += width) {
      hw.sync();
      load<rows>(hw, held_at, a, first, columns, [](int) { return true; });
      load<step>(hw, walked_at, b, first, columns, [](int) { return true; });
      hw.sync();
      const auto x = hw.template shared<float>(held_at) + hw.thread() / 8 * pitch;
      const auto y = hw.template shared<float>(walked_at) + hw.thread() % 8 * pitch;
      for (int d = 0; d < width; ++d) {
        float left[4], right[4];
        each<4>([&](int i) { left[i] = x[16 * i * pitch + d]; });
        each<4>([&](int j) { right[j] = y[8 * j * pitch + d]; });
        each<4>([&](int i) { each<4>([&](int j) { sums.x[i][j] += left[i] * right[j]; }); });
      }
    }
    return sums;
  }

  /// to[row][d] += factor·Σ_k weights[row][k]·b[k][d]. What no row sees may hold anything, and counts as 0.
  template <class Hw>
  SEQPAR_DEVICE static void add(Hw& hw, int weights, const tile<T>& b, int columns, float factor, float* to,
                                index_t stride, int rows_there) {
    const auto seen = hw.template shared<std::int32_t>(seen_at);
    for (int first = 0; first < columns; first += width) {
      hw.sync();
      load<step>(hw, walked_at, b, first, columns, [&](int row) {
        int is = 0;
        each<threads / 32>([&](int w) { is |= seen[8 * w + row % 8] >> (row / 8) & 1; });
        return is != 0;
      });
      hw.sync();
      const auto x = hw.template shared<float>(weights) + hw.thread() / 8 * pitch;
      const auto y = hw.template shared<float>(walked_at) + hw.thread() % 8;
      matrix sums{};
      for (int k = 0; k < step; ++k) {
        float left[4], right[4];
        each<4>([&](int i) { left[i] = x[16 * i * pitch + k]; });
        each<4>([&](int j) { right[j] = y[k * pitch + 8 * j]; });
        each<4>([&](int i) { each<4>([&](int j) { sums.x[i][j] += left[i] * right[j]; }); });
      }
      each<4>([&](int i) {
        each<4>([&](int j) {
          const int row = hw.thread() / 8 + 16 * i, column = first + hw.thread() % 8 + 8 * j;
          if (row < rows_there && column < columns) to[row * stride + column] += factor * sums.x[i][j];
        });
      });
    }
  }

  template <int Rows, class Hw, class Wanted>
  SEQPAR_DEVICE static void load(Hw& hw, int place, const tile<T>& from, int first, int columns, Wanted&& wanted) {
    const auto to = hw.template shared<float>(place);
    const int d = hw.thread() % width;
    for (int row = hw.thread() / width; row < Rows; row += threads / width) {
      const bool there = row < from.rows && first + d < columns && wanted(row);
      to[row * pitch + d] = there ? hw.widen(from.from[row * from.stride + first + d]) : 0.0f;
    }
  }
  template <class Hw>
  SEQPAR_DEVICE static void put(Hw& hw, int place, const matrix& m) {
    const auto to = hw.template shared<float>(place) + (hw.thread() / 8 * pitch + hw.thread() % 8);
    each<4>([&](int i) { each<4>([&](int j) { to[16 * i * pitch + 8 * j] = m.x[i][j]; }); });
  }
};

}  // namespace backward

/// attend_backward_keys and attend_backward_queries for any dims 1 … 256, strides and types, in fp32 throughout.
template <class T, class Mask>
using attend_backward_plain_keys = backward::plain_pass<T, Mask, true>;
template <class T, class Mask>
using attend_backward_plain_queries = backward::plain_pass<T, Mask, false>;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
