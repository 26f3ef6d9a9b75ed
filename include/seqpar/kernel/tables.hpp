// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lowers runs of positions and a mask's key intervals into the plain tables that kernels read. Done once, while
// planning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/rectangles.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {

inline std::int32_t narrow(index_t position) {
  if (position < 0 || position > (std::numeric_limits<std::int32_t>::max)())
    raise(invalid("lower_queries", "a position does not fit in 31 bits; shorten or split the sequence"));
  return static_cast<std::int32_t>(position);
}

/// Runs that go on where the one before ended become one; empty ones go. A single row takes its neighbour's step.
template <class = when_used>
std::vector<run> merged(std::span<const run> runs) {
  std::vector<run> out;
  for (const run& r : runs) {
    if (r.count == 0) continue;
    if (!out.empty()) {
      run& last = out.back();
      const index_t step = last.count > 1 ? last.step : r.first - last.first;
      if (step != 0 && r.first == last.first + last.count * step && (r.count == 1 || r.step == step)) {
        last = {last.first, last.count + r.count, step};
        continue;
      }
    }
    out.push_back(r);
  }
  return out;
}

/// Calls f(row, rows, piece) for tiles of at most tile_rows rows; piece is the affine run that a tile lies in, or
/// count 0 when it spans several. Runs of a quarter tile or more are cut at their ends, into even pieces; shorter ones
/// are packed together.
template <class F>
void cut(std::span<const run> runs, index_t tile_rows, F&& f) {
  const index_t is_long = (std::max<index_t>)(1, tile_rows / 4);
  index_t row = 0, packed = 0;
  run only{};
  const auto flush = [&] {
    if (packed > 0) f(row, packed, only);
    row += packed;
    packed = 0;
  };
  for (const run& r : runs) {
    if (r.count < is_long) {
      if (packed + r.count > tile_rows) flush();
      only = packed == 0 ? r : run{};
      packed += r.count;
      continue;
    }
    flush();
    const index_t pieces = (r.count + tile_rows - 1) / tile_rows;
    const index_t even = ((r.count + pieces - 1) / pieces + 7) / 8 * 8, rows = (std::min)(even, tile_rows);
    for (index_t i = 0; i < r.count; i += rows) {
      const index_t n = (std::min)(rows, r.count - i);
      f(row, n, run{r.at(i), n, r.step});
      row += n;
    }
  }
  flush();
}

}  // namespace detail

/// The query side of a call: tiles and, per row, its position and the keys it may see.
struct query_rows {
  std::vector<query_tile> tiles;
  std::vector<std::int32_t> lo0, hi0, lo1, hi1, position;
  template <class = when_used>
  query_table table() const {
    using detail::span_over;
    return {span_over(tiles), span_over(lo0), span_over(hi0), span_over(lo1), span_over(hi1), span_over(position)};
  }
};

/// The key side of one segment: tiles, positions where a tile is irregular, and what each query tile visits.
struct key_rows {
  std::vector<key_tile> tiles;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> first_range;
  std::vector<tile_range> ranges;
  std::vector<std::int32_t> first_query_range;  ///< by key tile; see transpose.hpp
  std::vector<tile_range> query_ranges;
  std::optional<std::vector<rectangle>> rectangles;  ///< where asked for and so few
  template <class = when_used>
  key_table table() const {
    using detail::span_over;
    return {span_over(tiles),
            span_over(positions),
            span_over(first_range),
            span_over(ranges),
            span_over(first_query_range),
            span_over(query_ranges),
            rectangles ? &*rectangles : nullptr};
  }
};

/// Consecutive query rows in tiles, cut at the ends of long runs.
template <class = when_used>
std::vector<query_tile> cut_queries(std::span<const run> runs, index_t tile_rows) {
  std::vector<query_tile> tiles;
  detail::cut(detail::merged(runs), tile_rows, [&](index_t row, index_t rows, run) {
    tiles.push_back({detail::narrow(row), static_cast<std::int32_t>(rows)});
  });
  return tiles;
}

