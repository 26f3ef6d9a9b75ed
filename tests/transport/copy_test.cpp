// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <vector>

#include <seqpar/space/copy.hpp>
#include <seqpar/space/overlap.hpp>

using seqpar::block;
using seqpar::index_t;

namespace {

/// The offsets of a block's bytes from its pointer, in order.
std::vector<index_t> offsets(const block& b) {
  std::vector<index_t> all;
  for (index_t i = 0; i < b.rows; ++i)
    for (index_t c = 0; c < b.columns; ++c)
      for (index_t k = 0; k < b.column_bytes; ++k) all.push_back(i * b.row_stride + c * b.column_stride + k);
  return all;
}

index_t pick(std::mt19937& random, index_t lo, index_t hi) {
  return std::uniform_int_distribution<index_t>(lo, hi)(random);
}

/// A block whose pieces do not overlap: strides of either order and sign, with random gaps.
block random_block(std::mt19937& random, index_t rows, index_t columns, index_t column_bytes) {
  block b{nullptr, rows, 0, columns, 0, column_bytes};
  const bool rows_outside = pick(random, 0, 2) > 0;
  index_t& inner = rows_outside ? b.column_stride : b.row_stride;
  index_t& outer = rows_outside ? b.row_stride : b.column_stride;
  inner = column_bytes + pick(random, 0, 1) * pick(random, 0, 3);
  outer = inner * (rows_outside ? columns : rows) + pick(random, 0, 1) * pick(random, 0, 5);
  if (pick(random, 0, 5) == 0) b.row_stride = -b.row_stride;
  if (pick(random, 0, 5) == 0) b.column_stride = -b.column_stride;
  return b;
}

constexpr index_t middle = 6000;

}  // namespace

TEST_CASE("a block is copied byte by byte in order, and no byte beside it is touched") {
  std::mt19937 random(1);
  const index_t sizes[] = {1, 2, 3, 4, 5, 8, 16, 24, 32, 64};
  for (int n = 0; n < 3000; ++n) {
    const index_t rows = pick(random, 0, 5), columns = pick(random, 1, 4), bytes = sizes[pick(random, 0, 9)];
    block from = random_block(random, rows, columns, bytes), to = from;
    switch (pick(random, 0, 4)) {  // the same bytes in another shape
      case 0:
        to = random_block(random, 1, 1, rows * columns * bytes);
        break;
      case 1:
        to = random_block(random, rows, 1, columns * bytes);
        break;
      case 2:
        to = random_block(random, columns, rows, bytes);
        break;
      case 3:
        to = random_block(random, rows * columns * bytes, 1, 1);
        break;
      default:
        to = random_block(random, rows, columns, bytes);
    }
    if (pick(random, 0, 1) == 1) std::swap(from, to);
    std::vector<unsigned char> source(2 * middle), target(2 * middle, 0xee);
    for (auto& x : source) x = static_cast<unsigned char>(random());
    from.pointer = source.data() + middle;
    to.pointer = target.data() + middle;
    std::vector<unsigned char> expected = target;
    const std::vector<index_t> a = offsets(to), b = offsets(from);
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      expected[static_cast<std::size_t>(middle + a[i])] = source[static_cast<std::size_t>(middle + b[i])];
    seqpar::copy_block(to, from);
    REQUIRE(target == expected);
  }
}

TEST_CASE("rows of every size that has its own loop are copied whole") {
  for (const index_t bytes : {1, 2, 4, 8, 16, 32, 64, 128, 256, 257}) {
    std::vector<unsigned char> source(static_cast<std::size_t>(3 * (bytes + 5))), target(source.size(), 0);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 7 + 1);
    seqpar::copy_block({target.data(), 3, bytes + 5, 1, 0, bytes}, {source.data(), 3, bytes + 5, 1, 0, bytes});
    for (std::size_t i = 0; i < source.size(); ++i) {
      const bool inside = static_cast<index_t>(i) % (bytes + 5) < bytes;
      REQUIRE(target[i] == (inside ? source[i] : 0));
    }
  }
}

