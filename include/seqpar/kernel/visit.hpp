// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reading the tables: which key tiles a query tile visits, and whether one row sees one key.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <type_traits>

#include <seqpar/kernel/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Calls f(tile, kind) for the key tiles that query tile `t` visits, in order.
template <class F>
constexpr void for_each_tile(const key_table& keys, std::size_t t, F&& f) {
  if (keys.tiles.empty()) return;
  for (std::int32_t r = keys.first_range[t]; r < keys.first_range[t + 1]; ++r) {
    const tile_range& range = keys.ranges[static_cast<std::size_t>(r)];
    for (std::int32_t i = range.first; i < range.first + range.count; ++i)
      f(keys.tiles[static_cast<std::size_t>(i)], range.kind);
  }
}

/// The same for `count` ≤ Most query tiles from `first` on together: f(tile, kinds) for each key tile that any of them
/// visits, in order; kinds[i] says how query tile first + i does, or none.
template <std::size_t Most, class F>
constexpr void for_each_tile(const key_table& keys, std::size_t first, std::size_t count, F&& f) {
  constexpr std::int32_t done = std::numeric_limits<std::int32_t>::max();
  if (keys.tiles.empty()) return;
  std::array<std::int32_t, Most> range{}, next{};
  const auto range_of = [&](std::size_t i) { return keys.ranges[static_cast<std::size_t>(range[i])]; };
  const auto enter = [&](std::size_t i) {
    const std::int32_t end = keys.first_range[first + i + 1];
    while (range[i] < end && range_of(i).count == 0) ++range[i];
    next[i] = range[i] < end ? range_of(i).first : done;
  };
  for (std::size_t i = 0; i < count; ++i) {
    range[i] = keys.first_range[first + i];
    enter(i);
  }
  for (;;) {
    const std::int32_t at = *std::min_element(next.begin(), next.begin() + count);
    if (at == done) return;
    std::array<cover, Most> kinds{};
    for (std::size_t i = 0; i < count; ++i) {
      if (next[i] != at) continue;
      kinds[i] = range_of(i).kind;
      if (++next[i] < range_of(i).first + range_of(i).count) continue;
      ++range[i];
      enter(i);
    }
    f(keys.tiles[static_cast<std::size_t>(at)], kinds);
  }
}

/// May query row `row` see the key at `position`?
template <class Mask>
constexpr bool may_see(const query_table& queries, index_t row, std::int32_t position, const Mask& mask) {
  const std::size_t i = static_cast<std::size_t>(row);
  if constexpr (std::is_same_v<Mask, by_intervals>)
    return (queries.lo0[i] <= position && position < queries.hi0[i]) ||
           (queries.lo1[i] <= position && position < queries.hi1[i]);
  else
    return mask.allows(index_t{queries.position[i]}, index_t{position});
}

}  // namespace v0_1
}  // namespace seqpar
