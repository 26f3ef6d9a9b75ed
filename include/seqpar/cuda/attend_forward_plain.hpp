// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention forward in plain fp32 arithmetic.
#pragma once

#include <seqpar/cuda/attend_forward_params.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// out = softmax(scale·q·kᵀ | mask)·v and its state, as forward_call has it. Widths of 1 … 256, any strides, any
/// alignment; all sums and weights in fp32. For float, and for rows that attend_forward cannot take.
/// A block takes 32 rows; 16 threads share 4 of them, each with 4 keys at a time, then with 2 columns of every 32.
/// Keys, queries and values pass through shared memory in pieces of 32 columns. Deterministic.
template <class T, class Out, class Mask>
struct attend_forward_plain {
  using params = forward_params<T, Out, Mask>;

 private:
  using sees = sight<Mask>;
  using row_sight = typename sees::row;
  using key_sight = typename sees::key;
  static constexpr int rows = 32, tile_keys = key_rows_of_tile, piece = 32, pieces = 256 / piece;
  static constexpr int pitch = piece + 1, weight_pitch = tile_keys + 4;  // so that no two threads meet in a bank
  static constexpr int keys_at = rows * pitch * 4, weights_at = (keys_at + tile_keys * pitch * 4 + 15) / 16 * 16,
                       row_sights_at = weights_at + rows * weight_pitch * 4,
                       key_sights_at = row_sights_at + rows * static_cast<int>(sizeof(row_sight));

