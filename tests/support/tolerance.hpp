// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How near a result must come, element by element. A norm over all elements is never a test.
#pragma once

#include <cmath>
#include <limits>
#include <ostream>
#include <span>
#include <vector>

#include <seqpar/types.hpp>

namespace seqpar::test {

/// The one constant c of |error| ≤ c·2^-24·magnitude, for every kernel, mask, shape and type. (Sums over 200 keys in
/// fp32 come to 9 once in 30 000 problems; 33 is the 2e-6 of the case files.)
inline constexpr double roundings = 16;

/// Half a unit in the last place of T, relative; and the absolute floor of its subnormals.
template <class T>
inline constexpr double roundoff = 0x1p-24;
template <>
inline constexpr double roundoff<float16> = 0x1p-11;
template <>
inline constexpr double roundoff<bfloat16> = 0x1p-8;
template <class T>
inline constexpr double smallest = 0x1p-126;
template <>
inline constexpr double smallest<float16> = 0x1p-25;

/// The largest error of an element stored as T whose terms have this magnitude (dense.hpp).
template <class T>
double bound(double value, double magnitude) {
  return roundings * 0x1p-24 * magnitude + roundoff<T> * std::abs(value) + smallest<T>;
}

/// The fp32 bound of the case files, for unit-range inputs.
inline double case_bound(double value) {
  return 2e-6 * (1 + std::abs(value));
}

/// The worst element of a comparison. good(): every element within its bound.
struct verdict {
  double ratio = 0;  ///< error / bound
  index_t index = -1;
  double got = 0, want = 0;
  bool good() const { return ratio <= 1; }
  explicit operator bool() const { return good(); }
  friend std::ostream& operator<<(std::ostream& out, const verdict& v) {
    if (v.index < 0) return out << "no elements differ";
    return out << "element " << v.index << ": got " << v.got << ", want " << v.want << ", error " << v.ratio
               << " × bound";
  }
  void see(index_t i, double value, double wanted, double allowed) {
    const bool same = value == wanted;  // infinities must be equal
    const double error = same ? 0 : std::abs(value - wanted) / allowed;
    const double seen = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    if (seen > ratio || (index < 0 && seen > 0)) *this = {seen, i, value, wanted};
  }
};

/// Every element within bound<T>(want, magnitude); T is the stored type.
template <class T>
verdict compare(const std::vector<T>& got, const std::vector<double>& want, const std::vector<double>& magnitude) {
  verdict v;
  if (got.size() != want.size()) return {std::numeric_limits<double>::infinity(), 0, 0, 0};
  for (std::size_t i = 0; i < got.size(); ++i)
    v.see(static_cast<index_t>(i), static_cast<double>(got[i]), want[i], bound<T>(want[i], magnitude[i]));
  return v;
}

/// Every element within 2e-6·(1 + |x|).
template <class A, class B>
verdict compare_case(const A& got, const B& want) {
  verdict v;
  if (got.size() != want.size()) return {std::numeric_limits<double>::infinity(), 0, 0, 0};
  for (std::size_t i = 0; i < got.size(); ++i)
    v.see(static_cast<index_t>(i), static_cast<double>(got[i]), static_cast<double>(want[i]),
          case_bound(static_cast<double>(want[i])));
  return v;
}

/// Every element the same; NaN only where NaN is wanted.
template <class T>
verdict compare_exact(const std::vector<T>& got, const std::vector<T>& want) {
  verdict v;
  if (got.size() != want.size()) return {std::numeric_limits<double>::infinity(), 0, 0, 0};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    if (!(std::isnan(a) && std::isnan(b)) && (a != b || std::signbit(a) != std::signbit(b)))
      v = {std::numeric_limits<double>::infinity(), static_cast<index_t>(i), a, b};
  }
  return v;
}

}  // namespace seqpar::test
