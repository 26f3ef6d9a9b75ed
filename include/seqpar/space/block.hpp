// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bytes in a strided pattern: what copies, adds and messages are of.
#pragma once

#include <cstdint>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Bytes in a strided pattern: `rows` rows, each of `columns` pieces of `column_bytes` bytes.
/// Row i, column c starts at pointer + i·row_stride + c·column_stride. Strides in bytes.
struct block {
  void* pointer = nullptr;
  index_t rows = 0, row_stride = 0;
  index_t columns = 1, column_stride = 0;
  index_t column_bytes = 0;
  constexpr index_t bytes() const { return rows * columns * column_bytes; }
  /// Are the columns of a row side by side?
  constexpr bool dense_rows() const { return columns <= 1 || column_stride == column_bytes; }
  /// Is the whole block one piece of memory?
  constexpr bool dense() const { return dense_rows() && (rows <= 1 || row_stride == columns * column_bytes); }
};

/// Four bytes, and where they go: word `at` of some memory.
struct placed_word {
  std::uint32_t at, value;
};

/// `bytes` contiguous bytes. A const pointer is accepted for sending; nothing is written through it.
inline block dense_block(const void* pointer, index_t bytes) {
  return {const_cast<void*>(pointer), 1, bytes, 1, bytes, bytes};
}

}  // namespace v0_1
}  // namespace seqpar