/// Consecutive key rows in tiles: affine along long runs (so that no tile spans two of them), irregular where short
/// runs are packed. Ranges are left empty; see classify and every_tile.
template <class = when_used>
key_rows cut_keys(std::span<const run> runs, index_t tile_rows) {
  key_rows keys;
  const std::vector<run> pieces = detail::merged(runs);
  bool irregular = false;
  detail::cut(pieces, tile_rows, [&](index_t row, index_t rows, run r) {
    key_tile tile{detail::narrow(row), static_cast<std::int32_t>(rows), 0, key_tile::irregular};
    if (r.count > 0) {
      tile.position = detail::narrow(r.first);
      detail::narrow(r.at(r.count - 1));
      tile.step = r.count > 1 ? static_cast<std::int32_t>(r.step) : 1;
    } else {
      irregular = true;
    }
    keys.tiles.push_back(tile);
  });
  if (irregular)
    for (const run& r : pieces)
      for (index_t i = 0; i < r.count; ++i) keys.positions.push_back(detail::narrow(r.at(i)));
  return keys;
}

/// Positions only: what a functor mask needs.
template <class = when_used>
query_rows lower_positions(std::span<const run> runs, index_t tile_rows) {
  query_rows rows;
  rows.tiles = cut_queries(runs, tile_rows);
  for (const run& r : runs)
    for (index_t i = 0; i < r.count; ++i) rows.position.push_back(detail::narrow(r.at(i)));
  return rows;
}

/// intervals_of(position) → interval_pair, clipped here to 0 ≤ k < k_tokens; an interval that is not used is {0, 0}.
template <class F>
query_rows lower_intervals(std::span<const run> runs, F&& intervals_of, index_t k_tokens, index_t tile_rows) {
  detail::narrow(k_tokens);
  query_rows rows = lower_positions(runs, tile_rows);
  const std::size_t n = rows.position.size();
  for (auto* list : {&rows.lo0, &rows.hi0, &rows.lo1, &rows.hi1}) list->resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const interval_pair asked = intervals_of(index_t{rows.position[i]});
    const interval_pair keys =
        make_intervals(intersection(asked.first, {0, k_tokens}), intersection(asked.second, {0, k_tokens}));
    rows.lo0[i] = static_cast<std::int32_t>(keys.first.lo);
    rows.hi0[i] = static_cast<std::int32_t>(keys.first.hi);
    rows.lo1[i] = static_cast<std::int32_t>(keys.second.lo);
    rows.hi1[i] = static_cast<std::int32_t>(keys.second.hi);
  }
  return rows;
}

namespace detail {

/// Two intervals' hull (what some row sees) and core (what every row sees) over the rows of a query tile.
struct tile_summary {
  interval hull[2], core[2];
  template <class = when_used>
  static tile_summary of(const query_table& q, const query_tile& tile) {
    tile_summary s;
    for (int which = 0; which < 2; ++which) {
      const auto lo = which == 0 ? q.lo0 : q.lo1, hi = which == 0 ? q.hi0 : q.hi1;
      interval hull{unbounded, 0}, core{0, unbounded};
      for (std::int32_t i = 0; i < tile.rows; ++i) {
        const interval keys{lo[static_cast<std::size_t>(tile.row + i)], hi[static_cast<std::size_t>(tile.row + i)]};
        core = intersection(core, keys);
        if (!keys.empty()) hull = {(std::min)(hull.lo, keys.lo), (std::max)(hull.hi, keys.hi)};
      }
      s.hull[which] = hull;
      s.core[which] = core;
    }
    return s;
  }
};

/// The positions of a key tile: their hull, and how many lie in an interval.
class tile_positions {
 public:
  template <class = when_used>
  tile_positions(const key_tile& tile, std::span<const std::int32_t> sorted) : tile_(tile), sorted_(sorted) {
    const index_t last = tile.position + index_t{tile.rows - 1} * tile.step;
    if (tile.step != key_tile::irregular)
      hull_ = {(std::min<index_t>)(tile.position, last), (std::max<index_t>)(tile.position, last) + 1};
    else
      hull_ = {sorted.front(), index_t{sorted.back()} + 1};
  }
  interval hull() const { return hull_; }
  template <class = when_used>
  index_t inside(interval keys) const {
    const interval both = intersection(keys, hull_);
    if (both.empty()) return 0;
    if (tile_.step == key_tile::irregular)
      return std::lower_bound(sorted_.begin(), sorted_.end(), both.hi) -
             std::lower_bound(sorted_.begin(), sorted_.end(), both.lo);
    // Rows in ascending positions hull.lo + i·step: those below hi less those below lo.
    const index_t step = tile_.step < 0 ? -index_t{tile_.step} : index_t{tile_.step};
    return (both.hi - hull_.lo + step - 1) / step - (both.lo - hull_.lo + step - 1) / step;
  }

