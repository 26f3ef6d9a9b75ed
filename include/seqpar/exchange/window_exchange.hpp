// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every rank owns boxes of a sequence of frames and wants other boxes of it, which may reach over its ends.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/box_view.hpp>
#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What a window holds where it reaches over an end of the sequence.
enum class border {
  clamp,  ///< nothing: the window ends with the sequence
  zero,   ///< zeros, written by forward; their gradients are dropped
  edge    ///< the nearest row; its gradients are added to that row
};

/// A window of this rank: what it holds and where.
struct placed_window {
  box padded;         ///< all of it, in frames, lines and pixels; outside of the sequence for zero and edge
  box inside;         ///< its part inside the sequence
  box own;            ///< halos: the rows that this rank owns, around which the window lies
  index_t first = 0;  ///< the row of memory where it begins (1-D: rows of row_bytes)

  index_t rows() const { return padded.rows(); }
  /// Where the owned rows begin in the window, and how many there are.
  box interior() const {
    const auto from = [](interval i, interval origin) { return interval{i.lo - origin.lo, i.hi - origin.lo}; };
    return {from(own.t, padded.t), from(own.h, padded.h), from(own.w, padded.w)};
  }
};

namespace detail {

/// What one rank owns and wants. Boxes lie one after the other in memory.
struct rank_boxes {
  std::vector<box> own, padded;
};

struct borders {
  border t = border::clamp, h = border::clamp, w = border::clamp;
};

/// Row (t, y, x) of the sequence is t·H·W + y·W + x.
struct frame_shape {
  index_t t, h, w;
  box all() const { return {{0, t}, {0, h}, {0, w}}; }
};

/// The position that stands at `i`, or −1: none.
constexpr index_t source_of(index_t i, index_t count, border b) {
  if (0 <= i && i < count) return i;
  if (b != border::edge || count == 0) return -1;
  return i < 0 ? 0 : count - 1;
}

/// Gathers a holding from boxes, and the places that no row goes to.
class box_holding {
 public:
  box_holding(const frame_shape& shape, interval columns) : shape_(shape) { held.columns = columns; }

  holding held;
  std::vector<run> blank;  ///< places that stay without a row

  void append(const box& b, const borders& over, index_t first, const box_places& p) {
    const bool whole =
        b.h == interval{0, shape_.h} && b.w == interval{0, shape_.w} && p.h == shape_.w * p.w && p.t == shape_.h * p.h;
    for (index_t t = b.t.lo; t < b.t.hi; ++t) {
      const index_t from = source_of(t, shape_.t, over.t), place = first + (t - b.t.lo) * p.t;
      if (whole && from >= 0) {  // all frames inside at once
        const index_t frames = t == from ? (b.t.hi < shape_.t ? b.t.hi : shape_.t) - t : 1;
        rows(from * shape_.h * shape_.w, frames * shape_.h * shape_.w, place, p.w);
        t += frames - 1;
        continue;
      }
      for (index_t y = b.h.lo; y < b.h.hi; ++y)
        line(b.w, from, source_of(y, shape_.h, over.h), over.w, place + (y - b.h.lo) * p.h, p.w);
    }
  }

 private:
  void line(interval w, index_t t, index_t y, border over, index_t place, index_t step) {
    if (t < 0 || y < 0) {
      blank.push_back({place, w.size(), step});
      return;
    }
    const index_t row = (t * shape_.h + y) * shape_.w;
    for (index_t x = w.lo; x < w.hi; ++x) {
      const index_t from = source_of(x, shape_.w, over), at = place + (x - w.lo) * step;
      if (from < 0) {
        blank.push_back({at, 1, step});
        continue;
      }
      const index_t count = from == x ? (w.hi < shape_.w ? w.hi : shape_.w) - x : 1;
      rows(row + from, count, at, step);
      x += count - 1;
    }
  }
  void rows(index_t row, index_t count, index_t place, index_t step) {
    if (count <= 0) return;
    if (!held.pieces.empty()) {
      row_piece& p = held.pieces.back();
      if (row == p.rows.at(p.rows.count) && place == p.place + p.rows.count * step && step == p.place_step) {
        p.rows.count += count;
        return;
      }
    }
    held.pieces.push_back({{row, count, 1}, place, step});
  }
  frame_shape shape_;
};

/// How the boxes of one rank lie in one buffer.
struct buffer_places {
  box_places all;              ///< rows and batch stride of the whole buffer
  std::vector<box_places> of;  ///< each box
  std::vector<index_t> first;
};

inline std::array<index_t, 3> shape_of(const box& b) {
  return {b.t.size(), b.h.size(), b.w.size()};
}

inline buffer_places lay_out(const std::vector<box>& boxes, const box_format& format, index_t columns,
                             index_t column_bytes) {
  buffer_places b{places_of({0, 0, 0}, format, columns, column_bytes), {}, {}};
  for (const box& one : boxes) {
    b.of.push_back(places_of(shape_of(one), format, columns, column_bytes));
    b.first.push_back(b.all.rows);
    const index_t rows = b.all.rows + b.of.back().rows, bytes = b.all.batch_stride + b.of.back().batch_stride;
    b.all = b.of.back();
    b.all.rows = rows;
    b.all.batch_stride = bytes;
  }
  return b;
}

}  // namespace detail

/// out = the windows of this rank, from `in` = the rows that it owns (exchange.hpp: memory, determinism, failures).
/// With placement::in_place both are the padded buffer, whose interior the rows are in already.
///
/// A row wanted at several places travels once for each: windows of several runs that overlap, repeated edge rows.
template <transport Transport>
class window_exchange : public exchange<Transport> {
  using base = exchange<Transport>;

