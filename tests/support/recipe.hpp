// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The inputs of every test, made from a tag and a flat global index alone, and the sums that the goldens are given in.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <seqpar/types.hpp>

namespace seqpar::test {

namespace tag {
inline constexpr std::uint64_t q = 1, k = 2, v = 3, dout = 4, bias = 5, dlse = 6, checksum = 9;
inline constexpr std::uint64_t dq = 11, dk = 12, dv = 13;  ///< what was there before gradients are added
}  // namespace tag

/// R(tag, i): a float in [−1, 1), exact, by a 64-bit mixing function.
constexpr float recipe(std::uint64_t tag, index_t i) {
  std::uint64_t z = (tag << 32) + static_cast<std::uint64_t>(i) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z = z ^ (z >> 31);
  return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
}

constexpr bool within(double a, double b, double by) {
  return a - b <= by && b - a <= by;
}
static_assert(within(recipe(1, 0), 0.53260350, 1e-8) && within(recipe(1, 1), -0.74793804, 1e-8));
static_assert(within(recipe(1, 2), 0.40186238, 1e-8) && within(recipe(1, 3), 0.26575243, 1e-8));
static_assert(within(recipe(4, 0), 0.13780701, 1e-8) && within(recipe(9, 0), 0.39107466, 1e-8));

/// values[i] = R(tag, first + i), rounded to T.
template <class T>
void fill(std::span<T> values, std::uint64_t tag, index_t first = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(recipe(tag, first + static_cast<index_t>(i)));
}

template <class T = float>
std::vector<T> filled(std::uint64_t tag, index_t count, index_t first = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  fill(std::span<T>(values), tag, first);
  return values;
}

/// Σ_i values[i]·R(9, i).
template <class Range>
double wsum(const Range& values) {
  double sum = 0;
  index_t i = 0;
  for (const auto& x : values) sum += static_cast<double>(x) * static_cast<double>(recipe(tag::checksum, i++));
  return sum;
}

/// Σ of the finite values: ΣL of the goldens.
template <class Range>
double sum_of_finite(const Range& values) {
  double sum = 0;
  for (const auto& x : values)
    if (std::isfinite(static_cast<double>(x))) sum += static_cast<double>(x);
  return sum;
}

}  // namespace seqpar::test
