// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Do two strided blocks share a byte? Exact, so that interleaved blocks of one buffer are told from overlapping ones.
#pragma once

#include <cstdint>
#include <utility>

#include <seqpar/space/block.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// A block as addresses, with strides ≥ 0 and none where there is one row or one column.
struct byte_lattice {
  index_t start = 0, rows = 0, row_stride = 0, columns = 0, column_stride = 0, column_bytes = 0;

  explicit byte_lattice(const block& b)
      : start(static_cast<index_t>(reinterpret_cast<std::uintptr_t>(b.pointer))),
        rows(b.rows),
        row_stride(b.row_stride),
        columns(b.columns),
        column_stride(b.column_stride),
        column_bytes(b.column_bytes) {
    if (b.dense_rows()) {
      column_bytes *= columns;
      columns = 1;
    }
    if (b.dense()) {
      column_bytes *= rows;
      rows = 1;
    }
    straighten(rows, row_stride);
    straighten(columns, column_stride);
  }
  index_t row_extent() const { return (columns - 1) * column_stride + column_bytes; }
  index_t end() const { return start + (rows - 1) * row_stride + row_extent(); }
  index_t pieces() const { return rows * columns; }

  /// Does a piece meet the bytes lo ≤ x < hi?
  bool meets(index_t lo, index_t hi) const {
    const interval r = near_steps(start, row_extent(), row_stride, rows, lo, hi);
    for (index_t i = r.lo; i < r.hi; ++i)
      if (!near_steps(start + i * row_stride, column_bytes, column_stride, columns, lo, hi).empty()) return true;
    return false;
  }

 private:
  void straighten(index_t& count, index_t& stride) {
    if (count > 1 && stride < 0) {
      start += (count - 1) * stride;
      stride = -stride;
    }
    if (count <= 1) stride = 0;
    if (stride == 0) count = 1;  // the same bytes again
  }
  static index_t floor_div(index_t a, index_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
  /// The i in 0 ≤ i < count for which [first + i·stride, … + extent) meets [lo, hi).
  static interval near_steps(index_t first, index_t extent, index_t stride, index_t count, index_t lo, index_t hi) {
    if (stride == 0) return {0, first < hi && lo < first + extent ? index_t{1} : index_t{0}};
    return intersection({floor_div(lo - extent - first, stride) + 1, floor_div(hi - first - 1, stride) + 1},
                        {0, count});
  }
};

/// Along equal strides only the difference of the two indices counts, so one side needs a single step.
inline void fix_one(index_t& count, index_t stride, index_t& other_start, index_t& other_count, index_t other_stride) {
  if (stride == 0 || stride != other_stride) return;
  other_start -= (count - 1) * stride;
  other_count += count - 1;
  count = 1;
}
}  // namespace detail

/// The addresses from the first byte of a block to the last.
inline interval hull_of(const block& b) {
  if (b.bytes() == 0) return {};
  const detail::byte_lattice x(b);
  return {x.start, x.end()};
}

/// Is there a byte that belongs to both?
inline bool overlap(const block& a, const block& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  detail::byte_lattice x(a), y(b);
  if (x.end() <= y.start || y.end() <= x.start) return false;
  detail::fix_one(x.rows, x.row_stride, y.start, y.rows, y.row_stride);
  detail::fix_one(x.columns, x.column_stride, y.start, y.columns, y.column_stride);
  if (y.pieces() < x.pieces()) std::swap(x, y);
  for (index_t i = 0; i < x.rows; ++i)
    for (index_t j = 0; j < x.columns; ++j) {
      const index_t lo = x.start + i * x.row_stride + j * x.column_stride;
      if (y.meets(lo, lo + x.column_bytes)) return true;
    }
  return false;
}

}  // namespace v0_1
}  // namespace seqpar
