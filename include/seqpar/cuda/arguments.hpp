// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel call as the device is given it: plain pointers and strides.
#pragma once

#include <cstdint>

#include <seqpar/kernel/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// rows_view, without its shape.
template <class T>
struct rows {
  T* pointer;
  index_t batch, token, head;  ///< strides in elements
  SEQPAR_HD T* at(index_t b, index_t t, index_t h) const { return pointer + b * batch + t * token + h * head; }
  static rows of(const rows_view<T>& v) { return {v.pointer, v.stride[0], v.stride[1], v.stride[2]}; }
  /// Do all rows lie on 16 bytes?
  bool aligned() const {
    constexpr index_t n = 16 / static_cast<index_t>(sizeof(T));
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && batch % n == 0 && token % n == 0 && head % n == 0;
  }
};

/// heads_view, without its shape.
template <class T>
struct numbers {
  T* pointer;
  index_t batch, head, token;
  SEQPAR_HD T& at(index_t b, index_t h, index_t t) const { return pointer[b * batch + h * head + t * token]; }
  static numbers of(const heads_view<T>& v) { return {v.pointer, v.stride[0], v.stride[1], v.stride[2]}; }
};

/// query_table: per query row its position and the keys that it may see.
struct query_list {
  const query_tile* tiles;
  std::int32_t count;
  const std::int32_t *lo0, *hi0, *lo1, *hi1, *position;
  static query_list of(const query_table& t) {
    return {t.tiles.data(),   static_cast<std::int32_t>(t.tiles.size()),
            t.lo0.data(),     t.hi0.data(),
            t.lo1.data(),     t.hi1.data(),
            t.position.data()};
  }
};

/// key_table: the key tiles of a segment, what each query tile visits, and which query tiles visit each of them.
struct key_list {
  const key_tile* tiles;
  std::int32_t count;
  const std::int32_t *positions, *first_range;
  const tile_range* ranges;
  const std::int32_t* first_query_range;
  const tile_range* query_ranges;
  SEQPAR_HD std::int32_t position_of(const key_tile& tile, std::int32_t i) const {
    return tile.step == key_tile::irregular ? positions[tile.row + i] : tile.position + i * tile.step;
  }
  static key_list of(const key_table& t) {
    return {t.tiles.data(),       static_cast<std::int32_t>(t.tiles.size()),
            t.positions.data(),   t.first_range.data(),
            t.ranges.data(),      t.first_query_range.data(),
            t.query_ranges.data()};
  }
};

/// kv_segment.
template <class T>
struct segment {
  rows<const T> k, v;
  rows<float> dk, dv;
  key_list keys;
  static segment of(const kv_segment<T>& s) {
    return {rows<const T>::of(s.k), rows<const T>::of(s.v), rows<float>::of(s.dk), rows<float>::of(s.dv),
            key_list::of(s.table)};
  }
};

/// Segments of one launch; longer lists are several launches.
inline constexpr int most_segments = 8;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
