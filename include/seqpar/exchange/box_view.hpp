// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Boxes of frames × height × width, and where they lie in memory: channels last or first, lines padded to a pitch.
#pragma once

#include <array>
#include <numeric>

#include <seqpar/exchange/exchange.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Frames t, lines h and pixels w.
struct box {
  interval t, h, w;
  constexpr index_t rows() const { return t.size() * h.size() * w.size(); }
  constexpr bool empty() const { return t.empty() || h.empty() || w.empty(); }
  constexpr bool contains(const box& b) const {
    const auto in = [](interval outer, interval inner) { return outer.lo <= inner.lo && inner.hi <= outer.hi; };
    return b.empty() || (in(t, b.t) && in(h, b.h) && in(w, b.w));
  }
  /// The part of this box in another.
  constexpr box inside(const box& b) const {
    const box c{intersection(t, b.t), intersection(h, b.h), intersection(w, b.w)};
    return c.empty() ? box{} : c;
  }
  friend constexpr bool operator==(const box&, const box&) = default;
};

/// The order of a box in memory, slowest first; c is the channel, which exchanges call the column of a row.
enum class box_order {
  thwc,  ///< channels last (NHWC)
  cthw,  ///< channels first (NCTHW, and NCHW of one frame)
  tchw   ///< channels first in each frame (frames as the items of NCHW)
};

/// How every rank holds its box: lines of w begin `pitch` bytes apart or a multiple of it; 0: lines are dense.
struct box_format {
  box_order order = box_order::thwc;
  index_t pitch = 0;
  friend constexpr bool operator==(const box_format&, const box_format&) = default;
};

/// A box in memory: element (b, t, y, x, c) is element_bytes bytes at b·stride[0] + t·stride[1] + y·stride[2] +
/// x·stride[3] + c·stride[4], in bytes. Says channels first and last alike.
struct box_view {
  void* pointer = nullptr;
  std::array<index_t, 5> shape{};  ///< batch, t, h, w, channels
  std::array<index_t, 5> stride{};
  index_t element_bytes = 1;

  constexpr index_t offset(index_t b, index_t t, index_t y, index_t x, index_t c) const {
    return b * stride[0] + t * stride[1] + y * stride[2] + x * stride[3] + c * stride[4];
  }
  template <class T>
  T* at(index_t b, index_t t, index_t y, index_t x, index_t c = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(pointer) + offset(b, t, y, x, c));
  }
};

namespace detail {

/// A box as rows of memory: pixel (t, y, x) is row t·this->t + y·this->h + x·this->w, rows are `unit` bytes apart.
/// The unit is the pixel; with a pitch it is what pixel and pitch have in common.
struct box_places {
  index_t unit = 1, t = 0, h = 0, w = 1;
  index_t column_stride = 1, batch_stride = 0;  ///< bytes
  index_t rows = 0;                             ///< from the first pixel to behind the last frame
};

constexpr box_places places_of(const std::array<index_t, 3>& shape, const box_format& format, index_t columns,
                               index_t column_bytes) {
  const bool last = format.order == box_order::thwc;
  const index_t pixel = last ? columns * column_bytes : column_bytes;
  const index_t dense = shape[2] * pixel;
  const index_t line = format.pitch == 0 ? dense : (dense + format.pitch - 1) / format.pitch * format.pitch;
  const index_t frame = shape[1] * line * (format.order == box_order::tchw ? columns : 1);
  const index_t channel = last ? column_bytes : format.order == box_order::cthw ? shape[0] * frame : shape[1] * line;
  box_places p;
  p.unit = format.pitch == 0 ? pixel : std::gcd(pixel, format.pitch);
  p.w = pixel / p.unit;
  p.h = line / p.unit;
  p.t = frame / p.unit;
  p.rows = shape[0] * p.t;
  p.column_stride = channel;
  p.batch_stride = shape[0] * frame * (format.order == box_order::cthw ? columns : 1);
  return p;
}

constexpr box_view view_of(void* pointer, const box_places& p, index_t batch, const std::array<index_t, 3>& shape,
                           index_t columns, index_t column_bytes) {
  return {pointer,
          {batch, shape[0], shape[1], shape[2], columns},
          {p.batch_stride, p.t * p.unit, p.h * p.unit, p.w * p.unit, p.column_stride},
          column_bytes};
}

}  // namespace detail

/// A box of frames in `format`, dense but for the pitch.
constexpr box_view make_box_view(void* pointer, const std::array<index_t, 5>& shape, index_t element_bytes,
                                 const box_format& format = {}) {
  const std::array<index_t, 3> thw{shape[1], shape[2], shape[3]};
  return detail::view_of(pointer, detail::places_of(thw, format, shape[4], element_bytes), shape[0], thw, shape[4],
                         element_bytes);
}

}  // namespace v0_1
}  // namespace seqpar
