// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who visits a key tile: the tables turned round, for kernels that walk by keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <seqpar/kernel/tables.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Fills keys.first_query_range and keys.query_ranges from first_range and ranges. The work is that of the changes from
/// one query tile to the next, not that of all pairs.
template <class = when_used>
void transpose(key_rows& keys) {
  const auto tiles = static_cast<std::int32_t>(keys.tiles.size());
  const auto visits = [&](std::size_t t) {
    return t + 1 < keys.first_range.size()
               ? std::span(keys.ranges)
                     .subspan(static_cast<std::size_t>(keys.first_range[t]),
                              static_cast<std::size_t>(keys.first_range[t + 1] - keys.first_range[t]))
               : std::span<tile_range>();
  };
  struct cursor {  // what one query tile says of key tile `at`, and up to where
    std::span<const tile_range> left;
    cover kind_at(std::int32_t at, std::int32_t& end) {
      while (!left.empty() && left.front().first + left.front().count <= at) left = left.subspan(1);
      if (left.empty()) return cover::none;
      const bool inside = left.front().first <= at;
      end = (std::min)(end, left.front().first + (inside ? left.front().count : 0));
      return inside ? left.front().kind : cover::none;
    }
  };
  std::vector<std::vector<tile_range>> by_key(keys.tiles.size());
  std::vector<std::int32_t> since(keys.tiles.size());
  for (std::size_t t = 0; t < keys.first_range.size(); ++t) {
    cursor before{t > 0 ? visits(t - 1) : std::span<tile_range>()}, now{visits(t)};
    for (std::int32_t i = 0, end; i < tiles; i = end) {
      end = tiles;
      const cover was = before.kind_at(i, end), is = now.kind_at(i, end);
      if (was == is) continue;
      for (auto j = static_cast<std::size_t>(i); j < static_cast<std::size_t>(end); ++j) {
        if (was != cover::none) by_key[j].push_back({since[j], static_cast<std::int32_t>(t) - since[j], was});
        since[j] = static_cast<std::int32_t>(t);
      }
    }
  }
  keys.first_query_range.assign(1, 0);
  keys.query_ranges.clear();
  for (const auto& list : by_key) {
    for (const tile_range& r : list) keys.query_ranges.push_back(r);
    keys.first_query_range.push_back(static_cast<std::int32_t>(keys.query_ranges.size()));
  }
}

}  // namespace v0_1
}  // namespace seqpar