TEST_CASE("an empty block may have a null pointer") {
  seqpar::copy_block({}, {});
  seqpar::copy_block({nullptr, 0, 4, 1, 4, 4}, {nullptr, 3, 4, 1, 4, 0});
  CHECK_FALSE(seqpar::overlap({}, {}));
}

TEST_CASE("overlap is exactly: some byte belongs to both blocks") {
  std::mt19937 random(2);
  std::vector<unsigned char> memory(2 * middle);
  int overlapping = 0, interleaved = 0;
  for (int n = 0; n < 20000; ++n) {
    block a = random_block(random, pick(random, 0, 4), pick(random, 1, 4), pick(random, 1, 5));
    block b = a;
    if (pick(random, 0, 1) == 0) b = random_block(random, pick(random, 0, 4), pick(random, 1, 4), pick(random, 1, 5));
    if (pick(random, 0, 3) == 0) b.rows = pick(random, 0, 4);
    if (pick(random, 0, 7) == 0) b.row_stride = 0;
    a.pointer = memory.data() + middle;
    b.pointer = memory.data() + middle + pick(random, -40, 40);
    const index_t shift = static_cast<unsigned char*>(b.pointer) - static_cast<unsigned char*>(a.pointer);
    bool shared = false;
    const std::vector<index_t> x = offsets(a), y = offsets(b);
    for (const index_t i : x)
      for (const index_t j : y) shared = shared || i == j + shift;
    REQUIRE(seqpar::overlap(a, b) == shared);
    REQUIRE(seqpar::overlap(b, a) == shared);
    overlapping += shared;
    interleaved += !shared && !seqpar::intersection(seqpar::hull_of(a), seqpar::hull_of(b)).empty();
  }
  CHECK(overlapping > 1000);
  CHECK(interleaved > 200);
}

TEST_CASE("interleaved columns of one buffer do not overlap, however many rows there are") {
  unsigned char memory[64];
  const index_t rows = index_t{1} << 40;
  const block even{memory, rows, 16, 1, 8, 8}, odd{memory + 8, rows, 16, 1, 8, 8};
  CHECK_FALSE(seqpar::overlap(even, odd));
  CHECK(seqpar::overlap(even, {memory + 7, rows, 16, 1, 8, 8}));
}

TEST_CASE("sizes of blocks are 64-bit [D1]") {
  const block b{nullptr, index_t{1} << 22, 4096, 2, 2048, 2048};
  static_assert(std::is_same_v<decltype(b.bytes()), std::int64_t>);
  CHECK(b.bytes() == (index_t{1} << 34));
  CHECK(seqpar::dense_block(nullptr, (index_t{1} << 31) + 5).bytes() == 2147483653);
}

TEST_CASE("a large block in pieces is copied row by row, and no byte beside it is touched") {
  constexpr index_t rows = 2100, piece = 2048, to_stride = piece + 64, from_stride = 2 * piece;
  static_assert(rows * piece > index_t{4} << 20);  // goes past the caches
  std::vector<unsigned char> from(static_cast<std::size_t>(rows * from_stride)),
      to(static_cast<std::size_t>(rows * to_stride + 64), 0xEE);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  void* start = to.data();
  std::size_t room = to.size();
  REQUIRE(std::align(64, static_cast<std::size_t>(rows * to_stride - 64), start, room) != nullptr);
  seqpar::copy_block({start, rows, to_stride, 1, piece, piece}, {from.data(), rows, from_stride, 1, piece, piece});
  index_t wrong = 0;
  for (index_t i = 0; i < rows; ++i) {
    const auto* row = static_cast<unsigned char*>(start) + i * to_stride;
    for (index_t k = 0; k < piece; ++k) wrong += row[k] != from[static_cast<std::size_t>(i * from_stride + k)];
    for (index_t k = piece; k < to_stride && i + 1 < rows; ++k) wrong += row[k] != 0xEE;
  }
  CHECK(wrong == 0);
}
