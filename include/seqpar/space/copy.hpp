// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One strided block of bytes to another, once, with nothing in between.
#pragma once

#include <cstdint>
#include <cstring>

#include <seqpar/space/block.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
inline std::byte* byte_at(const block& b, index_t offset) {
  return static_cast<std::byte*>(b.pointer) + offset;
}

/// The same bytes in the same order, in fewer and longer pieces: columns that touch become one, rows that touch become
/// one, and evenly spaced columns of one row become rows.
inline block merged(block b) {
  if (b.dense_rows()) {
    b.column_bytes *= b.columns;
    b.columns = 1;
    if (b.rows <= 1 || b.row_stride == b.column_bytes) return dense_block(b.pointer, b.rows * b.column_bytes);
  } else if (b.rows <= 1 || b.row_stride == b.columns * b.column_stride) {
    b.rows *= b.columns;
    b.columns = 1;
    b.row_stride = b.column_stride;
  }
  return b;
}

/// `b` cut into the rows and columns of `other`, where its bytes lie so that this is possible.
inline block cut_like(block b, const block& other) {
  const index_t row_bytes = other.columns * other.column_bytes;
  if (b.columns != 1) return b;
  if (b.rows == 1) return {b.pointer, other.rows, row_bytes, other.columns, other.column_bytes, other.column_bytes};
  if (b.rows == other.rows)
    return {b.pointer, b.rows, b.row_stride, other.columns, other.column_bytes, other.column_bytes};
  if (b.rows == other.rows * other.columns)
    return {b.pointer, other.rows, other.columns * b.row_stride, other.columns, b.row_stride, other.column_bytes};
  return b;
}

/// Pieces of a size known to the compiler: a few moves each instead of a call.
template <std::size_t Bytes>
void copy_pieces(std::byte* to, index_t to_stride, const std::byte* from, index_t from_stride, index_t count) {
  for (index_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, Bytes);
}

template <class = when_used>
void copy_pieces(std::byte* to, index_t to_stride, const std::byte* from, index_t from_stride, index_t count,
                 index_t bytes) {
  switch (bytes) {
    case 2:
      return copy_pieces<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_pieces<4>(to, to_stride, from, from_stride, count);
    case 8:
      return copy_pieces<8>(to, to_stride, from, from_stride, count);
    case 16:
      return copy_pieces<16>(to, to_stride, from, from_stride, count);
    case 32:
      return copy_pieces<32>(to, to_stride, from, from_stride, count);
    case 64:
      return copy_pieces<64>(to, to_stride, from, from_stride, count);
    case 128:
      return copy_pieces<128>(to, to_stride, from, from_stride, count);
    case 256:
      return copy_pieces<256>(to, to_stride, from, from_stride, count);
    default:
      for (index_t i = 0; i < count; ++i)
        std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(bytes));
  }
}

#if defined(__clang__) || defined(__SSE2__)
/// Pieces of lines of 64 bytes, written past the caches as memcpy writes one large piece: other stores read each line
/// first, half as much traffic again. What is to be read is asked for 4 KiB ahead: the processor guesses no further
/// than the end of a piece.
template <class = when_used>
void stream_pieces(std::byte* to, index_t to_stride, const std::byte* from, index_t from_stride, index_t count,
                   index_t bytes) {
  using halves = long long __attribute__((vector_size(16)));
  const index_t ahead = bytes < 4096 ? 4096 / bytes : 1;
  for (index_t i = 0; i < count; ++i) {
    auto* t = reinterpret_cast<halves*>(to + i * to_stride);
    const std::byte *f = from + i * from_stride, *next = from + (i + ahead < count ? i + ahead : i) * from_stride;
    for (index_t k = 0; k < bytes; k += 64) {
      __builtin_prefetch(next + k);
      halves w[4];
      std::memcpy(w, f + k, sizeof w);
      for (int j = 0; j < 4; ++j)
#if defined(__clang__)
        __builtin_nontemporal_store(w[j], t++);
#else
        __builtin_ia32_movntdq(t++, w[j]);
#endif
    }
  }
#if defined(__SSE2__)
  __builtin_ia32_sfence();  // nothing else orders them before what follows
#endif
}
#else
template <class = when_used>
void stream_pieces(std::byte* to, index_t to_stride, const std::byte* from, index_t from_stride, index_t count,
                   index_t bytes) {
  copy_pieces(to, to_stride, from, from_stride, count, bytes);
}
#endif

/// Is a block too large for the caches, and in pieces that are too small for memcpy to see it?
inline bool streams(const block& to) {
  const auto lines = [](auto x) { return x % 64 == 0; };
  return to.bytes() >= index_t{4} << 20 && to.column_bytes >= 1024 && to.column_bytes < 65536 &&
         lines(to.column_bytes) && lines(to.row_stride) && lines(reinterpret_cast<std::uintptr_t>(to.pointer));
}

/// Walks a block piece by piece, in any step that does not pass the end of a piece.
class piece_walk {
 public:
  explicit piece_walk(const block& b) : block_(b) {}
  index_t left_in_piece() const { return block_.column_bytes - offset_; }
  std::byte* pointer() const {
    return byte_at(block_, row_ * block_.row_stride + column_ * block_.column_stride + offset_);
  }
  void advance(index_t bytes) {
    offset_ += bytes;
    if (offset_ < block_.column_bytes) return;
    offset_ = 0;
    if (++column_ < block_.columns) return;
    column_ = 0;
    ++row_;
  }

 private:
  block block_;
  index_t row_ = 0, column_ = 0, offset_ = 0;
};
}  // namespace detail

/// to[k] = from[k] for the k-th byte of each block, counted row by row, column by column.
/// The blocks may have other rows, columns and strides, but as many bytes; they must not overlap.
template <class = when_used>
void copy_block(const block& to, const block& from) {
  index_t left = from.bytes();
  if (left == 0) return;
  block t = detail::merged(to), f = detail::merged(from);
  if (t.rows == 1 && t.columns == 1 && f.rows == 1 && f.columns == 1) {
    std::memcpy(t.pointer, f.pointer, static_cast<std::size_t>(left));
    return;
  }
  t = detail::cut_like(t, f);
  f = detail::cut_like(f, t);
  if (t.rows == f.rows && t.columns == f.columns && t.column_bytes == f.column_bytes) {
    if (t.columns == 1) {
      std::byte *to_first = detail::byte_at(t, 0), *from_first = detail::byte_at(f, 0);
      if (detail::streams(t))
        detail::stream_pieces(to_first, t.row_stride, from_first, f.row_stride, t.rows, t.column_bytes);
      else
        detail::copy_pieces(to_first, t.row_stride, from_first, f.row_stride, t.rows, t.column_bytes);
      return;
    }
    for (index_t i = 0; i < t.rows; ++i)
      detail::copy_pieces(detail::byte_at(t, i * t.row_stride), t.column_stride, detail::byte_at(f, i * f.row_stride),
                          f.column_stride, t.columns, t.column_bytes);
    return;
  }
  detail::piece_walk a(t), b(f);
  while (left > 0) {
    const index_t bytes = a.left_in_piece() < b.left_in_piece() ? a.left_in_piece() : b.left_in_piece();
    std::memcpy(a.pointer(), b.pointer(), static_cast<std::size_t>(bytes));
    a.advance(bytes);
    b.advance(bytes);
    left -= bytes;
  }
}

}  // namespace v0_1
}  // namespace seqpar
