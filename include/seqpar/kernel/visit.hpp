// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reading the tables: which key tiles a query tile visits, and whether one row sees one key.
#pragma once

#include <cstddef>
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
