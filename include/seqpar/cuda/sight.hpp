// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which keys a query row sees, in the form that a kernel keeps in shared memory: worked out once per row and once per
// key of a tile, so that a pair costs compares only.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <seqpar/cuda/arguments.hpp>
#include <seqpar/cuda/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// A functor mask that compares coordinates: coordinate_of(position) → a few integers, worked out once per row, and
/// allows_at(of_query, of_key). Both marked SEQPAR_HD. Law: allows(q, k) = allows_at(coordinate_of(q),
/// coordinate_of(k)).
template <class M>
concept coordinate_mask = requires(const M& mask, index_t position) {
  mask.coordinate_of(position);
  { mask.allows_at(mask.coordinate_of(position), mask.coordinate_of(position)) } -> std::convertible_to<bool>;
  requires std::is_trivially_copyable_v<decltype(mask.coordinate_of(position))>;
};

/// What is kept of a row and of a key.
///
///   row, key                    trivially copyable, 4, 8 or 16 bytes
///   row_of(queries, row, mask)  key_of(position, mask)  see(row, key, mask)
///
/// For devices only: so that nvcc refuses a mask whose functions are the host's, rather than warn and leave them out.
template <class Mask>
struct sight {
  using row = std::int32_t;
  using key = std::int32_t;
  SEQPAR_DEVICE static row row_of(const query_list& q, std::int32_t i, const Mask&) { return q.position[i]; }
  SEQPAR_DEVICE static key key_of(std::int32_t position, const Mask&) { return position; }
  SEQPAR_DEVICE static bool see(row r, key k, const Mask& mask) { return mask.allows(index_t{r}, index_t{k}); }
};

template <>
struct sight<by_intervals> {
  struct alignas(16) row {
    std::int32_t lo0;
    std::uint32_t size0;
    std::int32_t lo1;
    std::uint32_t size1;
  };
  using key = std::int32_t;
  SEQPAR_DEVICE static row row_of(const query_list& q, std::int32_t i, by_intervals) {
    return {q.lo0[i], static_cast<std::uint32_t>(q.hi0[i] - q.lo0[i]), q.lo1[i],
            static_cast<std::uint32_t>(q.hi1[i] - q.lo1[i])};
  }
  SEQPAR_DEVICE static key key_of(std::int32_t position, by_intervals) { return position; }
  /// A key below an interval is far above it without its sign. Both are asked, so that nothing branches.
  SEQPAR_DEVICE static bool see(const row& r, key k, by_intervals) {
    return static_cast<int>(static_cast<std::uint32_t>(k - r.lo0) < r.size0) |
           static_cast<int>(static_cast<std::uint32_t>(k - r.lo1) < r.size1);
  }
};

template <coordinate_mask Mask>
struct sight<Mask> {
  using coordinate = decltype(std::declval<const Mask&>().coordinate_of(index_t{}));
  static_assert(sizeof(coordinate) == 4 || sizeof(coordinate) == 8 || sizeof(coordinate) == 16,
                "[seqpar] cuda: a mask's coordinate takes 4, 8 or 16 bytes; add an integer to it");
  struct alignas(sizeof(coordinate)) row {
    coordinate at;
  };
  using key = row;
  SEQPAR_DEVICE static row row_of(const query_list& q, std::int32_t i, const Mask& mask) {
    return {mask.coordinate_of(index_t{q.position[i]})};
  }
  SEQPAR_DEVICE static key key_of(std::int32_t position, const Mask& mask) {
    return {mask.coordinate_of(index_t{position})};
  }
  SEQPAR_DEVICE static bool see(const row& r, const key& k, const Mask& mask) { return mask.allows_at(r.at, k.at); }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
