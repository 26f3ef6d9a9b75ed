// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where tensors lie in memory: a pointer, a shape and strides.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A tensor [batch, tokens, heads, dim]: element (b, t, h, d) is pointer[b·stride[0] + t·stride[1] + h·stride[2] + d].
/// Strides in elements; the last dimension is dense (stride[3] = 1).
template <class T>
struct rows_view {
  T* pointer = nullptr;
  std::array<index_t, 4> shape{};
  std::array<index_t, 4> stride{};

  constexpr index_t batch() const { return shape[0]; }
  constexpr index_t tokens() const { return shape[1]; }
  constexpr index_t heads() const { return shape[2]; }
  constexpr index_t dim() const { return shape[3]; }
  constexpr index_t offset(index_t b, index_t t, index_t h) const {
    return b * stride[0] + t * stride[1] + h * stride[2];
  }
  constexpr T* row(index_t b, index_t t, index_t h) const { return pointer + offset(b, t, h); }
  constexpr index_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  template <std::same_as<const T> Const>
  requires(!std::is_const_v<T>) constexpr operator rows_view<Const>() const { return {pointer, shape, stride}; }
};

/// A view of foreign memory: from a pointer and strides in elements, or from anything like a 4-dimensional mdspan.
template <class T, class Pointer>
constexpr rows_view<T> view_of(Pointer* pointer, std::array<index_t, 4> shape, std::array<index_t, 4> stride) {
  return {static_cast<T*>(pointer), shape, stride};
}
template <class Span>
requires requires(const Span& s) {
  s.data_handle(), s.extent(0), s.stride(0);
}
constexpr auto view_of(const Span& s) {
  rows_view<std::remove_pointer_t<decltype(s.data_handle())>> v;
  v.pointer = s.data_handle();
  for (std::size_t i = 0; i < 4; ++i) {
    v.shape[i] = static_cast<index_t>(s.extent(i));
    v.stride[i] = static_cast<index_t>(s.stride(i));
  }
  return v;
}

/// Row-major [batch, tokens, heads, dim].
template <class T>
constexpr rows_view<T> dense_view(T* pointer, std::array<index_t, 4> shape) {
  return {pointer, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
}

/// One number per (batch, head, token): element is pointer[b·stride[0] + h·stride[1] + t·stride[2]].
/// The log-sum-exp is held so, in fp32 and natural logarithm; the documented dense order is [batch][heads][tokens].
template <class T>
struct heads_view {
  T* pointer = nullptr;
  std::array<index_t, 3> shape{};  ///< batch, heads, tokens
  std::array<index_t, 3> stride{};
  constexpr T& at(index_t b, index_t h, index_t t) const {
    return pointer[b * stride[0] + h * stride[1] + t * stride[2]];
  }
  template <std::same_as<const T> Const>
  requires(!std::is_const_v<T>) constexpr operator heads_view<Const>() const { return {pointer, shape, stride}; }
};

/// Row-major [batch][heads][tokens].
template <class T>
constexpr heads_view<T> dense_heads(T* pointer, std::array<index_t, 3> shape) {
  return {pointer, shape, {shape[1] * shape[2], shape[2], 1}};
}

/// Softmax states of rows (state_view of kernel/concept.hpp), wherever they lie.
struct state_rows {
  rows_view<float> acc;
  heads_view<float> max, sum;

  /// Rows first, first + step, …, `count` of them.
  template <class = when_used>
  constexpr state_rows line(index_t first, index_t step, index_t count) const {
    state_rows s = *this;
    s.acc.pointer += first * acc.stride[1];
    s.acc.stride[1] *= step;
    s.acc.shape[1] = count;
    for (heads_view<float>* x : {&s.max, &s.sum}) {
      x->pointer += first * x->stride[2];
      x->stride[2] *= step;
      x->shape[2] = count;
    }
    return s;
  }
};

}  // namespace v0_1
}  // namespace seqpar
