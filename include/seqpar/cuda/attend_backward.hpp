// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradients of attention on tensor cores: a pass over key tiles for dK and dV, then one over query tiles for dQ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <seqpar/cuda/attend_backward_tiles.hpp>
#include <seqpar/cuda/attend_backward_walk.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {
namespace backward {

/// One pass: the block holds two operands (K and V, or Q and dO) and walks over two others (Q and dO, or K and V), in
/// two stages.
template <class T, class Class, class Mask, bool ByKeys, int Architecture>
struct pass {
  static constexpr choice made = choice_of(Architecture, Class::qk, Class::v);
  static constexpr backward_choice form = ByKeys ? made.by_keys : made.by_queries;
  using side =
      std::conditional_t<ByKeys, keys_side<T, Mask, form.rows, form.step>, queries_side<T, Mask, form.rows, form.step>>;
  using params = arguments<T, Mask>;

 private:
  // Shared memory: what is held | two stages of what is walked over | numbers of query rows walked over | sights of
  // both | columns seen.
  static constexpr int qk = Class::qk, v = Class::v, step = form.step, rows = form.rows;
  static constexpr int held_bytes = rows * (qk + v) * 2, stage_bytes = step * (qk + v) * 2;
  using held_sight = typename side::held;
  using walked_sight = typename side::walked;
  static constexpr int numbers_at = held_bytes + 2 * stage_bytes,
                       held_at = numbers_at + (ByKeys ? 2 * step * static_cast<int>(sizeof(row_numbers)) : 0),
                       walked_at = held_at + rows * static_cast<int>(sizeof(held_sight)),
                       seen_at = walked_at + 2 * step * static_cast<int>(sizeof(walked_sight));