 public:
  static constexpr int threads = 128, blocks_per_sm = 2, rows_per_block = rows, packed_rows = 1;
  static constexpr int shared_bytes = key_sights_at + tile_keys * static_cast<int>(sizeof(key_sight));

  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    const index_t work = p.work(rows);
    for (index_t w = hw.block(); w < work; w += hw.blocks()) {
      const query_part part = query_part::of(p, w, rows);
      if (part.tokens <= 0) continue;
      attend(hw, p, part);
      hw.sync();
    }
  }

 private:
  /// This thread's rows are row_of(hw) + {0 … 3}, its columns of a piece are thread % 16 + {0, 16}.
  struct registers {
    float acc[pieces][4][2], max[4], sum[4];
  };
  template <class Hw>
  SEQPAR_DEVICE static int row_of(Hw& hw) {
    return hw.thread() / 16 * 4;
  }

  template <class Hw>
  SEQPAR_DEVICE static void attend(Hw& hw, const params& p, const query_part& part) {
    if (hw.thread() < rows)
      hw.template shared<row_sight>(row_sights_at)[hw.thread()] =
          sees::row_of(p.queries, part.first + (hw.thread() < part.tokens ? hw.thread() : 0), p.mask);
    registers r;
    start(hw, p, part, r);
    for (segment_walk<T> walk(p.segments, p.segment_count, part.tile); walk.more(); walk.next(part.tile)) {
      const auto& s = walk.segment();
      const key_tile tile = walk.tile();
      if (hw.thread() < tile.rows)
        hw.template shared<key_sight>(key_sights_at)[hw.thread()] =
            sees::key_of(s.keys.position_of(tile, hw.thread()), p.mask);
      float x[4][4];
      scores(hw, p, part, s, tile, x);
      hide(hw, p, walk.kind(), tile.rows, x);
      weigh(hw, x, r);
      add_values(hw, p, part, s, tile, r);
    }
    finish(hw, p, part, r);
  }

  /// Rows × piece elements from column `first` on, as floats; zeros beyond the rows and columns.
  template <int Rows, int Pitch, class Hw, class Place>
  SEQPAR_DEVICE static void bring(Hw& hw, Place to, const T* from, index_t stride, int count, int first, int columns) {
    const int column = hw.thread() % piece;
    for (int row = hw.thread() / piece; row < Rows; row += threads / piece)
      to[row * Pitch + column] =
          row < count && first + column < columns ? hw.widen(from[row * stride + first + column]) : 0.0f;
  }

  /// x = scale·q·kᵀ for this thread's rows and the keys thread % 16 + {0, 16, 32, 48}.
  template <class Hw>
  SEQPAR_DEVICE static void scores(Hw& hw, const params& p, const query_part& part, const cuda::segment<T>& s,
                                   const key_tile& tile, float (&x)[4][4]) {
    const auto q = hw.template shared<float>(0), k = hw.template shared<float>(keys_at);
    each<4>([&](int i) { each<4>([&](int j) { x[i][j] = 0; }); });
    for (int first = 0; first < p.qk_dim; first += piece) {
      bring<rows, pitch>(hw, q, p.q.at(part.batch, part.first, part.head), p.q.token, part.tokens, first, p.qk_dim);
      bring<tile_keys, pitch>(hw, k, s.k.at(part.batch, tile.row, part.kv), s.k.token, tile.rows, first, p.qk_dim);
      hw.sync();
      const int columns = p.qk_dim - first < piece ? p.qk_dim - first : piece;
      for (int d = 0; d < columns; ++d) {
        float a[4], b[4];
        each<4>([&](int i) { a[i] = q[(row_of(hw) + i) * pitch + d]; });
        each<4>([&](int j) { b[j] = k[(hw.thread() % 16 + 16 * j) * pitch + d]; });
        each<4>([&](int i) { each<4>([&](int j) { x[i][j] += a[i] * b[j]; }); });
      }
      hw.sync();
    }
    each<4>([&](int i) { each<4>([&](int j) { x[i][j] *= p.scale; }); });
  }

  template <class Hw>
  SEQPAR_DEVICE static void hide(Hw& hw, const params& p, cover kind, int tile_rows, float (&x)[4][4]) {
    const auto row_sights = hw.template shared<row_sight>(row_sights_at);
    const auto key_sights = hw.template shared<key_sight>(key_sights_at);
    each<4>([&](int i) {
      const row_sight row = row_sights[row_of(hw) + i];
      each<4>([&](int j) {
        const int key = hw.thread() % 16 + 16 * j;
        if (key >= tile_rows || (kind != cover::all && !sees::see(row, key_sights[key], p.mask))) x[i][j] = -infinite;
      });
    });
  }

  /// x becomes weights, in shared memory; max, sum and acc go along.
  template <class Hw>
  SEQPAR_DEVICE static void weigh(Hw& hw, float (&x)[4][4], registers& r) {
    const auto weights = hw.template shared<float>(weights_at);
    each<4>([&](int i) {
      float max = ::fmaxf(::fmaxf(x[i][0], x[i][1]), ::fmaxf(x[i][2], x[i][3]));
      each<4>([&](int bit) { max = ::fmaxf(max, hw.shuffle_xor(max, 1 << bit)); });
      max = ::fmaxf(max, r.max[i]);
      const float from = max == -infinite ? 0 : max;  // a row that sees nothing so far
      const float shrink = hw.exp2((r.max[i] - from) * log2_of_e);
      r.max[i] = max;
      float sum = 0;
      each<4>([&](int j) {
        const float weight = hw.exp2((x[i][j] - from) * log2_of_e);
        weights[(row_of(hw) + i) * weight_pitch + hw.thread() % 16 + 16 * j] = weight;
        sum += weight;
      });
      r.sum[i] = r.sum[i] * shrink + sum;
      each<pieces>([&](int n) { each<2>([&](int c) { r.acc[n][i][c] *= shrink; }); });
    });
  }

  template <class Hw>
  SEQPAR_DEVICE static void add_values(Hw& hw, const params& p, const query_part& part, const cuda::segment<T>& s,
                                       const key_tile& tile, registers& r) {
    const auto v = hw.template shared<float>(keys_at), weights = hw.template shared<float>(weights_at);
    each<pieces>([&](int n) {
      if (n * piece >= p.v_dim) return;
      bring<tile_keys, piece>(hw, v, s.v.at(part.batch, tile.row, part.kv), s.v.token, tile.rows, n * piece, p.v_dim);
      hw.sync();
      for (int j = 0; j < tile.rows; ++j) {
        float b[2];
        each<2>([&](int c) { b[c] = v[j * piece + hw.thread() % 16 + 16 * c]; });
        each<4>([&](int i) {
          const float weight = weights[(row_of(hw) + i) * weight_pitch + j];
          if (weight == 0) return;  // what a row does not see may be NaN
          each<2>([&](int c) { r.acc[n][i][c] += weight * b[c]; });
        });
      }
      hw.sync();
    });
  }

  /// f(column, acc) for the columns that this thread has of one of its rows.
  template <class Hw, class F>
  SEQPAR_DEVICE static void for_each_column(Hw& hw, const params& p, int i, registers& r, F f) {
    each<pieces>([&](int n) {
      each<2>([&](int c) {
        const int column = n * piece + hw.thread() % 16 + 16 * c;
        if (column < p.v_dim) f(column, r.acc[n][i][c]);
      });
    });
  }

  /// From the state, or nothing seen.
  template <class Hw>
  SEQPAR_DEVICE static void start(Hw& hw, const params& p, const query_part& part, registers& r) {
    each<4>([&](int i) {
      each<pieces>([&](int n) { each<2>([&](int c) { r.acc[n][i][c] = 0; }); });
      r.max[i] = -infinite;
      r.sum[i] = 0;
      const int row = row_of(hw) + i;
      if (p.in == state_in::none || row >= part.tokens) return;
      const index_t place = part.place(p, row);
      r.max[i] = p.max[place];
      if (hw.thread() % 16 == 0) r.sum[i] = p.sum[place];
      for_each_column(hw, p, i, r, [&](int column, float& acc) { acc = p.acc[place * p.v_dim + column]; });
    });
  }

  /// Into the state, or out and lse.
  template <class Hw>
  SEQPAR_DEVICE static void finish(Hw& hw, const params& p, const query_part& part, registers& r) {
    each<4>([&](int i) {
      float sum = r.sum[i];
      each<4>([&](int bit) { sum += hw.shuffle_xor(sum, 1 << bit); });
      const int row = row_of(hw) + i;
      if (row >= part.tokens) return;
      const index_t place = part.place(p, row);
      if (p.out_kind == state_out::carry) {
        if (hw.thread() % 16 == 0) {
          p.max[place] = r.max[i];
          p.sum[place] = sum;
        }
        for_each_column(hw, p, i, r, [&](int column, float& acc) { p.acc[place * p.v_dim + column] = acc; });
      } else {
        const float weight = sum == 0 ? 0 : 1 / sum;
        Out* out = p.out.at(part.batch, part.first + row, part.head);
        if (hw.thread() % 16 == 0) p.lse.at(part.batch, part.head, part.first + row) = r.max[i] + ::logf(sum);
        for_each_column(hw, p, i, r,
                        [&](int column, float& acc) { out[column] = hw.template narrow<Out>(acc * weight); });
      }
    });
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
