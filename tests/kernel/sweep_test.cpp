// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include "harness.hpp"

using namespace seqpar;
using namespace seqpar::test;

static_assert(block_kernel<host_reference<>> && block_kernel<host_reference<double>> && block_kernel<host_fast>);

TEST_CASE_TEMPLATE("any width of keys and of values gives the dense result", Kernel, EVERY_KERNEL) {
  for (index_t dim : {1, 3, 4, 6, 8, 16, 17, 64, 72, 96, 128, 192, 256}) {
    CAPTURE(dim);
    const dense_shape n = self_shape(19, 1, dim);
    check_kernel<Kernel, float>(recipe_inputs(n), in_order(n), causal_mask());
    const dense_shape wider{1, 9, 11, 2, 1, dim, 257 - dim};
    check_kernel<Kernel, float>(recipe_inputs(wider), in_order(wider), full_mask());
  }
}

TEST_CASE_TEMPLATE("any number of rows gives the dense result under causal, full and window masks", Kernel,
                   EVERY_KERNEL) {
  for (index_t q : {0, 1, 2, 5, 63, 64, 65, 130})
    for (index_t k : {0, 1, 7, 64, 65, 127, 129, 260}) {
      CAPTURE(q);
      CAPTURE(k);
      const dense_shape n{1, q, k, 1, 1, 8, 8};
      const inputs<float> in = recipe_inputs(n);
      check_kernel<Kernel, float>(in, in_order(n), full_mask());
      check_kernel<Kernel, float>(in, in_order(n), causal_mask(k - q));
      check_kernel<Kernel, float>(in, in_order(n), causal_mask(0));
      check_kernel<Kernel, float>(in, in_order(n), causal_mask(k - q, 5));
      const auto sink = interval_form{[](index_t i) { return make_intervals({0, 3}, {i - 9, i + 1}); }};
      check_kernel<Kernel, float>(in, in_order(n), sink);
    }
}

TEST_CASE_TEMPLATE("a mask known only by asking gives the dense result", Kernel, EVERY_KERNEL) {
  for (index_t tokens : {1, 20, 64, 131}) {
    const dense_shape n = self_shape(tokens, 2, 16);
    check_kernel<Kernel, float>(recipe_inputs(n), in_order(n), functor_form{[](index_t q, index_t k) {
                                  return recipe(55, q * 1000 + k) > 0.2f && q % 7 != 3 && k % 11 != 5;
                                }});
  }
}

TEST_CASE_TEMPLATE("every element type gives the dense result of its rounded inputs", Kernel, EVERY_KERNEL) {
  for (index_t dim : {6, 16, 64}) {
    const dense_shape n{2, 70, 70, 4, 2, dim, dim + 8};
    const striding gaps{true, 3};
    dealing d = in_order(n);
    d.strides = gaps;
    check_kernel<Kernel, float16>(recipe_inputs<float16>(n), d, causal_mask());
    check_kernel<Kernel, bfloat16>(recipe_inputs<bfloat16>(n), d, causal_mask());
    check_kernel<Kernel, float>(recipe_inputs<bfloat16>(n), d, causal_mask(0, 20));
    check_kernel<Kernel, float>(recipe_inputs<float16>(n), in_order(n), full_mask());
  }
}

TEST_CASE_TEMPLATE("batch, heads that share keys, and any strides give the dense result", Kernel, EVERY_KERNEL) {
  for (bool heads_first : {false, true})
    for (index_t gap : {0, 1, 16})
      for (index_t kv_heads : {1, 2, 3, 6}) {
        const dense_shape n{2, 21, 33, 6, kv_heads, 16, 16};
        dealing d = in_order(n);
        d.strides = {heads_first, gap};
        check_kernel<Kernel, float>(recipe_inputs(n), d, causal_mask(12));
      }
}

TEST_CASE_TEMPLATE("rows in any order, in affine runs or packed, give the dense result", Kernel, EVERY_KERNEL) {
  const index_t tokens = 300;
  const dense_shape n = self_shape(tokens, 1, 8);
  runs zigzag{{0, 75, 1}, {225, 75, 1}, {75, 150, 1}}, striped, backwards{{299, 300, -1}}, frames;
  for (index_t r = 0; r < 7; ++r) striped.push_back({r, (tokens - r + 6) / 7, 7});
  for (index_t f = 0; f < 5; ++f)
    for (index_t row = 0; row < 15; ++row) frames.push_back({row * 20 + f * 4, 4, 1});
  for (const runs& q : {zigzag, striped, backwards, frames})
    for (const runs& k : {zigzag, striped, backwards, frames})
      for (index_t left : {index_t{17}, unbounded})
        check_kernel<Kernel, float>(recipe_inputs(n), {q, {k}}, causal_mask(0, left));
}
