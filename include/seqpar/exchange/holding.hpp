// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rows that one rank has or wants, and where they lie in its memory.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include <seqpar/layout/concept.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Rows rows.at(0), rows.at(1), … lie at local rows place, place + place_step, …
struct row_piece {
  run rows;
  index_t place;
  index_t place_step = 1;
};

/// Pieces of rows, in the order in which they are to travel, and the range of columns of each row (its heads, say).
struct holding {
  std::vector<row_piece> pieces;
  interval columns{0, 1};

  index_t rows() const {
    index_t n = 0;
    for (const row_piece& p : pieces) n += p.rows.count;
    return n;
  }
  index_t entries() const { return rows() * columns.size(); }
  /// Adds rows behind those already there.
  template <class = when_used>
  void append(run rows, index_t place) {
    if (rows.count > 0) pieces.push_back({rows, place, 1});
  }
};

/// What a layout gives to `rank`, packed: local row i holds token offset + global_of(rank, i).
template <sequence_layout L>
holding holding_of(const L& layout, int rank, interval columns = {0, 1}, index_t first_place = 0, index_t offset = 0) {
  holding h{{}, columns};
  for_each_run(layout, rank, [&](run r) {
    h.append({r.first + offset, r.count, r.step}, first_place);
    first_place += r.count;
  });
  return h;
}

/// Rows 0 … count−1 in order.
template <class = when_used>
holding all_rows(index_t count, interval columns = {0, 1}) {
  holding h{{}, columns};
  h.append({0, count, 1}, 0);
  return h;
}

namespace detail {

/// From the least row of a run to behind the greatest.
constexpr interval span_of(run r) {
  const index_t last = r.at(r.count - 1);
  return r.step < 0 ? interval{last, r.first + 1} : interval{r.first, last + 1};
}

/// a.at(a_first + i·a_step) = b.at(b_first + i·b_step) for i < count: all common values of two runs, in a's order.
struct common_run {
  index_t a_first, a_step, b_first, b_step, count;
};

constexpr index_t floor_mod(index_t x, index_t m) {
  const index_t r = x % m;
  return r < 0 ? r + m : r;
}

/// x·y mod m without overflow for m < 2^62.
constexpr index_t multiply_mod(index_t x, index_t y, index_t m) {
  if (m < (index_t{1} << 31)) return x * y % m;
  index_t sum = 0;
  for (; y > 0; y >>= 1, x = (x + x) % m)
    if (y & 1) sum = (sum + x) % m;
  return sum;
}

/// The inverse of x modulo m for gcd(x, m) = 1, by Euclid's algorithm.
constexpr index_t inverse_mod(index_t x, index_t m) {
  index_t r0 = m, r1 = floor_mod(x, m), t0 = 0, t1 = 1;
  while (r1 > 0) {
    const index_t q = r0 / r1;
    r0 = std::exchange(r1, r0 - q * r1);
    t0 = std::exchange(t1, t0 - q * t1);
  }
  return floor_mod(t0, m);
}

constexpr common_run intersect(run a, run b) {
  if (a.count <= 0 || b.count <= 0) return {0, 1, 0, 1, 0};
  if (a.count == 1) a.step = 1;
  if (b.count == 1) b.step = 1;
  if (a.step < 0) {  // mirror the number line: a's order stays ascending
    a = {-a.first, a.count, -a.step};
    b = {-b.first, b.count, -b.step};
  }
  if (b.step < 0) {
    const common_run o = intersect(a, {b.at(b.count - 1), b.count, -b.step});
    return {o.a_first, o.a_step, b.count - 1 - o.b_first, -o.b_step, o.count};
  }
  const index_t lo = a.first > b.first ? a.first : b.first;
  const index_t a_last = a.at(a.count - 1), b_last = b.at(b.count - 1), hi = a_last < b_last ? a_last : b_last;
  if (lo > hi) return {0, 1, 0, 1, 0};
  if (a.step == 1 && b.step == 1) return {lo - a.first, 1, lo - b.first, 1, hi - lo + 1};
  // a.first + i·s = b.first + j·t has solutions i ≡ i0 (mod t/g), by the Chinese remainder theorem
  const index_t g = std::gcd(a.step, b.step), difference = b.first - a.first;
  if (difference % g != 0) return {0, 1, 0, 1, 0};
  const index_t s = a.step / g, t = b.step / g;
  const index_t inverse = s == 1 ? 1 : inverse_mod(s, t);
  const index_t i0 = t == 1 ? 0 : multiply_mod(floor_mod(difference / g, t), inverse, t);
  const index_t least = (lo - a.first + a.step - 1) / a.step;
  const index_t first = least + floor_mod(i0 - least, t);
  if (first >= a.count || a.at(first) > hi) return {0, 1, 0, 1, 0};
  const index_t last = (hi - a.first) / a.step;
  return {first, t, (a.at(first) - b.first) / b.step, s, (last - first) / t + 1};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
