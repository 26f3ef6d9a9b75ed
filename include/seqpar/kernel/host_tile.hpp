// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One tile of the fast host kernel: rows made into floats that vectors can read, and the mask laid over its scores.
#pragma once

#include <algorithm>
#include <limits>

#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/vector.hpp>
#include <seqpar/kernel/visit.hpp>

namespace seqpar {
inline namespace v0_1 {

template <int Bytes>
struct host_tile {
  static constexpr index_t queries = 64, keys = 128;
  using V = vectors<Bytes>;
  static_assert(queries % V::lanes == 0);

  /// n rounded up to whole vectors.
  static constexpr index_t padded(index_t n) { return (n + V::lanes - 1) / V::lanes * V::lanes; }

  /// f(first column, width as a constant number of vectors) over the columns of a tile of scores.
  template <class F>
  static void for_columns(index_t n, F&& f) {
    constexpr int wide = V::registers == 32 ? 4 : 2;
    index_t i = 0;
    for (; i + (wide - 1) * V::lanes < n; i += wide * V::lanes) f(i, std::integral_constant<int, wide>{});
    for (; i < n; i += V::lanes) f(i, std::integral_constant<int, 1>{});
  }

  struct float_rows {
    const float* pointer;
    index_t row;
  };

  /// buffer[i][d] = scale·row(first + i)[d], with zeros up to whole vectors and in the rows marked as skipped.
  template <class T>
  static void copy(const rows_view<const T>& view, index_t b, index_t first, index_t rows, index_t h, float scale,
                   const bool* skipped, float* buffer) {
    const index_t dim = view.dim(), pitch = padded(dim);
    for (index_t i = 0; i < rows; ++i, buffer += pitch) {
      const T* from = view.row(b, first + i, h);
      const bool skip = skipped && skipped[i];
      if (!skip)
        for (index_t d = 0; d < dim; ++d) buffer[d] = scale * static_cast<float>(from[d]);
      std::fill(buffer + (skip ? 0 : dim), buffer + pitch, 0.0f);
    }
  }

  /// A tile's rows to be read element by element: where they lie if they are floats, else converted in `buffer`.
  template <class T>
  static float_rows elements(const rows_view<const T>& view, index_t b, const key_tile& tile, index_t h,
                             float* buffer) {
    if constexpr (std::is_same_v<T, float>) {
      return {view.row(b, tile.row, h), view.stride[1]};
    } else {
      copy(view, b, tile.row, tile.rows, h, 1, nullptr, buffer);
      return {buffer, padded(view.dim())};
    }
  }

  /// A tile's rows to be read in whole vectors: where they lie if that does not pass a row's end, else padded in
  /// `buffer`. Rows that no query sees become zeros, for 0·NaN must not reach a sum.
  template <class T>
  static float_rows vectors_of(const rows_view<const T>& view, index_t b, const key_tile& tile, index_t h,
                               const bool* absent, float* buffer) {
    if constexpr (std::is_same_v<T, float>)
      if (!absent && view.dim() % V::lanes == 0) return elements(view, b, tile, h, buffer);
    copy(view, b, tile.row, tile.rows, h, 1, absent, buffer);
    return {buffer, padded(view.dim())};
  }

  /// columns[d][i] = scale·q(row i)[d]: queries across the lanes, zeros in the lanes past the tile.
  template <class T>
  static void transpose(const rows_view<const T>& q, index_t b, const query_tile& tile, index_t h, float scale,
                        float* columns) {
    const index_t dim = q.dim();
    if (tile.rows < queries) std::fill(columns, columns + dim * queries, 0.0f);
    for (index_t i = 0; i < tile.rows; ++i) {
      const T* from = q.row(b, tile.row + i, h);
      for (index_t d = 0; d < dim; ++d) columns[d * queries + i] = scale * static_cast<float>(from[d]);
    }
  }

  static void transpose(const float* from, index_t pitch, index_t rows, index_t dim, float* columns) {
    transpose(rows_view<const float>{from, {1, rows, 1, dim}, {0, pitch, 0, 1}}, 0,
              query_tile{0, static_cast<std::int32_t>(rows)}, 0, 1, columns);
  }

  static void scale_row(float* row, index_t n, float by) {
    if (by != 1)
      for (index_t d = 0; d < n; ++d) row[d] *= by;
  }
};

/// The mask of one query tile, asked for one key tile after the other.
template <int Bytes, class Mask>
class masker {
  using V = vectors<Bytes>;
  using tile = host_tile<Bytes>;
  static constexpr bool intervals = std::is_same_v<Mask, by_intervals>;

 public:
  masker(const query_table& table, const query_tile& queries, const Mask& mask)
      : table_(table), queries_(queries), mask_(mask) {
    if constexpr (intervals) {
      // lo ≤ p < hi is one unsigned comparison, p − lo < hi − lo; lanes past the tile see nothing.
      for (index_t i = 0; i < tile::queries; ++i) {
        const std::size_t row = static_cast<std::size_t>(queries.row + i);
        const bool inside = i < queries.rows;
        set(0, i, inside ? interval{table.lo0[row], table.hi0[row]} : interval{});
        set(1, i, inside ? interval{table.lo1[row], table.hi1[row]} : interval{});
      }
    }
  }

  /// The tile without the keys at its ends that lie outside of all the queries' intervals.
  key_tile trimmed(const key_table& keys, key_tile t) const {
    if constexpr (intervals) {
      const auto outside = [&](std::int32_t i) {
        const index_t p = keys.position_of(t, i);
        return !hull_[0].contains(p) && !hull_[1].contains(p);
      };
      std::int32_t begin = 0, end = t.rows;
      while (begin < end && outside(begin)) ++begin;
      while (begin < end && outside(end - 1)) --end;
      t = {t.row + begin, end - begin, t.position + begin * t.step, t.step};
    }
    return t;
  }

  /// scores[key][query] ← −∞ where the query may not see the key; then absent() names the keys that no query sees.
  void apply(const key_table& keys, const key_tile& t, float* scores) {
    any_absent_ = false;
    for (std::int32_t j = 0; j < t.rows; ++j, scores += tile::queries) {
      absent_[j] = !apply(keys.position_of(t, j), scores);
      any_absent_ = any_absent_ || absent_[j];
    }
  }

  /// Per key of the last tile: does no query see it? Null if every key is seen.
  const bool* absent() const { return any_absent_ ? absent_ : nullptr; }

 private:
  void set(int which, index_t i, interval keys) {
    low_[which][i] = static_cast<std::uint32_t>(keys.lo);
    width_[which][i] = static_cast<std::uint32_t>(keys.size());
    if (!keys.empty()) hull_[which] = {(std::min)(hull_[which].lo, keys.lo), (std::max)(hull_[which].hi, keys.hi)};
  }

  /// One row of scores; is the key seen at all?
  bool apply(std::int32_t position, float* scores) const {
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    if constexpr (intervals) {
      using words = typename V::words;
      typename V::ints seen{};
      const words p = words{} + static_cast<std::uint32_t>(position);
      for (index_t i = 0; i < queries_.rows; i += V::lanes) {
        const auto sees = (p - V::template load<words>(low_[0] + i) < V::template load<words>(width_[0] + i)) |
                          (p - V::template load<words>(low_[1] + i) < V::template load<words>(width_[1] + i));
        V::store(scores + i, sees ? V::load(scores + i) : V::splat(minus_infinity));
        seen |= sees;
      }
      return V::any(seen);
    } else {
      bool seen = false;
      for (std::int32_t i = 0; i < queries_.rows; ++i) {
        const bool sees = may_see(table_, index_t{queries_.row} + i, position, mask_);
        scores[i] = sees ? scores[i] : minus_infinity;
        seen = seen || sees;
      }
      return seen;
    }
  }

  const query_table& table_;
  query_tile queries_;
  const Mask& mask_;
  alignas(Bytes) std::uint32_t low_[2][tile::queries], width_[2][tile::queries];
  interval hull_[2] = {{unbounded, 0}, {unbounded, 0}};
  bool absent_[tile::keys];
  bool any_absent_ = false;
};

}  // namespace v0_1
}  // namespace seqpar
