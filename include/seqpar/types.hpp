// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The vocabulary: indices, places, runs, intervals, and the 16-bit element types of the host.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <seqpar/config.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Every count, position and stride.
using index_t = std::int64_t;

/// The parameter of functions that are templates for one reason, `template <class = when_used>`: what they take to
/// compile is spent where they are called, not wherever their header is included.
struct when_used;

/// The next multiple of `unit`.
SEQPAR_HD constexpr index_t round_up(index_t n, index_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// Stands for no number where any number may be one.
inline constexpr index_t no_number = (std::numeric_limits<index_t>::min)();

/// What is wrong with a value, in literal words, and the number at fault where there is one; or nothing, which reads as
/// a null pointer.
struct flaw {
  const char* text = nullptr;
  index_t given = no_number;

  constexpr flaw(const char* what = nullptr, index_t number = no_number) : text(what), given(number) {}
  constexpr operator const char*() const { return text; }
};

/// What compilers print of a forgotten extent.
struct a_required_option_is_missing {};

/// An option that must be given: made from any integer, never by default, so that a forgotten one does not compile.
class extent {
 public:
  extent(a_required_option_is_missing = {}) = delete;
  template <std::integral Integer>
  SEQPAR_HD constexpr extent(Integer value) : value_(static_cast<index_t>(value)) {}
  SEQPAR_HD constexpr operator index_t() const { return value_; }
  friend constexpr bool operator==(extent, extent) = default;
  template <std::integral Integer>
  SEQPAR_HD friend constexpr bool operator==(extent a, Integer b) {
    return a.value_ == static_cast<index_t>(b);
  }

 private:
  index_t value_;
};

namespace detail {
/// A span of a table. By a template, for a constructor of std::span that is called outright asks its concepts wherever
/// its types are known, whether or not the code around is used: the most that a header's template costs a compiler.
template <class T>
constexpr std::span<T> span_over(T* first, std::size_t count) {
  return {first, count};
}
template <class Table>
constexpr auto span_over(Table& table) -> std::span<std::remove_pointer_t<decltype(table.data())>> {
  return {table.data(), table.size()};
}
}  // namespace detail

/// What compilers print of a view of a temporary.
struct a_view_must_not_outlive_its_table {};

/// A table that stays the caller's, seen: made from what a span is made from, but not from a temporary container, which
/// is gone when the view is used.
template <class T>
class table_view {
 public:
  constexpr table_view() = default;
  constexpr table_view(const T* first, std::size_t count) : first_(first), count_(count) {}
  template <class Table>
  requires(!std::same_as<Table, table_view> &&
           std::convertible_to<const Table&, std::span<const T>>) constexpr table_view(const Table& table) {
    const std::span<const T> seen(table);
    first_ = seen.data();
    count_ = seen.size();
  }
  template <class Table>
  requires(std::convertible_to<const Table&, std::span<const T>> && !std::ranges::enable_borrowed_range<Table>)
      table_view(const Table&&, a_view_must_not_outlive_its_table = {})
  = delete;
  constexpr operator std::span<const T>() const { return {first_, count_}; }

  // On the device, too, which std::span is not.
  SEQPAR_HD constexpr const T* data() const { return first_; }
  SEQPAR_HD constexpr std::size_t size() const { return count_; }
  SEQPAR_HD constexpr bool empty() const { return count_ == 0; }
  SEQPAR_HD constexpr const T& operator[](std::size_t i) const { return first_[i]; }
  SEQPAR_HD constexpr const T& front() const { return first_[0]; }
  SEQPAR_HD constexpr const T& back() const { return first_[count_ - 1]; }
  SEQPAR_HD constexpr const T* begin() const { return first_; }
  SEQPAR_HD constexpr const T* end() const { return first_ + count_; }

  /// Is no entry less than the one before it?
  constexpr bool ascends() const {
    for (std::size_t i = 1; i < count_; ++i)
      if (first_[i] < first_[i - 1]) return false;
    return true;
  }
  /// The same entries, wherever they lie.
  friend constexpr bool operator==(table_view a, table_view b) {
    bool same = a.count_ == b.count_;
    for (std::size_t i = 0; same && i < a.count_; ++i) same = a.first_[i] == b.first_[i];
    return same;
  }

 private:
  const T* first_ = nullptr;
  std::size_t count_ = 0;
};

/// Where a token lies: the rank that owns it and its row there.
struct place {
  int rank;
  index_t local;
  friend constexpr bool operator==(place, place) = default;
};

/// The two axes of a mesh: blocks of the sequence go round the ring, heads are exchanged all-to-all.
enum class axis : std::uint8_t { ring, all_to_all };

/// An affine piece of positions: first, first + step, …, `count` of them. Legal: count 0; step ≠ 0.
struct run {
  index_t first, count, step;
  SEQPAR_HD constexpr index_t at(index_t i) const { return first + i * step; }
  friend constexpr bool operator==(run, run) = default;
};

/// Positions lo ≤ p < hi.
struct interval {
  index_t lo = 0, hi = 0;
  SEQPAR_HD constexpr bool empty() const { return hi <= lo; }
  SEQPAR_HD constexpr index_t size() const { return hi > lo ? hi - lo : 0; }
  SEQPAR_HD constexpr bool contains(index_t p) const { return lo <= p && p < hi; }
  friend constexpr bool operator==(interval, interval) = default;
};

SEQPAR_HD constexpr interval intersection(interval a, interval b) {
  const interval c{a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  return c.empty() ? interval{} : c;
}

/// At most two intervals, the form that every shipped mask gives for one query.
/// Invariant after make_intervals: empty ones last, in ascending order, neither touching nor overlapping.
struct interval_pair {
  interval first, second;
  SEQPAR_HD constexpr bool contains(index_t p) const { return first.contains(p) || second.contains(p); }
  SEQPAR_HD constexpr bool empty() const { return first.empty() && second.empty(); }
  SEQPAR_HD constexpr index_t size() const { return first.size() + second.size(); }
  friend constexpr bool operator==(interval_pair, interval_pair) = default;
};

/// The union of two intervals in normal form.
SEQPAR_HD constexpr interval_pair make_intervals(interval a, interval b = {}) {
  if (a.empty()) a = {};
  if (b.empty()) b = {};
  if (a.empty()) return {b, {}};
  if (b.empty()) return {a, {}};
  if (b.lo < a.lo) {
    const interval c = a;
    a = b;
    b = c;
  }
  if (b.lo <= a.hi) return {{a.lo, a.hi > b.hi ? a.hi : b.hi}, {}};
  return {a, b};
}

/// What a mask says of a rectangle of queries × keys.
enum class cover : std::uint8_t { none, some, all };

/// Which passes a plan is asked for; memory is sized for these only.
enum class passes : std::uint8_t { forward, both };
inline constexpr passes forward_only = passes::forward, forward_backward = passes::both;

/// Beyond every position; what an open end of an interval is set to before it is clipped to the sequence.
inline constexpr index_t unbounded = index_t{1} << 62;

/// IEEE binary16 and bfloat16 as the host holds them; layout-compatible with the types of CUDA. Round to nearest even.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  constexpr explicit float16(float value) : bits(from(value)) {}
  constexpr operator float() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    // Exponent and fraction are moved into place and rescaled by 2^112; the product is exact, subnormals included.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }

 private:
  static constexpr std::uint16_t from(float value) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value), sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 lets the adder round at bit 2^-24
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
};

struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  constexpr explicit bfloat16(float value) : bits(from(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  static constexpr std::uint16_t from(float value) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

template <class T>
concept element = std::same_as<T, float> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

}  // namespace v0_1
}  // namespace seqpar
