// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Strided blocks of any size as MPI datatypes.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <vector>

#include <seqpar/space/block.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace mpi::detail {

/// Builds the datatype of a block, relative to its pointer, out of bytes. MPI counts are ints: a longer repetition is
/// made of repetitions of repetitions, each of at most `limit`. Strides are MPI_Aint and may be negative.
class type_maker {
 public:
  explicit type_maker(index_t limit = index_t{1} << 30) : limit_(limit) {}

  /// Committed; MPI_DATATYPE_NULL, and an error() of MPI, when it could not be made. The block has bytes.
  MPI_Datatype make(const block& b) {
    const index_t piece = b.dense_rows() ? b.columns * b.column_bytes : b.column_bytes;
    MPI_Datatype type = repeat(piece, 1, MPI_BYTE);
    if (!b.dense_rows()) type = wrap(b.columns, b.column_stride, type);
    if (b.rows > 1) type = wrap(b.rows, b.row_stride, type);
    if (error_ == MPI_SUCCESS) note(MPI_Type_commit(&type));
    if (error_ != MPI_SUCCESS) drop(type);
    return type;
  }
  int error() const { return error_; }

 private:
  MPI_Datatype repeat(index_t count, index_t stride, MPI_Datatype of) {
    // OpenMPI 4 takes a stride of -1 for none given; such steps are made two at a time.
    const bool one_back = stride == -1 && count > 1;
    if (count <= limit_ && !one_back) {
      MPI_Datatype type = MPI_DATATYPE_NULL;
      if (error_ == MPI_SUCCESS) note(MPI_Type_create_hvector(static_cast<int>(count), 1, stride, of, &type));
      return type;
    }
    const index_t many = one_back ? 2 : limit_, rest = count % many;
    MPI_Datatype whole = wrap(count / many, many * stride, one_back ? pair(of, stride, of) : repeat(many, stride, of));
    if (rest == 0) return whole;
    MPI_Datatype tail = repeat(rest, stride, of), type = pair(whole, (count - rest) * stride, tail);
    drop(whole);
    drop(tail);
    return type;
  }
  /// a, and b at that many bytes from it.
  MPI_Datatype pair(MPI_Datatype a, index_t at, MPI_Datatype b) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const int ones[] = {1, 1};
    const MPI_Aint places[] = {0, at};
    const MPI_Datatype parts[] = {a, b};
    if (error_ == MPI_SUCCESS) note(MPI_Type_create_struct(2, ones, places, parts, &type));
    return type;
  }
  /// repeat(), and frees `of`.
  MPI_Datatype wrap(index_t count, index_t stride, MPI_Datatype of) {
    const MPI_Datatype type = repeat(count, stride, of);
    drop(of);
    return type;
  }
  void note(int code) {
    if (error_ == MPI_SUCCESS) error_ = code;
  }
  static void drop(MPI_Datatype& type) {
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }

  index_t limit_;
  int error_ = MPI_SUCCESS;
};

/// Remembers the types of the shapes that were sent and received last, so that a plan that runs again makes none: MPI
/// allocates for each. A type may be freed while a message of it is under way.
class type_cache {
 public:
  type_cache() : entries_(256) {}
  type_cache(const type_cache&) = delete;
  type_cache& operator=(const type_cache&) = delete;
  ~type_cache() {
    for (entry& e : entries_)
      if (e.type != MPI_DATATYPE_NULL) MPI_Type_free(&e.type);
  }

  /// Of a block that has bytes; MPI_DATATYPE_NULL and MPI's code in `error` when it cannot be made.
  MPI_Datatype of(const block& b, int& error) noexcept {
    const shape wanted{b.rows, b.row_stride, b.columns, b.column_stride, b.column_bytes};
    std::uint64_t hash = 0;
    for (const index_t x : wanted) hash = (hash ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15u;
    entry& e = entries_[hash >> 56];
    if (e.type != MPI_DATATYPE_NULL && e.of == wanted) return e.type;
    if (e.type != MPI_DATATYPE_NULL) MPI_Type_free(&e.type);
    type_maker maker;
    e = {wanted, maker.make(b)};
    error = maker.error();
    return e.type;
  }
  /// When MPI is gone, and its types with it.
  void forget() noexcept { entries_.clear(); }

 private:
  using shape = std::array<index_t, 5>;
  struct entry {
    shape of{};
    MPI_Datatype type = MPI_DATATYPE_NULL;
  };
  std::vector<entry> entries_;
};

}  // namespace mpi::detail
}  // namespace v0_1
}  // namespace seqpar
