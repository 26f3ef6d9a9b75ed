// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buffers of which an exchange fills only some rows: all of their rows as memory, and what runs check of them.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// A buffer of `rows` rows per item with all strides said. An exchange would take its dense batch stride from the rows
/// that it wants itself.
inline row_buffer whole_rows(row_buffer b, index_t rows, const exchange_options& o) {
  if (b.row_stride == 0) b.row_stride = o.row_bytes;
  if (b.batch_stride == 0) b.batch_stride = rows * b.row_stride;
  if (b.column_stride == 0) b.column_stride = o.row_bytes / o.columns;
  return b;
}

/// Of a buffer that whole_rows gave.
inline placed_array placed(const row_buffer& b, index_t rows, const exchange_options& o) {
  return {
      {b.pointer, o.batch, b.batch_stride, b.row_stride, b.column_stride, o.row_bytes / o.columns}, rows, o.columns};
}

/// No buffer with rows is null, and the first shares no byte with another.
template <class... Others>
status check_buffers(const placed_array& first, const Others&... others) {
  for (const placed_array& a : {first, others...})
    if (a.has_bytes() && !a.array.pointer) return {errc::invalid_argument, "exchange: a buffer with rows is null"};
  for (const placed_array& a : {others...})
    if (may_share(first, a)) return {errc::overlapping_buffers, "exchange: in and out overlap; give separate buffers"};
  return {};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
