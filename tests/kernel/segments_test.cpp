// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include "harness.hpp"

using namespace seqpar;
using namespace seqpar::test;

TEST_CASE_TEMPLATE("keys in 1 to 5 segments, in any order, in one call or carried over many, give the dense result",
                   Kernel, EVERY_KERNEL) {
  const dense_shape n{1, 66, 150, 2, 1, 8, 12};
  const inputs<float> in = recipe_inputs(n);
  for (index_t pieces = 1; pieces <= 5; ++pieces) {
    std::vector<index_t> order(static_cast<std::size_t>(pieces));
    std::iota(order.begin(), order.end(), index_t{0});
    do {
      dealing d{{{0, 66, 1}}, {}};
      for (index_t i : order) d.segments.push_back({{i * 150 / pieces, (i + 1) * 150 / pieces - i * 150 / pieces, 1}});
      if (order.front() <= 1) check_kernel<Kernel, float>(in, d, causal_mask(84));
      for (std::size_t i = 1; i < order.size(); ++i) d.cuts.push_back(i);
      check_kernel<Kernel, float>(in, d, causal_mask(30));
    } while (std::next_permutation(order.begin(), order.end()) && (pieces < 5 || order.front() < 2));
  }
}

TEST_CASE_TEMPLATE("a state that was carried and meets no more keys is finished as it is", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(70, 1, 8);
  const inputs<float> in = recipe_inputs(n);
  const dealing once = in_order(n);
  dealing then_nothing = once, nothing_first = once;
  then_nothing.cuts = {1, 1};
  nothing_first.cuts = {0};
  const auto want = check_kernel<Kernel, float>(in, once, causal_mask());
  for (const dealing& d : {then_nothing, nothing_first}) {
    const auto got = check_kernel<Kernel, float>(in, d, causal_mask());
    if (std::is_same_v<Kernel, host_reference<double>>) continue;  // the state between calls is fp32
    CHECK(compare_exact(got.out, want.out));
    CHECK(compare_exact(got.lse, want.lse));
  }
}

TEST_CASE_TEMPLATE("no keys at all give out 0 and lse −∞, whatever the outputs held [A2] [A4]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(70, 2, 8);
  const inputs<float> in = recipe_inputs(n);
  std::vector<dealing> empty(4, dealing{{{0, 70, 1}}, {}});
  empty[1].segments = {runs{}, runs{{0, 0, 1}}};  // segments without rows
  empty[2].segments = {runs{}, runs{}, runs{}};
  empty[2].cuts = {1, 2};
  empty[3].cuts = {0};
  for (const dealing& d : empty) {
    const auto got = check_kernel<Kernel, float>(in, d, causal_mask());
    for (float x : got.out) CHECK(x == 0);
    for (float x : got.lse) CHECK(x == -infinity);
    for (float x : got.dq) CHECK(x == 0);
  }
}

TEST_CASE_TEMPLATE("a segment that a row sees nothing of changes no bit of it [A4]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(64, 1, 16);
  const inputs<float> in = recipe_inputs(n);
  const auto upto = interval_form{[](index_t q) { return make_intervals({0, q < 20 ? 0 : 8}); }};
  const dealing short_list{{{0, 64, 1}}, {{{0, 8, 1}}}}, long_list{{{0, 64, 1}}, {{{8, 56, 1}}, {{0, 8, 1}}}, {1}};
  const auto a = run_kernel<Kernel, float>(in, short_list, upto), b = run_kernel<Kernel, float>(in, long_list, upto);
  CHECK(compare_exact(a.out, b.out));
  CHECK(compare_exact(a.lse, b.lse));
}

TEST_CASE_TEMPLATE("a run repeated gives the same bits", Kernel, EVERY_KERNEL) {
  const dense_shape n{1, 130, 130, 4, 2, 24, 24};
  const inputs<float> in = recipe_inputs(n);
  const dealing d{{{0, 130, 1}}, {{{65, 65, 1}}, {{0, 65, 1}}}, {1}};
  const std::vector<double> delta(static_cast<std::size_t>(n.lse_size()), 0.5);
  const auto a = run_kernel<Kernel, float>(in, d, causal_mask(), delta);
  const auto b = run_kernel<Kernel, float>(in, d, causal_mask(), delta);
  for (auto list :
       {&outputs<float>::out, &outputs<float>::lse, &outputs<float>::dq, &outputs<float>::dk, &outputs<float>::dv})
    CHECK(compare_exact(a.*list, b.*list));
}
