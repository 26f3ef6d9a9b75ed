// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Host memory, worked on by the calling thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <seqpar/error.hpp>
#include <seqpar/space/copy.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Where a call runs: here, in the calling thread, before it returns.
struct on_host {};

/// Whether results are written or added to what is there (β = 1).
enum class write : std::uint8_t { assign, add };

namespace detail {
/// One rounding: through fp32, unless one of the two is a double.
template <class To, class From>
To rounded(From value) {
  if constexpr (std::is_same_v<To, From> || std::is_same_v<To, double> || std::is_same_v<From, double>)
    return static_cast<To>(value);
  else
    return To(static_cast<float>(value));
}
template <class T>
T* element_at(const block& b, index_t row, index_t column) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(b.pointer) + row * b.row_stride + column * b.column_stride);
}
}  // namespace detail

/// Every operation is done when it returns.
class host_space {
 public:
  template <class = when_used>
  void copy(const block& to, const block& from) const {
    copy_block(to, from);
  }
  void zero(const block& at) const {
    if (at.bytes() == 0) return;  // may be null
    for (index_t r = 0; r < at.rows; ++r) {
      if (at.dense_rows()) {
        std::memset(detail::element_at<std::byte>(at, r, 0), 0, static_cast<std::size_t>(at.columns * at.column_bytes));
        continue;
      }
      for (index_t c = 0; c < at.columns; ++c)
        std::memset(detail::element_at<std::byte>(at, r, c), 0, static_cast<std::size_t>(at.column_bytes));
    }
  }
  template <class T>
  void fill(const block& at, const T& value) const {
    for (index_t r = 0; r < at.rows; ++r)
      for (index_t c = 0; c < at.columns; ++c)
        for (index_t k = 0; k < at.column_bytes; k += static_cast<index_t>(sizeof(T)))
          std::memcpy(detail::element_at<std::byte>(at, r, c) + k, &value, sizeof(T));
  }
  template <class To, class From>
  void store(const block& to, const block& from, write how) const {
    const index_t n = from.column_bytes / static_cast<index_t>(sizeof(From));
    for (index_t r = 0; r < to.rows; ++r)
      for (index_t c = 0; c < to.columns; ++c) {
        To* t = detail::element_at<To>(to, r, c);
        const From* f = detail::element_at<const From>(from, r, c);
        if (how == write::assign)
          for (index_t i = 0; i < n; ++i) t[i] = detail::rounded<To>(f[i]);
        else if constexpr (sizeof(To) >= sizeof(float))
          for (index_t i = 0; i < n; ++i) t[i] += static_cast<To>(f[i]);
        else
          for (index_t i = 0; i < n; ++i) t[i] = To(static_cast<float>(t[i]) + static_cast<float>(f[i]));
      }
  }
  template <class X, class Y>
  void row_dots(const rows_view<const X>& x, const rows_view<const Y>& y, const heads_view<const float>& minus,
                const heads_view<float>& to) const {
    for (index_t b = 0; b < x.batch(); ++b)
      for (index_t h = 0; h < x.heads(); ++h)
        for (index_t t = 0; t < x.tokens(); ++t) {
          const X* a = x.row(b, t, h);
          const Y* c = y.row(b, t, h);
          float sum = 0;
          for (index_t d = 0; d < x.dim(); ++d) sum += static_cast<float>(a[d]) * static_cast<float>(c[d]);
          to.at(b, h, t) = sum - (minus.pointer ? minus.at(b, h, t) : 0.f);
        }
  }
  void merge(const state_rows& to, const state_rows& from) const {
    for (index_t b = 0; b < to.acc.batch(); ++b)
      for (index_t h = 0; h < to.acc.heads(); ++h)
        for (index_t t = 0; t < to.acc.tokens(); ++t) {
          float &max = to.max.at(b, h, t), &sum = to.sum.at(b, h, t);
          const float other = from.max.at(b, h, t);
          if (other == -HUGE_VALF) continue;  // it saw nothing
          const float top = max > other ? max : other, keep = std::exp(max - top), add = std::exp(other - top);
          float* acc = to.acc.row(b, t, h);
          const float* part = from.acc.row(b, t, h);
          for (index_t d = 0; d < to.acc.dim(); ++d) acc[d] = keep * acc[d] + add * part[d];
          sum = keep * sum + add * from.sum.at(b, h, t);
          max = top;
        }
  }
  void upload(void* to, const void* from, index_t bytes) const {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  status outcome() const { return {}; }
  status finish() const { return {}; }
};

inline host_space space_of(on_host) {
  return {};
}

/// For calls whose values are read or written here while they run.
template <class Exec>
constexpr void runs_on_host() {
  static_assert(std::is_same_v<Exec, on_host>,
                "[seqpar] this call reads or writes its values on the host: give it on_host{} and host memory");
}

}  // namespace v0_1
}  // namespace seqpar
