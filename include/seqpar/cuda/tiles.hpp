// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of 16-bit rows in shared memory: where an element lies, how rows get there, how mma fragments are read.
#pragma once

#include <seqpar/cuda/arguments.hpp>
#include <seqpar/cuda/choices.hpp>
#include <seqpar/cuda/concept.hpp>
#include <seqpar/cuda/each.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// Rows of the largest query tile and of the largest key tile.
inline constexpr int query_rows_of_tile = 128, key_rows_of_tile = 64;

/// The widths that a kernel is compiled for; true ones are given at run time, and columns beyond them are zero.
template <int Qk, int V = Qk>
struct head_class {
  static_assert(Qk % 32 == 0 && V % 32 == 0 && 0 < Qk && Qk <= 256 && 0 < V && V <= 256);
  static constexpr int qk = Qk, v = V;
};

/// Rows of `Columns` elements without gaps, their 16-byte chunks permuted within the row so that the 8 rows × 16 bytes
/// of an 8×8 matrix lie in 32 different banks: chunk c of row r stands where chunk c ^ mix(r) would.
template <int Columns>
struct swizzled {
  static constexpr int chunks = Columns / 8;
  SEQPAR_HD static constexpr int mix(int row) { return chunks % 8 == 0 ? row & 7 : (row >> 1) & 3; }
  SEQPAR_HD static constexpr int at(int row, int chunk) { return row * Columns + (chunk ^ mix(row)) * 8; }
};

/// What this lane names for load_matrices in a swizzled tile: `at(row, pair)` is its row of the four matrices that
/// cover 16 rows from `row` (a multiple of 8) and the 16 columns from 16·pair.
///   by_row     matrices 0, 1 are the two halves of the rows:  A operands; B operands when transposed
///   by_column  matrices 0, 1 are the two halves of the columns: B operands of rows that lie as columns of B
template <int Columns>
class fragment {
 public:
  SEQPAR_HD static fragment by_row(int lane) { return {lane & 15, lane >> 4}; }
  SEQPAR_HD static fragment by_column(int lane) { return {(lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1}; }
  SEQPAR_HD int at(int row, int pair) const { return first_ + row * Columns + ((2 * pair) ^ chunk_) * 8; }

 private:
  SEQPAR_HD fragment(int row, int chunk) : first_(row * Columns), chunk_(chunk ^ swizzled<Columns>::mix(row)) {}
  int first_, chunk_;
};

/// Starts copying `rows` rows of `columns` elements (a multiple of 8), `stride` elements apart, into a swizzled tile of
/// Rows × Columns; what lies beyond them becomes 0. All Threads of the block together; commit_copies() is the caller's.
template <int Rows, int Columns, int Threads, class Hw, class Place, class T>
SEQPAR_DEVICE void copy_rows(Hw& hw, Place to, const T* from, index_t stride, int rows, int columns) {
  constexpr int chunks = Columns / 8, across = chunks <= 4 ? 4 : chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
  // Threads beyond the chunks of a row, or beyond the rows, idle: cheaper than dividing by 12 or 24.
  constexpr int step = Threads / across < Rows ? Threads / across : Rows;
  static_assert(sizeof(T) == 2 && Rows % step == 0);
  const int chunk = hw.thread() & (across - 1), first = hw.thread() / across;
  if (chunk >= chunks || first >= step) return;
  const int there = chunk * 8 < columns ? rows - first : 0;
  const T* source = from + first * stride + chunk * 8;
  // The permutation repeats every 8 rows: few places, and constant distances from them.
  constexpr int apart = step % 8 == 0 ? 1 : 8 / step;
  static_assert(step % 8 == 0 || 8 % step == 0);
  each<apart>([&](int i) {
    const auto place = to + swizzled<Columns>::at(first + i * step, chunk);
    each<Rows / step / apart>([&](int j) {
      const int row = i * step + j * step * apart;
      hw.copy_async(place + j * step * apart * Columns, reinterpret_cast<const quad*>(source + row * stride),
                    row < there);
    });
  });
}

/// The key tiles that a query tile visits, over a list of segments:
/// `for (segment_walk w(segments, count, query_tile); w.more(); w.next()) … w.segment(), w.tile(), w.kind()`.
/// It can be laid down as a quad and taken up again: registers are dear.
template <class T>
class segment_walk {
 public:
  SEQPAR_HD segment_walk(const segment<T>* segments, int count, std::int32_t query_tile)
      : segments_(segments), count_(count) {
    open_segment(query_tile);
  }
  SEQPAR_HD segment_walk(const seqpar::cuda::segment<T>* segments, int count, const quad& saved)
      : segments_(segments),
        count_(count),
        segment_(static_cast<std::int32_t>(saved.word[0] >> 2)),
        range_(static_cast<std::int32_t>(saved.word[1])),
        tile_(static_cast<std::int32_t>(saved.word[2])),
        end_(static_cast<std::int32_t>(saved.word[3])),
        kind_(static_cast<cover>(saved.word[0] & 3)) {}
  SEQPAR_HD quad saved() const {
    return {{static_cast<std::uint32_t>(segment_) << 2 | static_cast<std::uint32_t>(kind_),
             static_cast<std::uint32_t>(range_), static_cast<std::uint32_t>(tile_), static_cast<std::uint32_t>(end_)}};
  }
  SEQPAR_HD bool more() const { return segment_ < count_; }
  SEQPAR_HD const seqpar::cuda::segment<T>& segment() const { return segments_[segment_]; }
  SEQPAR_HD key_tile tile() const { return segment().keys.tiles[tile_]; }
  SEQPAR_HD cover kind() const { return kind_; }
  SEQPAR_HD void next(std::int32_t query_tile) {
    if (++tile_ < end_) return;
    if (++range_ < segment().keys.first_range[query_tile + 1]) return open_range();
    ++segment_;
    open_segment(query_tile);
  }

 private:
  SEQPAR_HD void open_range() {
    const tile_range r = segment().keys.ranges[range_];
    tile_ = r.first;
    end_ = r.first + r.count;
    kind_ = r.kind;
  }
  SEQPAR_HD void open_segment(std::int32_t query_tile) {
    for (; segment_ < count_; ++segment_) {
      const key_list& keys = segment().keys;
      if (keys.count == 0) continue;
      range_ = keys.first_range[query_tile];
      if (range_ < keys.first_range[query_tile + 1]) return open_range();
    }
  }
  const seqpar::cuda::segment<T>* segments_;
  int count_;
  std::int32_t segment_ = 0, range_ = 0, tile_ = 0, end_ = 0;
  cover kind_ = cover::some;
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
