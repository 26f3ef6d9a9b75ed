// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors of the processor at hand, by the extensions that g++ and clang++ share, and a vectorised exponential.
#pragma once

#include <cstdint>
#include <limits>

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

/// Spelled out, because g++ ignores a vector_size that depends on a template parameter.
template <int Bytes>
struct vector_types;
template <>
struct vector_types<16> {
  typedef float floats __attribute__((vector_size(16)));
  typedef std::int32_t ints __attribute__((vector_size(16)));
  typedef std::uint32_t words __attribute__((vector_size(16)));
};
template <>
struct vector_types<32> {
  typedef float floats __attribute__((vector_size(32)));
  typedef std::int32_t ints __attribute__((vector_size(32)));
  typedef std::uint32_t words __attribute__((vector_size(32)));
};
template <>
struct vector_types<64> {
  typedef float floats __attribute__((vector_size(64)));
  typedef std::int32_t ints __attribute__((vector_size(64)));
  typedef std::uint32_t words __attribute__((vector_size(64)));
};

}  // namespace detail

template <int Bytes>
struct vectors {
  static constexpr int lanes = Bytes / 4;
  static constexpr int registers = Bytes == 64 ? 32 : 16;

  using floats = typename detail::vector_types<Bytes>::floats;
  using ints = typename detail::vector_types<Bytes>::ints;  ///< comparisons give −1 or 0 per lane
  using words = typename detail::vector_types<Bytes>::words;

  /// From and to any address of 4-byte elements.
  template <class V, class E>
  [[gnu::always_inline]] static inline V load(const E* p) {
    V v;
    __builtin_memcpy(&v, p, Bytes);
    return v;
  }
  [[gnu::always_inline]] static inline floats load(const float* p) { return load<floats>(p); }
  [[gnu::always_inline]] static inline void store(float* p, const floats& v) { __builtin_memcpy(p, &v, Bytes); }
  [[gnu::always_inline]] static inline floats splat(float x) { return floats{} + x; }
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
