// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors of the processor at hand, by the extensions that g++ and clang++ share, and a vectorised exponential.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The widest vector that this translation unit may use, in bytes. Everything built on it takes it as a template
/// argument, so that units compiled with other flags do not share a body.
inline constexpr int native_vector_bytes =
#if defined(__AVX512F__)
    64;
#elif defined(__AVX__)
    32;
#else
    16;
#endif

namespace detail {

/// Spelled out, because g++ ignores a vector_size that depends on a template parameter (and nvcc shuffles whose indices
/// do). deal: the lower and the upper halves of a and b, element by element in turn.
template <int Bytes>
struct vector_types;
template <>
struct vector_types<16> {
  typedef float floats __attribute__((vector_size(16)));
  typedef std::int32_t ints __attribute__((vector_size(16)));
  typedef std::uint32_t words __attribute__((vector_size(16)));
  typedef std::uint16_t halves __attribute__((vector_size(8)));
  [[gnu::always_inline]] static inline void deal(const floats& a, const floats& b, floats& low, floats& high) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
};
template <>
struct vector_types<32> {
  typedef float floats __attribute__((vector_size(32)));
  typedef std::int32_t ints __attribute__((vector_size(32)));
  typedef std::uint32_t words __attribute__((vector_size(32)));
  typedef std::uint16_t halves __attribute__((vector_size(16)));
  [[gnu::always_inline]] static inline void deal(const floats& a, const floats& b, floats& low, floats& high) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct vector_types<64> {
  typedef float floats __attribute__((vector_size(64)));
  typedef std::int32_t ints __attribute__((vector_size(64)));
  typedef std::uint32_t words __attribute__((vector_size(64)));
  typedef std::uint16_t halves __attribute__((vector_size(32)));
  [[gnu::always_inline]] static inline void deal(const floats& a, const floats& b, floats& low, floats& high) {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
};

}  // namespace detail

template <int Bytes>
struct vectors {
  static constexpr int lanes = Bytes / 4;
  static constexpr int registers = Bytes == 64 ? 32 : 16;

  using types = detail::vector_types<Bytes>;
  using floats = typename types::floats;
  using ints = typename types::ints;  ///< comparisons give −1 or 0 per lane
  using words = typename types::words;

  /// From and to any address of 4-byte elements.
  template <class V, class E>
  [[gnu::always_inline]] static inline V load(const E* p) {
    V v;
    __builtin_memcpy(&v, p, Bytes);
    return v;
  }
  [[gnu::always_inline]] static inline floats load(const float* p) { return load<floats>(p); }
  [[gnu::always_inline]] static inline void store(float* p, const floats& v) { __builtin_memcpy(p, &v, Bytes); }
  /// x − 0 is x, zeros and all, and costs nothing; 0 + x would be an addition, as −0 is not 0 + −0.
  [[gnu::always_inline]] static inline floats splat(float x) { return x - floats{}; }
  /// The elements at p as floats.
  template <class T>
  [[gnu::always_inline]] static inline floats widened(const T* p) {
    if constexpr (std::is_same_v<T, float>) {
      return load(p);
    } else {
      typename types::halves bits;
      __builtin_memcpy(&bits, p, sizeof(bits));
      const words word = __builtin_convertvector(bits, words);
      if constexpr (std::is_same_v<T, bfloat16>) return reinterpret_cast<floats>(word << 16);
      // float16, as its conversion to float does it.
      const words magnitude = word & 0x7fffu, special = reinterpret_cast<words>(magnitude >= 0x7c00u) & 0x7f800000u;
      const floats scaled = reinterpret_cast<floats>(magnitude << 13) * 0x1p112f;
      return reinterpret_cast<floats>(reinterpret_cast<words>(scaled) | special | (word & 0x8000u) << 16);
    }
  }
  /// The first n elements at p, then zeros.
  template <class T>
  static floats widened(const T* p, index_t n) {
    if (n >= lanes) return widened(p);
    T part[std::size_t{lanes}]{};
    std::copy_n(p, n, part);
    return widened(part);
  }
  /// rows[i][j] ↔ rows[j][i]. Each step deals two halves into one like cards; after log2(lanes) steps every element's
  /// two indices have changed places.
  [[gnu::always_inline]] static inline void transpose(floats (&rows)[std::size_t{lanes}]) {
#pragma GCC unroll 4
    for (int step = 1; step < lanes; step *= 2) {
      floats dealt[std::size_t{lanes}];
#pragma GCC unroll 8
      for (int i = 0; i < lanes / 2; ++i) {
        types::deal(rows[i], rows[i + lanes / 2], dealt[2 * i], dealt[2 * i + 1]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) rows[i] = dealt[i];
    }
  }
  [[gnu::always_inline]] static inline bool any(const ints& mask) {
    std::int32_t seen = 0;
    for (int i = 0; i < lanes; ++i) seen |= mask[i];
    return seen != 0;
  }

  /// e^x, within 2 ulp for x ≤ 88; exactly 1 at 0, exactly 0 below −87.33 (so at −∞); NaN stays NaN.
  /// x = n·ln 2 + r, |r| ≤ ln 2 / 2: a polynomial in r (coefficients of Cephes' expf) times 2^n.
  [[gnu::always_inline]] static inline floats exp(const floats& x) {
    // Adding 1.5·2^23 + 127 leaves n + 127 in the low bits, where a shift makes it the exponent of 2^n.
    const float magic = 12582912.0f + 127.0f;
    const floats shifted = x * 1.44269504088896341f + magic;
    const floats power = reinterpret_cast<floats>(reinterpret_cast<words>(shifted) << 23);
    const floats n = shifted - magic;
    const floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    return x < -87.33f ? floats{} : y * power;
  }
};

}  // namespace v0_1
}  // namespace seqpar
