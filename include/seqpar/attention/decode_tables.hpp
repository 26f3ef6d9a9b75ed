// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tables of a few queries over one rank's rows of a cache, written anew each step, in place and without allocating.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include <seqpar/exchange/holding.hpp>
#include <seqpar/kernel/tables.hpp>
#include <seqpar/memory.hpp>
#include <seqpar/space/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Every tile but the last is full, so that a capacity in rows bounds their number whatever the layout: a tile that
/// meets several runs lists its positions. Ranges are told by hulls alone (`some` is always legal).
class decode_tables {
 public:
  /// Walks the table memory for up to `queries` queries and `rows` key rows; counts when there is none.
  static decode_tables take(carver& c, index_t queries, index_t rows, index_t query_tile_rows, index_t key_tile_rows) {
    decode_tables t;
    t.query_tile_rows_ = query_tile_rows;
    t.key_tile_rows_ = key_tile_rows;
    t.query_room_ = queries;
    t.key_room_ = rows;
    t.place(c);
    return t;
  }
  /// The same tables in another memory. Kernels are told of every key tile that there is room for: which of them are
  /// visited is in the ranges, which that memory may be given anew while what reads it is replayed.
  decode_tables copied_to(carver c) const {
    decode_tables t = *this;
    t.place(c);
    t.k_count_ = tiles_of(key_room_, key_tile_rows_);
    return t;
  }
  /// f(list, bytes) for what is written of each list, as they follow each other in memory.
  template <class F>
  void for_each_list(F&& f) const {
    const auto list = [&]<class E>(const E* p, index_t n) { f(p, n * static_cast<index_t>(sizeof(E))); };
    list(q_tiles_, q_count_);
    for (const std::int32_t* p : {lo0_, hi0_, lo1_, hi1_, position_}) list(p, queries_);
    list(k_tiles_, k_count_);
    list(k_positions_, irregular_ ? keys_ : 0);
    list(first_range_, q_count_ + 1);
    list(ranges_, range_count_);
  }

  /// The queries' positions, and their keys if intervals_of(position) → optional<interval_pair> tells them all. Does
  /// it?
  template <class F>
  bool write_queries(run positions, index_t k_tokens, F&& intervals_of) {
    queries_ = positions.count;
    q_count_ = 0;
    for (index_t i = 0; i < queries_; i += query_tile_rows_)
      q_tiles_[q_count_++] = {static_cast<std::int32_t>(i),
                              static_cast<std::int32_t>(std::min(query_tile_rows_, queries_ - i))};
    bool told = true;
    for (index_t i = 0; i < queries_; ++i) {
      position_[i] = static_cast<std::int32_t>(positions.at(i));
      const std::optional<interval_pair> asked = intervals_of(positions.at(i));
      told = told && asked.has_value();
      const interval all{0, k_tokens};
      const interval_pair keys =
          asked ? make_intervals(intersection(asked->first, all), intersection(asked->second, all)) : interval_pair{};
      lo0_[i] = static_cast<std::int32_t>(keys.first.lo);
      hi0_[i] = static_cast<std::int32_t>(keys.first.hi);
      lo1_[i] = static_cast<std::int32_t>(keys.second.lo);
      hi1_[i] = static_cast<std::int32_t>(keys.second.hi);
    }
    return told;
  }

  /// The key rows that `layout` gives to `rank`, within the capacity.
  template <sequence_layout L>
  void write_keys(const L& layout, int rank) {
    keys_ = k_count_ = 0;
    irregular_ = false;
    for_each_run(layout, rank, [&](run r) {
      for (index_t i = 0; i < r.count;) {
        const index_t open = keys_ % key_tile_rows_, n = std::min(r.count - i, key_tile_rows_ - open);
        if (open == 0)
          k_tiles_[k_count_++] = {static_cast<std::int32_t>(keys_), static_cast<std::int32_t>(n),
                                  static_cast<std::int32_t>(r.at(i)), n > 1 ? static_cast<std::int32_t>(r.step) : 1};
        else
          extend(k_tiles_[k_count_ - 1], {r.at(i), n, r.step});
        keys_ += n;
        i += n;
      }
    });
  }

  /// Which tiles are visited: by the queries' intervals, or all of them for a mask that must be asked.
  template <class = when_used>
  void write_ranges(bool by_intervals) {
    range_count_ = 0;
    first_range_[0] = 0;
    const query_table q = queries();
    for (index_t t = 0; t < q_count_; ++t) {
      if (by_intervals)
        write_ranges_of(tile_summary::of(q, q_tiles_[t]));
      else if (k_count_ > 0)
        ranges_[range_count_++] = {0, static_cast<std::int32_t>(k_count_), cover::some};
      first_range_[t + 1] = static_cast<std::int32_t>(range_count_);
    }
  }

  template <class = when_used>
  query_table queries() const {
    return {view(q_tiles_, q_count_), view(lo0_, queries_), view(hi0_, queries_),
            view(lo1_, queries_),     view(hi1_, queries_), view(position_, queries_)};
  }
  template <class = when_used>
  key_table keys() const {
    return {view(k_tiles_, k_count_), view(k_positions_, irregular_ ? keys_ : 0), view(first_range_, q_count_ + 1),
            view(ranges_, range_count_)};
  }
  index_t query_count() const { return queries_; }
  index_t key_count() const { return keys_; }
  bool nothing_to_see() const { return range_count_ == 0; }

