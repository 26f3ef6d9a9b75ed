// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buffers of which an exchange fills only some rows: all of their rows as memory, and what runs check of them.
#pragma once

#include <initializer_list>

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

/// No buffer with rows is null, and no result shares a byte with another buffer, with scratch or with itself.
template <class = when_used>
status check_buffers(std::initializer_list<placed_array> results, std::initializer_list<placed_array> inputs,
                     const region& scratch, index_t used) {
  const placed_array work{{scratch.pointer, 1, used, used, used, used}, 1, 1};
  for (const auto& list : {results, inputs})
    for (const placed_array& a : list) {
      if (a.has_bytes() && !a.array.pointer) return {errc::invalid_argument, "exchange: a buffer with rows is null"};
      if (may_share(a, work))
        return {errc::overlapping_buffers, "exchange: memory.scratch overlaps in or out; give separate memory"};
    }
  for (const placed_array& a : results)
    if (!one_place_each(a))
      return {errc::overlapping_buffers, "exchange: the strides of a result let its rows overlap; give them room"};
  for (const placed_array& a : results)
    for (const auto& list : {results, inputs})
      for (const placed_array& b : list)
        if (&a != &b && may_share(a, b))
          return {errc::overlapping_buffers, "exchange: in and out overlap; give separate buffers"};
  return {};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