 private:
  key_tile tile_;
  std::span<const std::int32_t> sorted_;
  interval hull_;
};

template <class = when_used>
cover cover_of(const query_table& q, const query_tile& tile, const tile_positions& keys, index_t key_count) {
  bool any = false, all = true;
  for (std::int32_t i = 0; i < tile.rows && (all || !any); ++i) {
    const std::size_t row = static_cast<std::size_t>(tile.row + i);
    const index_t seen = keys.inside({q.lo0[row], q.hi0[row]}) + keys.inside({q.lo1[row], q.hi1[row]});
    any = any || seen > 0;
    all = all && seen == key_count;
  }
  return all ? cover::all : any ? cover::some : cover::none;
}

template <class = when_used>
void append(key_rows& keys, std::size_t begin, std::int32_t tile, cover kind) {
  if (keys.ranges.size() > begin) {
    tile_range& last = keys.ranges.back();
    if (last.kind == kind && last.first + last.count == tile) {
      ++last.count;
      return;
    }
  }
  keys.ranges.push_back({tile, 1, kind});
}

}  // namespace detail

/// Fills keys.first_range and keys.ranges: for each pair of tiles exactly none (absent), some, or all. Hulls decide
/// most pairs; the rest count, row by row, how many of the tile's positions lie inside the row's intervals.
template <class = when_used>
void classify(const query_table& queries, key_rows& keys) {
  std::vector<std::int32_t> sorted(keys.positions);
  for (const key_tile& t : keys.tiles)
    if (t.step == key_tile::irregular)
      detail::sort_by(std::span(sorted).subspan(static_cast<std::size_t>(t.row), static_cast<std::size_t>(t.rows)),
                      [](std::int32_t position) { return position; });
  std::vector<detail::tile_positions> positions;
  positions.reserve(keys.tiles.size());
  for (const key_tile& t : keys.tiles)
    positions.emplace_back(t, t.step == key_tile::irregular
                                  ? std::span<const std::int32_t>(sorted).subspan(static_cast<std::size_t>(t.row),
                                                                                  static_cast<std::size_t>(t.rows))
                                  : std::span<const std::int32_t>());
  keys.first_range.assign(1, 0);
  keys.ranges.clear();
  for (const query_tile& q : queries.tiles) {
    const std::size_t begin = keys.ranges.size();
    const detail::tile_summary rows = detail::tile_summary::of(queries, q);
    for (std::size_t t = 0; t < keys.tiles.size(); ++t) {
      const interval hull = positions[t].hull();
      if (intersection(hull, rows.hull[0]).empty() && intersection(hull, rows.hull[1]).empty()) continue;
      const bool all = intersection(hull, rows.core[0]) == hull || intersection(hull, rows.core[1]) == hull;
      const cover kind = all ? cover::all : detail::cover_of(queries, q, positions[t], index_t{keys.tiles[t].rows});
      if (kind != cover::none) detail::append(keys, begin, static_cast<std::int32_t>(t), kind);
    }
    keys.first_range.push_back(static_cast<std::int32_t>(keys.ranges.size()));
  }
}

/// Fills keys.first_range and keys.ranges for a mask that is only known by asking: every pair of tiles is `some`.
template <class = when_used>
void every_tile(const query_table& queries, key_rows& keys) {
  keys.first_range.assign(1, 0);
  keys.ranges.clear();
  for (std::size_t q = 0; q < queries.tiles.size(); ++q) {
    if (!keys.tiles.empty()) keys.ranges.push_back({0, static_cast<std::int32_t>(keys.tiles.size()), cover::some});
    keys.first_range.push_back(static_cast<std::int32_t>(keys.ranges.size()));
  }
}

/// The key side of one segment, whole.
template <class = when_used>
key_rows lower_keys(std::span<const run> runs, const query_rows& queries, index_t tile_rows) {
  key_rows keys = cut_keys(runs, tile_rows);
  if (queries.lo0.size() == queries.position.size())
    classify(queries.table(), keys);
  else
    every_tile(queries.table(), keys);
  return keys;
}

}  // namespace v0_1
}  // namespace seqpar
