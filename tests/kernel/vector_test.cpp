// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include <seqpar/kernel/micro_gemm.hpp>
#include <tests/support/recipe.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {
template <class V>
float exp_of(float x) {
  float buffer[V::lanes];
  V::store(buffer, V::exp(V::splat(x)));
  return buffer[V::lanes - 1];
}
}  // namespace

TEST_CASE_TEMPLATE("the vectorised exponential is within 2 ulp, exact at 0 and −∞, and keeps NaN", V, vectors<16>,
                   vectors<32>, vectors<64>) {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(exp_of<V>(0.0f) == 1.0f);
  CHECK(exp_of<V>(-0.0f) == 1.0f);
  CHECK(exp_of<V>(-inf) == 0.0f);
  CHECK(exp_of<V>(-1e30f) == 0.0f);
  CHECK(exp_of<V>(-88.0f) == 0.0f);
  CHECK(std::isnan(exp_of<V>(std::nanf(""))));
  double worst = 0;
  for (float x = -87.33f; x < 88.0f; x += 0.000971f) {
    const double want = std::exp(static_cast<double>(x)), ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(exp_of<V>(x)) - want) / ulp);
  }
  for (float x = 0x1p-40f; x < 1; x *= 1.01f) {
    const double want = std::exp(static_cast<double>(-x)), ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(exp_of<V>(-x)) - want) / ulp);
  }
  CAPTURE(worst);
  CHECK(worst <= 2);
}

TEST_CASE_TEMPLATE("16-bit elements widen in vectors as they do one by one, whatever their bits", V, vectors<16>,
                   vectors<32>, vectors<64>) {
  const auto check = [](auto element) {
    using T = decltype(element);
    std::vector<T> all(65536 + 3);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
    index_t wrong = 0;
    for (index_t n : {index_t{V::lanes}, index_t{V::lanes - 1}})
      for (index_t i = 0; i + n <= 65536 + 3; i += n) {
        float buffer[V::lanes];
        V::store(buffer, V::widened(all.data() + i, n));
        for (index_t j = 0; j < V::lanes; ++j) {
          const float want = j < n ? static_cast<float>(all[static_cast<std::size_t>(i + j)]) : 0.0f;
          wrong += std::bit_cast<std::uint32_t>(buffer[j]) != std::bit_cast<std::uint32_t>(want);
        }
      }
    CHECK(wrong == 0);
  };
  check(float16{});
  check(bfloat16{});
}

TEST_CASE_TEMPLATE("a square of vectors transposes", V, vectors<16>, vectors<32>, vectors<64>) {
  typename V::floats rows[V::lanes];
  for (int i = 0; i < V::lanes; ++i)
    for (int j = 0; j < V::lanes; ++j) rows[i][j] = static_cast<float>(100 * i + j);
  V::transpose(rows);
  int wrong = 0;
  for (int i = 0; i < V::lanes; ++i)
    for (int j = 0; j < V::lanes; ++j) wrong += rows[i][j] != static_cast<float>(100 * j + i);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("the small product is the product for every shape and writes nothing beside it", G, micro_gemm<16>,
                   micro_gemm<32>, micro_gemm<64>) {
  using into = typename G::into;
  for (index_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 64})
    for (index_t n : {1, 4, 16, 17, 40, 64, 80, 144})
      for (index_t depth : {0, 1, 5}) {
        const index_t width = (n + G::V::lanes - 1) / G::V::lanes * G::V::lanes;
        const std::vector<float> a = filled(1, m * depth), b = filled(2, depth * width);
        for (bool add : {false, true})
          for (bool strided : {false, true}) {
            std::vector<float> c(static_cast<std::size_t>((m + 1) * (width + 3)), 7.0f);
            const index_t a_row = strided ? 1 : depth, a_depth = strided ? m : 1;
            if (add)
              G::template multiply<into::add>(m, n, depth, a.data(), a_row, a_depth, b.data(), width, c.data(),
                                              width + 3);
            else
              G::template multiply<into::set>(m, n, depth, a.data(), a_row, a_depth, b.data(), width, c.data(),
                                              width + 3);
            bool right = true;
            for (index_t i = 0; i <= m; ++i)
              for (index_t j = 0; j < width + 3; ++j) {
                double want = i == m || j >= width || add ? 7 : 0;
                if (i < m && j < width)
                  for (index_t p = 0; p < depth; ++p)
                    want += static_cast<double>(a[static_cast<std::size_t>(i * a_row + p * a_depth)]) *
                            static_cast<double>(b[static_cast<std::size_t>(p * width + j)]);
                right = right &&
                        std::abs(static_cast<double>(c[static_cast<std::size_t>(i * (width + 3) + j)]) - want) < 1e-5;
              }
            CHECK(right);
          }
      }
}