 private:
  template <class = when_used>
  void place(carver& c) {
    const index_t q_tiles = tiles_of(query_room_, query_tile_rows_), k_tiles = tiles_of(key_room_, key_tile_rows_);
    q_tiles_ = c.take<query_tile>(q_tiles);
    for (std::int32_t** list : {&lo0_, &hi0_, &lo1_, &hi1_, &position_}) *list = c.take<std::int32_t>(query_room_);
    k_tiles_ = c.take<key_tile>(k_tiles);
    k_positions_ = c.take<std::int32_t>(key_room_);
    first_range_ = c.take<std::int32_t>(q_tiles + 1);
    ranges_ = c.take<tile_range>(q_tiles * k_tiles);
  }
  static index_t tiles_of(index_t rows, index_t tile) { return (rows + tile - 1) / tile; }
  template <class E>
  static std::span<const E> view(const E* p, index_t n) {
    return {p, p ? static_cast<std::size_t>(n) : 0};
  }

  /// Adds rows to an open tile, which stays affine if they continue it.
  void extend(key_tile& tile, run r) {
    const index_t step = tile.rows == 1 ? r.first - tile.position : index_t{tile.step};
    const bool continues = tile.step != key_tile::irregular && step != 0 &&
                           r.first == tile.position + tile.rows * step && (r.count == 1 || r.step == step);
    if (continues) {
      tile.step = static_cast<std::int32_t>(step);
    } else {
      if (tile.step != key_tile::irregular)
        for (std::int32_t j = 0; j < tile.rows; ++j) k_positions_[tile.row + j] = tile.position + j * tile.step;
      tile.step = key_tile::irregular;
      irregular_ = true;
      for (index_t j = 0; j < r.count; ++j) k_positions_[tile.row + tile.rows + j] = static_cast<std::int32_t>(r.at(j));
    }
    tile.rows += static_cast<std::int32_t>(r.count);
  }
  template <class = when_used>
  interval hull_of(const key_tile& tile) const {
    if (tile.step != key_tile::irregular) return span_of(run{tile.position, tile.rows, tile.step});
    const auto [least, most] = std::minmax_element(k_positions_ + tile.row, k_positions_ + tile.row + tile.rows);
    return {*least, index_t{*most} + 1};
  }
  template <class = when_used>
  void write_ranges_of(const tile_summary& rows) {
    const index_t begin = range_count_;
    for (index_t t = 0; t < k_count_; ++t) {
      const interval hull = hull_of(k_tiles_[t]);
      if (intersection(hull, rows.hull[0]).empty() && intersection(hull, rows.hull[1]).empty()) continue;
      const bool all = intersection(hull, rows.core[0]) == hull || intersection(hull, rows.core[1]) == hull;
      const cover kind = all ? cover::all : cover::some;
      tile_range* last = range_count_ > begin ? ranges_ + range_count_ - 1 : nullptr;
      if (last && last->kind == kind && last->first + last->count == t)
        ++last->count;
      else
        ranges_[range_count_++] = {static_cast<std::int32_t>(t), 1, kind};
    }
  }

  index_t query_tile_rows_ = 1, key_tile_rows_ = 1, query_room_ = 0, key_room_ = 0;
  query_tile* q_tiles_ = nullptr;
  std::int32_t *lo0_ = nullptr, *hi0_ = nullptr, *lo1_ = nullptr, *hi1_ = nullptr, *position_ = nullptr;
  key_tile* k_tiles_ = nullptr;
  std::int32_t *k_positions_ = nullptr, *first_range_ = nullptr;
  tile_range* ranges_ = nullptr;
  index_t queries_ = 0, keys_ = 0, q_count_ = 0, k_count_ = 0, range_count_ = 0;
  bool irregular_ = false;
};

/// Tables that are written here for kernels that read them elsewhere. From one step to the next few words change; these
/// alone are sent, by value (space.put), so that nothing waits and nothing here must outlive a copy.
class table_copy {
 public:
  /// Both sides are zeros. For prepare: allocates and waits.
  template <class Space>
  status start(const region& there, const Space& work) {
    here_ = host_memory({.tables = there.bytes, .scratch = there.bytes});
    for (const region& r : {here(), sent()}) std::memset(r.pointer, 0, static_cast<std::size_t>(there.bytes));
    there_ = there.pointer;
    work.upload(there_, sent().pointer, there.bytes);
    return work.finish();
  }
  region here() const { return memory(here_).tables; }
  /// Makes the lists there as they are here, in the order of `work`.
  template <class Space>
  void send(const decode_tables& tables, const Space& work) {
    placed_word changed[480];
    std::size_t count = 0;
    index_t base = 0;
    const auto flush = [&] {
      if (count > 0) work.put(static_cast<std::byte*>(there_) + base, std::span(changed, count));
      count = 0;
    };
    tables.for_each_list([&](const void* list, index_t bytes) {
      const std::byte* first = static_cast<const std::byte*>(here().pointer);
      const index_t begin = static_cast<const std::byte*>(list) - first;
      for (index_t at = begin; at < begin + bytes; at += word_bytes) {
        std::uint32_t value;
        std::memcpy(&value, first + at, sizeof(value));
        std::byte* last = static_cast<std::byte*>(sent().pointer) + at;
        if (std::memcmp(last, &value, sizeof(value)) == 0) continue;
        std::memcpy(last, &value, sizeof(value));
        if (count == std::size(changed) || (at - base) / word_bytes > std::numeric_limits<std::uint32_t>::max())
          flush();
        if (count == 0) base = at;
        changed[count++] = {static_cast<std::uint32_t>((at - base) / word_bytes), value};
      }
    });
    flush();
  }

 private:
  static constexpr index_t word_bytes = sizeof(std::uint32_t);
  region sent() const { return memory(here_).scratch; }
  host_memory here_;
  void* there_ = nullptr;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