 public:
  static constexpr int threads = 2 * rows, blocks_per_sm = form.blocks;
  static constexpr int shared_bytes = seen_at + threads / 32 * 16;

  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = side::work(p); w < n; w += hw.blocks()) {
      const side at(p, w);
      if (!at.more()) continue;
      if constexpr (!ByKeys) {
        sums_of<true, false>(hw, p, at);
      } else if constexpr (form.walks == 2) {  // as many sums as fit in registers
        sums_of<false, true>(hw, p, at);
        sums_of<true, false>(hw, p, at);
      } else {
        sums_of<true, true>(hw, p, at);
      }
    }
  }

 private:
  /// fp16 holds 2^−24 … 2^16: p ≤ 1 is held as 2^15·p, and dS as fit() says.
  static constexpr bool is_short = std::is_same_v<T, float16>;
  static constexpr int p_lift = is_short ? 15 : 0;
  static constexpr float most_p = 32768;

  template <class Hw>
  SEQPAR_DEVICE static auto stage_place(Hw& hw, int stage) {
    return hw.template shared<T>(held_bytes + stage * stage_bytes);
  }
  /// The numbers of the query rows of a thread's scores: of its two rows, or of the columns.
  struct own_numbers {
    row_numbers row[2];
    template <class Hw>
    SEQPAR_DEVICE row_numbers of(Hw& hw, int stage, int j, int i) const {
      if constexpr (!ByKeys) return row[i / 2];
      const int column = 8 * j + hw.lane() % 4 * 2 + i % 2;
      return hw.template shared<row_numbers>(numbers_at)[stage * step + column];
    }
  };

  template <class Hw>
  SEQPAR_DEVICE static void copy_step(Hw& hw, const params& p, const side& at, int stage) {
    const auto to = stage_place(hw, stage);
    copy_rows<step, qk, threads>(hw, to, at.walked1(), at.walked_stride1(), at.walked_rows(), p.qk_dim);
    copy_rows<step, v, threads>(hw, to + step * qk, at.walked2(), at.walked_stride2(), at.walked_rows(), p.v_dim);
    hw.commit_copies();
  }

  /// One walk: dK (or dQ), dV, or both.
  template <bool First, bool Second, class Hw>
  SEQPAR_DEVICE static void sums_of(Hw& hw, const params& p, side at) {
    const auto held = hw.template shared<T>(0);
    const int row = 16 * hw.warp(), mine = hw.thread();

    hw.sync();  // all are done with what was held before
    copy_rows<rows, qk, threads>(hw, held, at.held1(), at.held_stride1(), at.held_rows(), p.qk_dim);
    if constexpr (First)
      copy_rows<rows, v, threads>(hw, held + rows * qk, at.held2(), at.held_stride2(), at.held_rows(), p.v_dim);
    copy_step(hw, p, at, 0);
    const auto numbers_place = hw.template shared<row_numbers>(numbers_at);
    const auto walked_place = hw.template shared<walked_sight>(walked_at);
    if (mine < rows) hw.template shared<held_sight>(held_at)[mine] = at.held_of(mine);
    if (mine < step) walked_place[mine] = at.walked_of(mine);
    own_numbers own{};
    if constexpr (ByKeys) {
      if (mine < step) numbers_place[mine] = at.numbers_of(mine, p_lift);
    } else {
      for (int r = 0; r < 2; ++r) own.row[r] = at.numbers_of(row + hw.lane() / 4 + 8 * r, p_lift);
    }

    constexpr int n1 = First ? qk / 8 : 1, n2 = Second ? v / 8 : 1;
    float sums1[times<n1>][4] = {}, sums2[times<n2>][4] = {};
    int unit = 100;
    for (int stage = 0;; stage ^= 1) {
      hw.template wait_copies<0>();
      hw.sync();
      const int there = at.walked_rows();
      const bool whole = at.whole();
      at.next();
      const bool more = at.more();
      row_numbers numbers{};
      walked_sight walked{};
      if (more) {
        copy_step(hw, p, at, stage ^ 1);
        if (mine < step) {
          if constexpr (ByKeys) numbers = at.numbers_of(mine, p_lift);
          walked = at.walked_of(mine);
        }
      }
      add_step<First, Second>(hw, p, own, at.held_rows(), there, whole, stage, sums1, sums2, unit);
      if (!more) break;
      if (mine < step) {
        if constexpr (ByKeys) numbers_place[(stage ^ 1) * step + mine] = numbers;
        walked_place[(stage ^ 1) * step + mine] = walked;
      }
    }
    const int left = at.held_rows() - row;
    const float lift = power_of_two(-p_lift);
    if constexpr (First)
      add_rows<qk>(hw, at.sums1(row), at.sums_stride1(), left, p.qk_dim, sums1,
                   p.scale * lift * (is_short ? power_of_two(-unit) : 1.0f));
    if constexpr (Second) add_rows<v>(hw, at.sums2(row), at.sums_stride2(), left, p.v_dim, sums2, lift);
  }

  /// What one step of the walk adds. S and dP stay where the products leave them, and are operands of the next ones.
  template <bool First, bool Second, class Hw, std::size_t N1, std::size_t N2>
  SEQPAR_DEVICE static void add_step(Hw& hw, const params& p, const own_numbers& own, int held_rows, int there,
                                     bool whole, int stage, float (&sums1)[N1][4], float (&sums2)[N2][4], int& unit) {
    const auto held = hw.template shared<T>(0), walked1 = stage_place(hw, stage), walked2 = walked1 + step * qk;
    const int row = 16 * hw.warp();
    std::uint32_t seen = ~0u;  // a bit for each of this thread's scores
    if (!whole) {
      seen = look(hw, p.mask, own, held_rows, there, stage);
      if (!hw.any(seen != 0)) return;
    }
    float s[times<step / 8>][4] = {};
    multiply_rows<T, step, qk>(hw, s, held, row, walked1, p.qk_dim);
    const float scale = p.scale * log2e;
    for (int j = 0; j < step / 8; ++j)
      for (int i = 0; i < 4; ++i) {
        float x = hw.exp2(s[j][i] * scale - own.of(hw, stage, j, i).lse);
        if (is_short && x > most_p) x = most_p;  // rounding of huge scores, or it would be infinite in T
        s[j][i] = seen >> (4 * j + i) & 1u ? x : 0.0f;
      }
    if constexpr (Second) multiply_columns<T, step, v>(hw, sums2, s, walked2);
    if constexpr (First) {
      float ds[times<step / 8>][4] = {};
      multiply_rows<T, step, v>(hw, ds, held + rows * qk, row, walked2, p.v_dim);
      for (int j = 0; j < step / 8; ++j)
        for (int i = 0; i < 4; ++i) {
          const float x = s[j][i] * (ds[j][i] - own.of(hw, stage, j, i).delta);
          ds[j][i] = seen >> (4 * j + i) & 1u ? x : 0.0f;
        }
      if constexpr (is_short) fit(hw, ds, sums1, unit);
      multiply_columns<T, step, qk>(hw, sums1, ds, walked1);
    }
  }

  /// Which of this thread's scores count: bit 4·j + i. Walked rows that none in the block sees become 0: they may hold
  /// anything, and 0·NaN is no 0.
  template <class Hw>
  SEQPAR_DEVICE static std::uint32_t look(Hw& hw, const Mask& mask, const own_numbers& own, int held_rows, int there,
                                          int stage) {
    const auto held = hw.template shared<held_sight>(held_at);
    const auto walked = hw.template shared<walked_sight>(walked_at) + stage * step;
    const int row0 = 16 * hw.warp() + hw.lane() / 4, column0 = hw.lane() % 4 * 2;
    std::uint32_t seen = 0;
    std::int32_t columns = 0;  // bit 2·j + c: is the column seen, or empty?
    for (int r = 0; r < 2; ++r) {
      const int row = row0 + 8 * r;
      const held_sight mine = held[row];
      for (int j = 0; j < step / 8; ++j)
        for (int c = 0; c < 2; ++c) {
          const int column = 8 * j + column0 + c;
          const walked_sight other = walked[column];
          if (row < held_rows && column < there && own.of(hw, stage, j, 2 * r + c).adds() &&
              side::see(mine, other, mask)) {
            seen |= 1u << (4 * j + 2 * r + c);
            columns |= 1 << (2 * j + c);
          }
          if (column >= there) columns |= 1 << (2 * j + c);
        }
    }
    for (int lanes = 4; lanes < 32; lanes *= 2) columns |= hw.shuffle_xor(columns, lanes);
    const auto words = hw.template shared<std::int32_t>(seen_at);
    if (hw.lane() < 4) words[4 * hw.warp() + hw.lane()] = columns;
    hw.sync();
    for (int w = 0; w < threads / 32; ++w) columns |= words[4 * w + hw.lane() % 4];
    constexpr std::int32_t every = static_cast<std::int32_t>((std::uint32_t{1} << (step / 4)) - 1);
    if (hw.any(columns != every)) {  // the same in all warps
      const auto rows_of_walked = stage_place(hw, stage).template cast<quad>();
      for (int j = 0; j < step / 4; ++j)
        if ((columns >> j & 1) == 0) {
          const int column = j / 2 * 8 + column0 + j % 2;
          for (int c = hw.thread() / 4; c < qk / 8; c += threads / 4) rows_of_walked[column * (qk / 8) + c] = quad{};
          for (int c = hw.thread() / 4; c < v / 8; c += threads / 4)
            rows_of_walked[step * (qk / 8) + column * (v / 8) + c] = quad{};
        }
      hw.sync();
    }
    return seen;
  }

  /// dS knows no bounds: a warp's are held in units of 2^−unit, and so are its sums. The unit starts small, and grows
  /// whenever one would not fit, as the maximum of an online softmax does; what then is too small to be held is 2^−38
  /// of the largest.
  template <class Hw, std::size_t N>
  SEQPAR_DEVICE static void fit(Hw& hw, float (&ds)[times<step / 8>][4], float (&sums)[N][4], int& unit) {
    float most = 0;
    for (int j = 0; j < step / 8; ++j)
      for (int i = 0; i < 4; ++i) {
        const float x = ds[j][i] < 0 ? -ds[j][i] : ds[j][i];
        most = x > most ? x : most;
      }
    if (hw.any(most * power_of_two(unit) >= 32768.0f)) {
      for (int mask = 1; mask < 32; mask *= 2) {
        const float other = hw.shuffle_xor(most, mask);
        most = other > most ? other : most;
      }
      const int exponent = static_cast<int>(__builtin_bit_cast(std::uint32_t, most) >> 23) - 127;
      const float shrink = power_of_two(14 - exponent - unit);
      for (std::size_t j = 0; j < N; ++j)
        for (int i = 0; i < 4; ++i) sums[j][i] *= shrink;
      unit = 14 - exponent;
    }
    const float by = power_of_two(unit);
    for (int j = 0; j < step / 8; ++j)
      for (int i = 0; i < 4; ++i) ds[j][i] *= by;
  }
};

}  // namespace backward

