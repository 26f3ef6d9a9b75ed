// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views made of what other libraries hold: an untyped pointer with shape and strides, or an mdspan.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <seqpar/views.hpp>

using namespace seqpar;

namespace {

/// As much of std::mdspan as a view needs; extents and strides are unsigned there.
template <class T, std::size_t Rank>
struct span_of {
  using element_type = T;
  static constexpr std::size_t rank() { return Rank; }
  T* data_handle() const { return data; }
  std::size_t extent(std::size_t i) const { return extents[i]; }
  std::size_t stride(std::size_t i) const { return strides[i]; }
  T* data;
  std::array<std::size_t, Rank> extents, strides;
};

}  // namespace

TEST_CASE("view_of an untyped pointer is the view with that shape and those strides") {
  std::vector<float> x(2 * 3 * 4 * 5);
  const std::array<index_t, 4> shape{2, 3, 4, 5}, strides{60, 5, 15, 1};
  void* const untyped = x.data();
  const auto v = view_of<float>(untyped, shape, strides);
  static_assert(std::is_same_v<decltype(v), const rows_view<float>>);
  CHECK(v.pointer == x.data());
  CHECK(v.shape == shape);
  CHECK(v.stride == strides);
  CHECK(v.row(1, 2, 3) == x.data() + 60 + 2 * 5 + 3 * 15);
  const void* const constant = x.data();
  const auto c = view_of<const float>(constant, shape, strides);
  static_assert(std::is_same_v<decltype(c), const rows_view<const float>>);
  CHECK(c.row(1, 2, 3) == v.row(1, 2, 3));
}

TEST_CASE("view_of an mdspan of four extents is its rows, element for element") {
  std::vector<bfloat16> x(2 * 3 * 4 * 5);
  const span_of<bfloat16, 4> m{x.data(), {2, 3, 4, 5}, {60, 5, 15, 1}};
  const auto v = view_of(m);
  static_assert(std::is_same_v<decltype(v), const rows_view<bfloat16>>);
  CHECK(v.pointer == x.data());
  CHECK(v.shape == std::array<index_t, 4>{2, 3, 4, 5});
  CHECK(v.stride == std::array<index_t, 4>{60, 5, 15, 1});
  const auto c = view_of(span_of<const bfloat16, 4>{x.data(), {2, 3, 4, 5}, {60, 5, 15, 1}});
  static_assert(std::is_same_v<decltype(c), const rows_view<const bfloat16>>);
  CHECK(c.row(0, 1, 1) == x.data() + 20);
}
