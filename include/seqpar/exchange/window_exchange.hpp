// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every rank owns boxes of a sequence of frames and wants other boxes of it, which may reach over its ends.
#pragma once

#include <utility>
#include <vector>

#include <seqpar/exchange/box_rows.hpp>
#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A window of this rank: what it holds and where.
struct placed_window {
  box padded;              ///< all of it, in frames, lines and pixels; outside of the sequence for zero and edge
  box inside;              ///< its part inside the sequence
  box own;                 ///< halos: the rows that this rank owns, around which the window lies
  index_t first = 0;       ///< the row of memory where it begins (1-D: rows of row_bytes)
  std::vector<box> blank;  ///< its parts that forward fills with zeros

  index_t rows() const { return padded.rows(); }
  /// A box of the sequence as places in the window.
  box local(const box& b) const {
    const auto from = [](interval i, interval origin) { return interval{i.lo - origin.lo, i.hi - origin.lo}; };
    return {from(b.t, padded.t), from(b.h, padded.h), from(b.w, padded.w)};
  }
  /// Where the owned rows begin in the window, and how many there are.
  box interior() const { return local(own); }
};

/// out = the windows of this rank, from `in` = the rows that it owns (exchange.hpp: memory, determinism, failures).
/// With placement::in_place both are the padded buffer, whose interior the rows are in already.
///
/// A row wanted at several places travels once for each: windows of several runs that overlap, repeated edge rows.
template <transport Transport>
class window_exchange : public exchange<Transport> {
  using base = exchange<Transport>;
  using places = detail::buffer_places;

 public:
  window_exchange(base moved, std::vector<placed_window> windows, places owned, places padded,
                  const exchange_options& options)
      : base(std::move(moved)),
        windows_(std::move(windows)),
        owned_(std::move(owned)),
        padded_(std::move(padded)),
        batch_(options.batch),
        columns_(options.columns),
        column_bytes_(options.row_bytes / options.columns) {
    base::holds_boxes(padded_.rows, {owned_.unit, owned_.column_stride, owned_.batch_stride});
  }

  const std::vector<placed_window>& windows() const { return windows_; }  ///< 1-D: one a run of the layout; grids: one
  index_t owned_bytes() const { return batch_ * owned_.batch_stride; }    ///< that `in` takes
  index_t padded_bytes() const { return batch_ * padded_.batch_stride; }  ///< that `out` takes

  /// Box or window i in the buffers as planned: what forward and adjoint take them for when given a pointer.
  box_view owned_view(void* pointer, std::size_t i = 0) const { return view(pointer, owned_, i); }
  box_view padded_view(void* pointer, std::size_t i = 0) const { return view(pointer, padded_, i); }

  template <class Exec>
  status forward(row_buffer in, row_buffer out, const seqpar::memory& given, Exec exec) const {
    out = complete(out, padded_);
    if (!apart(out, padded_)) return this->fail(shared_bytes());
    if (status s = base::forward(complete(in, owned_), out, given, exec); !s.ok()) return s;
    const auto work = space_of(exec);
    for (std::size_t i = 0; i < windows_.size(); ++i)
      for (const box& blank : windows_[i].blank) zero(work, out, padded_.boxes[i], windows_[i].local(blank));
    return work.outcome();
  }
  template <class Exec>
  status inverse(row_buffer out, row_buffer in, const seqpar::memory& given, Exec exec) const {
    in = complete(in, owned_);
    if (!apart(in, owned_)) return this->fail(shared_bytes());
    return base::inverse(complete(out, padded_), in, given, exec);
  }
  template <summable T, class Exec>
  status adjoint(row_buffer d_out, row_buffer d_in, const seqpar::memory& given, Exec exec) const {
    d_in = complete(d_in, owned_);
    if (!apart(d_in, owned_)) return this->fail(shared_bytes());
    return base::template adjoint<T>(complete(d_out, padded_), d_in, given, exec);
  }

  /// The same with boxes. Strides of t, h and w are those planned, times one factor; those of batch and channels are
  /// free. Fails: other shapes or strides, a stride of 0 along several positions, a rank with several windows.
  template <std::same_as<box_view> Box, class Exec>
  status forward(const Box& in, const Box& out, const seqpar::memory& given, Exec exec) const {
    return with_rows(in, out, [&](row_buffer i, row_buffer o) { return forward(i, o, given, exec); });
  }
  template <std::same_as<box_view> Box, class Exec>
  status inverse(const Box& out, const Box& in, const seqpar::memory& given, Exec exec) const {
    return with_rows(in, out, [&](row_buffer i, row_buffer o) { return inverse(o, i, given, exec); });
  }
  template <summable T, std::same_as<box_view> Box, class Exec>
  status adjoint(const Box& d_out, const Box& d_in, const seqpar::memory& given, Exec exec) const {
    return with_rows(d_in, d_out, [&](row_buffer i, row_buffer o) { return adjoint<T>(o, i, given, exec); });
  }

