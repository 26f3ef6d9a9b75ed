// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Do two strided arrays share a byte? Asked by runs before they post anything.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <seqpar/exchange/carry.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// A row_array with the number of its rows and columns.
struct placed_array {
  row_array array{};
  index_t rows = 0, columns = 0;

  bool has_bytes() const { return array.batch > 0 && rows > 0 && columns > 0 && array.column_bytes > 0; }

  struct axis {
    index_t count, stride;
  };
  std::array<axis, 3> axes() const {
    return {{{array.batch, array.batch_stride}, {rows, array.row_stride}, {columns, array.column_stride}}};
  }
  /// Addresses from the first to behind the last byte, leaving out the axes whose stride is a multiple of `period`
  /// (0: none): then it is the piece that repeats every `period` bytes.
  interval bytes(index_t period = 0) const {
    interval i{reinterpret_cast<std::intptr_t>(array.pointer), 0};
    i.hi = i.lo + array.column_bytes;
    for (const axis& a : axes()) {
      if (a.count < 2 || (period > 0 && a.stride % period == 0)) continue;
      (a.stride < 0 ? i.lo : i.hi) += (a.count - 1) * a.stride;
    }
    return i;
  }
};

/// The first axis whose size differs, to be told; none of a view that is not there, all of whose sizes are 0.
template <std::size_t Axes>
amounts first_difference(const std::array<index_t, Axes>& wanted, const std::array<index_t, Axes>& given,
                         const std::array<const char*, Axes>& units) {
  std::size_t a = 0;
  while (a < Axes && wanted[a] == given[a]) ++a;
  if (a == Axes || given == std::array<index_t, Axes>{}) return {};
  return {wanted[a], given[a], units[a]};
}

/// Does every element of `bytes` bytes, repeated along these axes, have bytes of its own? When in doubt, no.
template <std::size_t N>
bool apart_along(std::array<placed_array::axis, N> axes, index_t bytes) {
  const auto size = [](index_t stride) { return stride < 0 ? -stride : stride; };
  std::sort(axes.begin(), axes.end(), [&](const auto& x, const auto& y) { return size(x.stride) < size(y.stride); });
  index_t reach = bytes;
  for (const placed_array::axis& along : axes) {
    if (along.count < 2) continue;
    if (size(along.stride) < reach) return false;
    reach += (along.count - 1) * size(along.stride);
  }
  return true;
}

/// The same of a whole array.
template <class = when_used>
bool one_place_each(const placed_array& a) {
  return !a.has_bytes() || apart_along(a.axes(), a.array.column_bytes);
}

/// May the two share a byte? Slices of one packed tensor (q, k, v side by side, say) are told apart: both repeat with a
/// common period and lie in different parts of it. When in doubt, yes.
template <class = when_used>
bool may_share(const placed_array& a, const placed_array& b) {
  if (!a.has_bytes() || !b.has_bytes() || intersection(a.bytes(), b.bytes()).empty()) return false;
  for (const placed_array* p : {&a, &b})
    for (const placed_array::axis& along : p->axes()) {
      const index_t period = along.stride < 0 ? -along.stride : along.stride;
      if (along.count < 2 || period == 0) continue;
      const interval x = a.bytes(period), y = b.bytes(period);
      const index_t gap = floor_mod(y.lo - x.lo, period);  // y begins so far behind x in the period
      if (gap >= x.size() && gap + y.size() <= period) return false;
    }
  return true;
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
