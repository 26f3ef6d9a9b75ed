// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <string>

#include <tests/support/dense.hpp>
#include <tests/support/recipe.hpp>
#include <tests/support/tolerance.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {
dense_result computed(const dense_shape& n, bool causal, index_t shift = 0, index_t left = unbounded) {
  return dense_attention(n, {default_scale}, filled(tag::q, n.q_size()), filled(tag::k, n.k_size()),
                         filled(tag::v, n.v_size()), filled(tag::dout, n.out_size()), {},
                         [=](index_t q, index_t k) { return !causal || (k <= q + shift && k >= q + shift - left); });
}
void golden(const dense_result& r, double out, double lse, double dq, double dk, double dv) {
  CHECK(within(wsum(r.out), out, 2e-8));
  CHECK(within(sum_of_finite(r.lse), lse, 2e-8));
  CHECK(within(wsum(r.dq), dq, 2e-8));
  CHECK(within(wsum(r.dk), dk, 2e-8));
  CHECK(within(wsum(r.dv), dv, 2e-8));
}
}  // namespace

TEST_CASE("the dense reference reproduces the goldens") {
  golden(computed(self_shape(8, 2, 4), true), 1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915);
  golden(computed(self_shape(8, 2, 4), false), 0.25382004, 34.19949915, -0.20599733, -0.01865335, 0.69784760);
  golden(computed(self_shape(8, 2, 4, 2), true), 1.27813368, 43.50406940, 0.02719684, 0.12447931, 1.69665609);
  golden(computed({1, 8, 8, 8, 2, 4, 4}, true), 2.18223451, 84.83947897, -0.87461811, -0.88841860, -3.68141009);
  golden(computed({1, 8, 8, 4, 2, 6, 4}, true), 3.23131083, 43.70503619, -0.36019328, -0.24992049, 0.97892209);
  golden(computed(self_shape(12, 2, 4), true, 0, 3), 1.08122430, 29.60036575, -0.46056108, -0.21328226, 2.49516723);
  golden(computed({1, 5, 2, 1, 1, 4, 4}, true, -3), 0.57381068, 0.71638197, -0.00067447, -0.03401640, -0.60145855);
}

TEST_CASE("a comparison fails on one wrong element, on NaN and on a wrong infinity") {
  const std::vector<double> want{1, -std::numeric_limits<double>::infinity()}, magnitude{1, 1};
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(compare(std::vector<float>{1, -inf}, want, magnitude));
  CHECK_FALSE(compare(std::vector<float>{1.00001f, -inf}, want, magnitude));
  CHECK_FALSE(compare(std::vector<float>{1, inf}, want, magnitude));
  CHECK_FALSE(compare(std::vector<float>{1, 0}, want, magnitude));
  CHECK_FALSE(compare(std::vector<float>{std::nanf(""), -inf}, want, magnitude));
  CHECK_FALSE(compare(std::vector<float>{1}, want, magnitude));
  CHECK_FALSE(compare_exact(std::vector<float>{0.0f}, std::vector<float>{-0.0f}));
}