 private:
  row_buffer complete(row_buffer b, const places& p) const {
    // a wider pixel widens the whole buffer, and the planes of channels with it
    const index_t unit = b.row_stride == 0 ? p.unit : b.row_stride;
    if (b.column_stride == 0)
      b.column_stride = p.column_stride < p.unit ? p.column_stride : p.column_stride / p.unit * unit;
    if (b.batch_stride == 0) b.batch_stride = p.batch_stride / p.unit * unit;
    b.row_stride = unit;
    return b;
  }
  box_view view(void* pointer, const places& p, std::size_t i) const {
    if (i >= p.boxes.size()) return detail::view_of(nullptr, {}, batch_, {}, columns_, column_bytes_);
    const places::placed_box& b = p.boxes[i];
    if (pointer) pointer = static_cast<std::byte*>(pointer) + b.first * p.unit;
    box_view v = detail::view_of(pointer, b.at, batch_, b.shape, columns_, column_bytes_);
    v.stride[0] = p.batch_stride;
    return v;
  }

  static status shared_bytes() {
    return {errc::overlapping_buffers, "exchange: the strides of a result let its rows overlap; give them room"};
  }
  /// Does every element have bytes of its own? Several boxes are rows one after the other.
  bool apart(const row_buffer& b, const places& p) const {
    using along = detail::placed_array::axis;
    if (batch_ == 0 || p.rows == 0) return true;
    const auto& [first, shape, at] = p.boxes[0];
    const along batch{batch_, b.batch_stride}, channels{columns_, b.column_stride};
    if (p.boxes.size() > 1)
      return detail::apart_along(std::array{batch, channels, along{p.rows, b.row_stride}}, column_bytes_);
    return detail::apart_along(std::array{batch, channels, along{shape[0], at.t * b.row_stride},
                                          along{shape[1], at.h * b.row_stride}, along{shape[2], at.w * b.row_stride}},
                               column_bytes_);
  }
  template <space Space>
  void zero(const Space& work, const row_buffer& b, const places::placed_box& p, const box& part) const {
    const row_array all{b.pointer, batch_, b.batch_stride, b.row_stride, b.column_stride, column_bytes_};
    for (index_t item = 0; item < batch_; ++item)
      for (index_t t = part.t.lo; t < part.t.hi; ++t)
        for (index_t y = part.h.lo; y < part.h.hi; ++y)
          work.zero(all.rows(item, p.first + t * p.at.t + y * p.at.h + part.w.lo * p.at.w, part.w.size(), p.at.w, 0,
                             columns_));
  }

  template <class Run>
  status with_rows(const box_view& in, const box_view& out, Run&& run) const {
    row_buffer i = in.pointer, o = out.pointer;
    if (status s = describe(in, owned_, i); !s.ok()) return this->fail(s);
    if (status s = describe(out, padded_, o); !s.ok()) return this->fail(s);
    return run(i, o);
  }
  /// The strides of a box as those of rows. The stride of an axis with one position does not matter.
  status describe(const box_view& v, const places& p, row_buffer& rows) const {
    const auto wrong = [](const char* text) { return status(errc::invalid_argument, text); };
    if (p.boxes.size() > 1)
      return wrong(
          "exchange: this rank has several windows, which one box cannot describe; give the whole buffer as a "
          "pointer");
    const box_view planned = view(nullptr, p, 0);
    if (v.shape != planned.shape || v.element_bytes != planned.element_bytes)
      return {
          errc::invalid_argument, "exchange: a box has another shape than planned; use the views that the plan gives",
          detail::first_difference(planned.shape, v.shape, {" items", " frames", " rows", " columns", " channels"})};
    for (std::size_t a = 0; a < 5; ++a)
      if (v.shape[a] > 1 && v.stride[a] == 0)
        return wrong("exchange: a box has stride 0 along an axis with several positions; give each its own bytes");
    if (p.boxes.empty()) return {};
    const detail::box_places& at = p.boxes[0].at;
    const index_t steps[] = {at.t, at.h, at.w};
    for (std::size_t a = 0; a < 3; ++a)
      if (v.shape[a + 1] > 1) rows.row_stride = v.stride[a + 1] / steps[a];
    for (std::size_t a = 0; a < 3; ++a)
      if (v.shape[a + 1] > 1 && v.stride[a + 1] != rows.row_stride * steps[a])
        return wrong("exchange: a box has other strides than planned; use the views that the plan gives");
    if (v.shape[0] > 1) rows.batch_stride = v.stride[0];
    if (v.shape[4] > 1) rows.column_stride = v.stride[4];
    return {};
  }

  std::vector<placed_window> windows_;
  places owned_, padded_;
  index_t batch_, columns_, column_bytes_;
};

}  // namespace v0_1
}  // namespace seqpar
