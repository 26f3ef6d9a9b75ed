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

  template <class F>
  struct row_block {
    F* pointer;
    index_t row;
    F* from(index_t i) const { return pointer + i * row; }
  };
  using float_rows = row_block<const float>;
  using sum_rows = row_block<float>;

  /// May these rows be used where they lie, in whole vectors? Rows that are far apart share few sets of a cache: unless
  /// they are used only `once`, they are brought together first.
  static bool lie_well(const rows_view<const float>& view, bool once) {
    return view.dim() % V::lanes == 0 && (once || view.stride[1] == view.dim());
  }

  /// buffer[i][d] = row(first + i)[d]; zeros in the rows marked as skipped and, both ways, up to whole vectors.
  template <class T>
  static void copy(const rows_view<const T>& view, index_t b, index_t first, index_t rows, index_t h,
                   const bool* skipped, float* buffer) {
    const index_t dim = view.dim(), pitch = padded(dim);
    for (index_t i = 0; i < rows; ++i, buffer += pitch) {
      const T* from = view.row(b, first + i, h);
      const bool skip = skipped && skipped[i];
      for (index_t d = 0; d < dim; d += V::lanes)
        V::store(buffer + d, skip ? typename V::floats{} : V::widened(from + d, dim - d));
    }
    std::fill(buffer, buffer + (padded(rows) - rows) * pitch, 0.0f);
  }

  /// Rows to be read as vectors of floats: where they lie if that is what they are, else in `buffer`.
  template <class T>
  static float_rows rows_of(const rows_view<const T>& view, index_t b, const key_tile& tile, index_t h, bool once,
                            float* buffer) {
    if constexpr (std::is_same_v<T, float>)
      if (lie_well(view, once)) return {view.row(b, tile.row, h), view.stride[1]};
    copy(view, b, tile.row, tile.rows, h, nullptr, buffer);
    return {buffer, padded(view.dim())};
  }

  /// Rows to be added to: where they lie or in `buffer`, with the same sums in the same order. give_back ends it.
  static sum_rows borrow(const rows_view<float>& view, index_t b, index_t first, index_t rows, index_t h, bool once,
                         float* buffer) {
    if (lie_well(view, once)) return {view.row(b, first, h), view.stride[1]};
    copy<float>(view, b, first, rows, h, nullptr, buffer);
    return {buffer, padded(view.dim())};
  }
  static void give_back(const sum_rows& sums, const rows_view<float>& view, index_t b, index_t first, index_t rows,
                        index_t h) {
    if (sums.pointer == view.row(b, first, h)) return;
    for (index_t i = 0; i < rows; ++i) std::copy_n(sums.from(i), view.dim(), view.row(b, first + i, h));
  }

  /// columns[d][i] = scale·rows[i][d], both in whole vectors.
  static void transpose(const float* rows, index_t pitch, index_t count, float scale, float* columns) {
    for (index_t i = 0; i < count; i += V::lanes)
      for (index_t d = 0; d < pitch; d += V::lanes) {
        typename V::floats block[std::size_t{V::lanes}];
#pragma GCC unroll 16
        for (int l = 0; l < V::lanes; ++l) block[l] = scale * V::load(rows + (i + l) * pitch + d);
        V::transpose(block);
#pragma GCC unroll 16
        for (int l = 0; l < V::lanes; ++l) V::store(columns + (d + l) * queries + i, block[l]);
      }
  }

  static void scale_row(float* row, index_t n, float by) {
    if (by == 1) return;
    for (index_t d = 0; d < n; d += V::lanes) V::store(row + d, by * V::load(row + d));
  }
};

/// The mask of one query tile, asked for one key tile after the other.
template <int Bytes, class Mask>
class masker {
  using V = vectors<Bytes>;
  using tile = host_tile<Bytes>;
  static constexpr bool intervals = std::is_same_v<Mask, by_intervals>;

 public:
  void start(const query_table& table, const query_tile& queries, const Mask& mask) {
    table_ = &table;
    queries_ = queries;
    mask_ = &mask;
    hull_[0] = hull_[1] = {unbounded, 0};
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
  key_tile trimmed(const key_table& keys, key_tile t, cover kind) const {
    if constexpr (intervals) {
      if (kind == cover::all) return t;
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

  /// scores[key][query] ← −∞ where the query may not see the key.
  void apply(const key_table& keys, const key_tile& t, cover kind, float* scores) {
    any_absent_ = false;
    if (kind == cover::all) return;
    for (std::int32_t j = 0; j < t.rows; ++j, scores += tile::queries) {
      absent_[j] = !apply(keys.position_of(t, j), scores);
      any_absent_ = any_absent_ || absent_[j];
    }
  }

  /// f(first, count) for the runs of keys, among those last applied, that some query sees: the others may hold NaN, and
  /// 0·NaN must not reach a sum.
  template <class F>
  void for_seen(index_t rows, F&& f) const {
    if (!any_absent_) return f(index_t{0}, rows);
    for (index_t end = 0; end < rows; ++end) {
      if (absent_[end]) continue;
      const index_t first = end;
      while (end < rows && !absent_[end]) ++end;
      f(first, end - first);
    }
  }

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
        const bool sees = may_see(*table_, index_t{queries_.row} + i, position, *mask_);
        scores[i] = sees ? scores[i] : minus_infinity;
        seen = seen || sees;
      }
      return seen;
    }
  }

  const query_table* table_;
  query_tile queries_;
  const Mask* mask_;
  alignas(Bytes) std::uint32_t low_[2][tile::queries], width_[2][tile::queries];
  interval hull_[2];
  bool absent_[tile::keys];
  bool any_absent_;
};

}  // namespace v0_1
}  // namespace seqpar