/// dv += pᵀ·dout and dk += scale·dsᵀ·q, as backward_call has them, by m16n8k16 products with fp32 sums
/// (FlashAttention-2, Dao 2023; scores by keys, so that P and dS stay in registers). A block per (key tile, kv head,
/// batch item) loops over the heads of the group and over the query tiles that see its keys, in order; it alone adds to
/// its rows. A one-pass kernel would walk like this one and hand dS·K of each step to the query tile's owner, in the
/// order of the key tiles. Requires: widths of at most Class, multiples of 8; rows of q, k, v, dout, dq, dk, dv on 16
/// bytes; of lse that p ≤ 1. Numbers: P and dS are rounded to T, so beyond the fp32 bound |err| ≤
/// roundoff<T>·Σ|p·dout|, roundoff<T>·Σ|ds·q|. float16: p is held as 2^15·p, dS in a unit that fits the largest so far,
/// so neither overflows, and what is lost below is 2^−40 of 1, 2^−39 of the largest dS. Rows and keys whose p is 0
/// throughout a block may hold anything. Deterministic.
template <class T, class Class, class Mask, int Architecture = 80>
using attend_backward_keys = backward::pass<T, Class, Mask, true, Architecture>;

/// dq += scale·ds·k, likewise. A block per (query tile or half of one, head, batch item).
template <class T, class Class, class Mask, int Architecture = 80>
using attend_backward_queries = backward::pass<T, Class, Mask, false, Architecture>;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