 public:
  window_exchange(base moved, std::vector<placed_window> windows, std::vector<run> blank, detail::buffer_places owned,
                  detail::buffer_places padded, std::array<index_t, 3> owned_shape, const exchange_options& options)
      : base(std::move(moved)),
        windows_(std::move(windows)),
        blank_(std::move(blank)),
        owned_(std::move(owned)),
        padded_(std::move(padded)),
        owned_shape_(owned_shape),
        batch_(options.batch),
        columns_(options.columns),
        column_bytes_(options.row_bytes / options.columns) {
    base::results_interleave();
  }

  const std::vector<placed_window>& windows() const { return windows_; }  ///< 1-D: one a run of the layout; grids: one
  const std::vector<run>& blank_rows() const { return blank_; }           ///< rows of memory that are filled with zeros
  index_t owned_bytes() const { return batch_ * owned_.all.batch_stride; }    ///< that `in` takes
  index_t padded_bytes() const { return batch_ * padded_.all.batch_stride; }  ///< that `out` takes

  /// The buffers as planned, where there is one window: what forward and adjoint take them for when given a pointer.
  box_view owned_view(void* pointer) const { return view(pointer, owned_, owned_shape_); }
  box_view padded_view(void* pointer) const {
    return view(pointer, padded_, windows_.empty() ? std::array<index_t, 3>{} : detail::shape_of(windows_[0].padded));
  }

  template <class Exec>
  status forward(row_buffer in, row_buffer out, const seqpar::memory& given, Exec exec) const {
    static_assert(std::same_as<Exec, on_host>, "zeros of a border are written on the host");
    out = complete(out, padded_);
    if (!blank_.empty() && batch_ > 0 && !out.pointer)
      return this->fail({errc::invalid_argument, "exchange: a buffer with rows is null"});
    if (status s = base::forward(complete(in, owned_), out, given, exec); !s.ok()) return s;
    for (index_t b = 0; b < batch_; ++b)
      for (const run& r : blank_)
        for (index_t i = 0; i < r.count; ++i)
          for (index_t c = 0; c < columns_; ++c)
            std::memset(static_cast<std::byte*>(out.pointer) + b * out.batch_stride + r.at(i) * out.row_stride +
                            c * out.column_stride,
                        0, static_cast<std::size_t>(column_bytes_));
    return {};
  }
  template <summable T, class Exec>
  status adjoint(row_buffer d_out, row_buffer d_in, const seqpar::memory& given, Exec exec) const {
    return base::template adjoint<T>(complete(d_out, padded_), complete(d_in, owned_), given, exec);
  }

  /// The same with boxes. Strides of t, h and w are those planned, times one factor; those of batch and channels are
  /// free. Fails: other shapes or strides.
  template <std::same_as<box_view> Box, class Exec>
  status forward(const Box& in, const Box& out, const seqpar::memory& given, Exec exec) const {
    const auto from = rows_of(in, owned_view(nullptr), owned_), to = rows_of(out, padded_view(nullptr), padded_);
    if (!from || !to) return this->fail(other_box());
    return forward(*from, *to, given, exec);
  }
  template <summable T, std::same_as<box_view> Box, class Exec>
  status adjoint(const Box& d_out, const Box& d_in, const seqpar::memory& given, Exec exec) const {
    const auto from = rows_of(d_out, padded_view(nullptr), padded_), to = rows_of(d_in, owned_view(nullptr), owned_);
    if (!from || !to) return this->fail(other_box());
    return adjoint<T>(*from, *to, given, exec);
  }

 private:
  row_buffer complete(row_buffer b, const detail::buffer_places& p) const {
    if (b.column_stride == 0) b.column_stride = p.all.column_stride;
    // a wider pixel widens the whole buffer
    const index_t unit = b.row_stride == 0 ? p.all.unit : b.row_stride;
    if (b.batch_stride == 0) b.batch_stride = p.all.batch_stride / p.all.unit * unit;
    b.row_stride = unit;
    return b;
  }
  box_view view(void* pointer, const detail::buffer_places& p, const std::array<index_t, 3>& shape) const {
    return detail::view_of(pointer, p.all, batch_, shape, columns_, column_bytes_);
  }
  static status other_box() {
    return {errc::invalid_argument,
            "exchange: a box has another shape or other strides than planned; use the views that the plan gives"};
  }
  /// The box as rows of memory, if it lies as planned. The stride of an axis with one position does not matter.
  static std::optional<row_buffer> rows_of(const box_view& v, const box_view& planned, const detail::buffer_places& p) {
    if (v.shape != planned.shape || v.element_bytes != planned.element_bytes) return {};
    const index_t steps[] = {p.all.t, p.all.h, p.all.w};
    index_t unit = p.all.unit;
    for (std::size_t a = 0; a < 3; ++a)
      if (v.shape[a + 1] > 1) unit = v.stride[a + 1] / steps[a];
    for (std::size_t a = 0; a < 3; ++a)
      if (v.shape[a + 1] > 1 && v.stride[a + 1] != unit * steps[a]) return {};
    return row_buffer(v.pointer, unit, v.stride[0], v.stride[4]);
  }

  std::vector<placed_window> windows_;
  std::vector<run> blank_;
  detail::buffer_places owned_, padded_;
  std::array<index_t, 3> owned_shape_;
  index_t batch_, columns_, column_bytes_;
};

}  // namespace v0_1
}  // namespace seqpar
