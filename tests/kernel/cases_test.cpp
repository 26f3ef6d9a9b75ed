// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Public bug reports as small tests, at the level of one kernel call.
#include <doctest/doctest.h>

#include "harness.hpp"

using namespace seqpar;
using namespace seqpar::test;

namespace {

/// Keys cut into `pieces` segments, visited in order or from the last, the state carried between them.
dealing visited(const dense_shape& n, index_t pieces, bool from_the_last) {
  dealing d{{{0, n.q_tokens, 1}}, {}};
  for (index_t i = 0; i < pieces; ++i) {
    const index_t p = from_the_last ? pieces - 1 - i : i, lo = p * n.k_tokens / pieces;
    d.segments.push_back({{lo, (p + 1) * n.k_tokens / pieces - lo, 1}});
    if (i > 0) d.cuts.push_back(static_cast<std::size_t>(i));
  }
  return d;
}

struct golden {
  const char* name;
  dense_shape n;
  interval_form mask;
  double out, lse, dq, dk, dv;
};

interval_form banded(index_t shift = 0, index_t left = unbounded) {
  return {[=](index_t q) { return make_intervals({q + shift - left, q + shift + 1}); }};
}
interval_form everything() {
  return banded(unbounded / 2, unbounded);
}
interval_form documents(std::vector<index_t> lengths) {
  return {[=](index_t q) {
    index_t begin = 0;
    for (index_t length : lengths) {
      if (q < begin + length) return make_intervals({begin, q + 1});
      begin += length;
    }
    return interval_pair{};
  }};
}
/// Clean and noisy copies of 4 frames of 2: a clean row sees clean frames up to its own, a noisy row the clean frames
/// before its own and its own noisy frame.
interval_form pairs() {
  return {[](index_t q) {
    const index_t frame = q % 8 / 2;
    return q < 8 ? make_intervals({0, 2 * frame + 2})
                 : make_intervals({0, 2 * frame}, {8 + 2 * frame, 8 + 2 * frame + 2});
  }};
}

std::vector<golden> goldens() {
  return {
      {"S8c", self_shape(8, 2, 4), banded(), 1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915},
      {"S8f", self_shape(8, 2, 4), everything(), 0.25382004, 34.19949915, -0.20599733, -0.01865335, 0.69784760},
      {"S8c-B2", self_shape(8, 2, 4, 2), banded(), 1.27813368, 43.50406940, 0.02719684, 0.12447931, 1.69665609},
      {"S16c", self_shape(16, 2, 4), banded(), 1.87148926, 62.89828945, -0.32851846, -0.04838146, 0.93312637},
      {"S16c-H4", self_shape(16, 4, 4), banded(), 1.40694490, 126.04250496, 0.96528669, 0.49370927, -0.49057195},
      {"S1c", self_shape(1, 2, 4), banded(), 0.26830176, 0.19712915, 0, 0, 0.65948850},
      {"S7doc", self_shape(7, 1, 8), documents({4, 3}), 0.94814838, 5.75739179, -0.11004416, -0.21761311, 1.17206823},
      {"H20", self_shape(8, 20, 4), everything(), 1.29228403, 340.61620611, 1.54341230, -0.94510912, 0.28292287},
      {"G8/2", {1, 8, 8, 8, 2, 4, 4}, banded(), 2.18223451, 84.83947897, -0.87461811, -0.88841860, -3.68141009},
      {"G28/7", {1, 6, 6, 28, 7, 4, 4}, everything(), -2.29018385, 308.42570081, 0.04741337, -0.65704413, -2.73281605},
      {"MLA8", {1, 8, 8, 4, 2, 6, 4}, banded(), 3.23131083, 43.70503619, -0.36019328, -0.24992049, 0.97892209},
      {"D72", self_shape(6, 2, 72), banded(), -5.63022935, 13.03035819, 1.10802500, 0.25650144, -4.42803085},
      {"D96", self_shape(6, 2, 96), banded(), -0.89105938, 14.42978384, -1.89493269, 0.48934821, -9.49858310},
      {"D192", self_shape(6, 2, 192), banded(), -3.92227917, 14.19861631, -3.80515102, 3.38695997, -2.07166849},
      {"D256", self_shape(6, 2, 256), banded(), -0.35446736, 13.29081929, -0.46402027, -0.81839128, 11.66425323},
      {"doc5", self_shape(16, 2, 4), documents({3, 4, 2, 5, 2}), 0.18359344, 24.55923879, 0.19529789, -0.02881933,
       -0.12418844},
      {"win4", self_shape(12, 2, 4), banded(0, 3), 1.08122430, 29.60036575, -0.46056108, -0.21328226, 2.49516723},
      {"BR2x5", {1, 2, 5, 1, 1, 4, 4}, banded(3), -0.15382083, 3.14254068, -0.10144565, 0.09338336, 0.53070757},
      {"TL2x5", {1, 2, 5, 1, 1, 4, 4}, banded(0), 0.48555498, 0.62722825, -0.08721608, 0.01300416, 0.67028844},
      {"BR5x2", {1, 5, 2, 1, 1, 4, 4}, banded(-3), 0.57381068, 0.71638197, -0.00067447, -0.03401640, -0.60145855},
      {"BR4x12", {1, 4, 12, 2, 2, 4, 4}, banded(8), 0.35548807, 19.13545924, -0.20401187, 0.12644974, 1.15614952},
      {"X8x3", {1, 8, 3, 2, 2, 4, 4}, everything(), 1.73463967, 18.84501634, -0.72801756, 0.11772630, 1.07823647},
      {"pair8", self_shape(16, 2, 4), pairs(), 0.40471058, 49.83433883, -0.17434976, -0.40146549, 2.22698847},
  };
}

/// out, and lse, of one head of width 1 with scale 1.
template <class Kernel>
outputs<float> width_one(std::vector<float> q, std::vector<float> k, std::vector<float> v, index_t pieces,
                         bool from_the_last, const interval_form& mask) {
  const dense_shape n{1, static_cast<index_t>(q.size()), static_cast<index_t>(k.size()), 1, 1, 1, 1};
  const inputs<float> in{n, 1, q, k, v, filled(tag::dout, n.out_size())};
  return check_kernel<Kernel, float>(in, visited(n, pieces, from_the_last), mask);
}

}  // namespace

TEST_CASE_TEMPLATE("each golden comes out, element by element and by checksum [C3] [C6] [C7] [I1] [I2] [M4] [P1]",
                   Kernel, EVERY_KERNEL) {
  for (const golden& g : goldens()) {
    CAPTURE(g.name);
    for (index_t pieces : {1, 2, 4}) {
      const outputs<float> got = check_kernel<Kernel, float>(recipe_inputs(g.n), visited(g.n, pieces, true), g.mask);
      const dense_result want = dense_of(recipe_inputs(g.n), in_order(g.n), g.mask);
      CHECK(compare_case(got.out, want.out));
      CHECK(within(wsum(got.out), g.out, 2e-5));
      CHECK(within(sum_of_finite(got.lse), g.lse, 2e-5));
      CHECK(within(wsum(got.dq), g.dq, 2e-5));
      CHECK(within(wsum(got.dk), g.dk, 2e-5));
      CHECK(within(wsum(got.dv), g.dv, 2e-5));
    }
  }
}

TEST_CASE_TEMPLATE("a first block that is masked does not start the maximum at 0 [A5]", Kernel, EVERY_KERNEL) {
  for (bool from_the_last : {false, true})
    for (index_t pieces : {1, 2, 4}) {
      const auto r =
          width_one<Kernel>({1, 1, 1, 1}, {-200, -201, -202, -203}, {1, 2, 3, 4}, pieces, from_the_last, banded());
      const std::vector<double> out{1, 1.26894142, 1.42478962, 1.50734727};
      const std::vector<double> lse{-200, -199.68673831, -199.59239404, -199.55981030};
      CHECK(compare_case(r.out, out));
      CHECK(compare_case(r.lse, lse));
    }
}

TEST_CASE_TEMPLATE("no score is so low that a finite stand-in for −∞ would beat it [A6]", Kernel, EVERY_KERNEL) {
  const dense_shape n{1, 1, 64, 1, 1, 128, 128};
  inputs<float> in = recipe_inputs(n);
  std::fill(in.q.begin(), in.q.end(), 1.0f);
  std::fill(in.k.begin(), in.k.end(), -2.45e5f / 128);
  std::fill(in.k.begin(), in.k.begin() + 128, -2.40e5f / 128);
  for (index_t pieces : {1, 4})
    for (bool from_the_last : {false, true}) {
      const auto r = run_kernel<Kernel, float>(in, visited(n, pieces, from_the_last), full_mask());
      CHECK(std::equal(r.out.begin(), r.out.end(), in.v.begin()));
      CHECK(within(static_cast<double>(r.lse[0]), -21213.2034, case_bound(21213.2034)));
    }
  const auto first_only = interval_form{[](index_t) { return make_intervals({0, 1}); }};
  for (index_t pieces : {1, 2})
    for (bool from_the_last : {false, true}) {
      const auto r = width_one<Kernel>({-20000, 0}, {1, 0}, {1, 100}, pieces, from_the_last, first_only);
      CHECK(r.out == std::vector<float>{1, 1});
      CHECK(r.lse == std::vector<float>{-20000, 0});
    }
}

TEST_CASE_TEMPLATE("a score of 1000 gives exactly its value and lse = 1000, in either order [A7]", Kernel,
                   EVERY_KERNEL) {
  for (bool from_the_last : {false, true})
    for (index_t pieces : {1, 2})
      for (bool large_first : {false, true}) {
        const auto r =
            width_one<Kernel>({1, 1}, large_first ? std::vector<float>{1000, 0} : std::vector<float>{0, 1000}, {1, 2},
                              pieces, from_the_last, everything());
        const float want = large_first ? 1 : 2;
        CHECK(r.out == std::vector<float>{want, want});
        CHECK(r.lse == std::vector<float>{1000, 1000});
        for (float x : r.dq) CHECK(x == 0);
        for (float x : r.dk) CHECK(x == 0);
      }
}

TEST_CASE_TEMPLATE("the lse of i + 1 equal keys is the natural logarithm of i + 1 [A8]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(8, 1, 4);
  inputs<float> in = recipe_inputs(n);
  std::fill(in.q.begin(), in.q.end(), 0.0f);
  for (index_t pieces : {1, 2, 4}) {
    const auto r = check_kernel<Kernel, float>(in, visited(n, pieces, true), causal_mask());
    for (std::size_t i = 0; i < 8; ++i)
      CHECK(r.lse[i] == doctest::Approx(std::log(static_cast<double>(i) + 1)).epsilon(1e-6));
  }
}

TEST_CASE_TEMPLATE("rows that see nothing give 0 and −∞, and poison no gradient [A9]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(8, 2, 4);
  const auto mask = interval_form{[](index_t q) { return make_intervals({0, q == 2 || q == 5 ? 0 : q + 1}); }};
  const auto r = check_kernel<Kernel, float>(recipe_inputs(n), visited(n, 2, true), mask);
  CHECK(within(wsum(r.out), 0.99662909, 2e-5));
  CHECK(within(sum_of_finite(r.lse), 16.21093612, 2e-5));
  CHECK(within(wsum(r.dq), -0.14135505, 2e-5));
  CHECK(within(wsum(r.dk), 0.02378033, 2e-5));
  CHECK(within(wsum(r.dv), 1.98456623, 2e-5));
}

TEST_CASE_TEMPLATE("what padding rows hold reaches nothing, not even one bit [B4] [B7]", Kernel, EVERY_KERNEL) {
  // 14 (or 100) rows are real, the rest of every tensor is padding that no query sees and that sees nothing.
  for (index_t real : {14, 100})
    for (index_t dim : {4, 16}) {
      const dense_shape n = self_shape(real + 30, 2, dim);
      const auto mask = interval_form{[=](index_t q) { return make_intervals({0, q < real ? q + 1 : 0}); }};
      const auto asked = functor_form{[=](index_t q, index_t k) { return q < real && k <= q; }};
      outputs<float> results[4];
      for (int i = 0; i < 4; ++i) {
        inputs<float> in = recipe_inputs(n);
        for (auto* list : {&in.q, &in.k, &in.v, &in.dout})
          std::fill(list->begin() + real * 2 * dim, list->end(), i % 2 == 0 ? not_a_number : 1e4f);
        const dealing d{{{0, n.q_tokens, 1}}, {{{0, n.k_tokens, 1}}}};
        results[i] = i < 2 ? check_kernel<Kernel, float>(in, d, mask) : check_kernel<Kernel, float>(in, d, asked);
      }
      for (int i : {1, 2, 3})
        for (auto list : {&outputs<float>::out, &outputs<float>::lse, &outputs<float>::dq, &outputs<float>::dk,
                          &outputs<float>::dv})
          CHECK(compare_exact(results[0].*list, results[i].*list));
    }
}

TEST_CASE_TEMPLATE("weights sum to one: V = 1 gives 1 within an ulp, and out stays between the values [L3]", Kernel,
                   EVERY_KERNEL) {
  for (index_t tokens : {7, 200})
    for (index_t pieces : {1, 3, 8}) {
      const dense_shape n = self_shape(tokens, 2, 16);
      inputs<float> in = recipe_inputs(n);
      for (float& x : in.q) x *= 20;  // the maximum moves often
      for (bool causal : {false, true}) {
        const auto mask = causal ? causal_mask() : causal_mask(unbounded / 2);
        const auto random = run_kernel<Kernel, float>(in, visited(n, pieces, false), mask);
        for (float x : random.out) CHECK(std::abs(x) <= 1);
        inputs<float> ones = in;
        std::fill(ones.v.begin(), ones.v.end(), 1.0f);
        const auto r = run_kernel<Kernel, float>(ones, visited(n, pieces, false), mask);
        for (float x : r.out) CHECK(std::abs(x - 1) <= 0x1p-23f);
        inputs<bfloat16> half = recipe_inputs<bfloat16>(n);
        std::fill(half.v.begin(), half.v.end(), bfloat16(1.0f));
        for (float x : run_kernel<Kernel, float>(half, visited(n, pieces, true), mask).out)
          CHECK(std::abs(x - 1) <= 0x1p-23f);
      }
    }
}

TEST_CASE_TEMPLATE("scale 0 and negative scales are values [L4]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(8, 2, 4);
  const auto at = [&](double scale) {
    return check_kernel<Kernel, float>(recipe_inputs(n, scale), visited(n, 2, false), causal_mask());
  };
  const auto zero = at(0), negative = at(-0.5), one = at(1);
  CHECK(within(wsum(zero.out), 1.29312309, 2e-5));
  CHECK(within(sum_of_finite(zero.lse), 21.20920581, 2e-5));
  for (float x : zero.dq) CHECK(x == 0);
  for (float x : zero.dk) CHECK(x == 0);
  CHECK(within(wsum(negative.out), 1.12628331, 2e-5));
  CHECK(within(wsum(negative.dq), -0.14883310, 2e-5));
  CHECK(within(wsum(negative.dk), 0.29594125, 2e-5));
  CHECK(within(wsum(one.out), 1.64923550, 2e-5));
  CHECK(within(wsum(one.dk), -0.02805371, 2e-5));
}

TEST_CASE_TEMPLATE("the gradient through lse enters by delta [H5]", Kernel, EVERY_KERNEL) {
  const dense_shape n = self_shape(8, 2, 4);
  inputs<float> in = recipe_inputs(n);
  in.dlse = filled(tag::dlse, n.lse_size());
  const auto both = check_kernel<Kernel, float>(in, visited(n, 2, false), causal_mask());
  CHECK(within(wsum(both.dq), 0.08041886, 2e-5));
  CHECK(within(wsum(both.dk), -0.53510431, 2e-5));
  std::fill(in.dout.begin(), in.dout.end(), 0.0f);
  const auto alone = check_kernel<Kernel, float>(in, visited(n, 2, false), causal_mask());
  CHECK(within(wsum(alone.dq), 0.24957611, 2e-5));
  CHECK(within(wsum(alone.dk), -0.42885474, 2e-5));
  for (float x : alone.dv) CHECK(x == 0);
}

TEST_CASE_TEMPLATE("query heads share key heads in groups, also from the middle of a group [C4] [C5]", Kernel,
                   EVERY_KERNEL) {
  // Heads 3, 4, 5 of 8 with 2 heads per kv head, kv heads from 1 on: they use local kv heads 0, 1, 1.
  const index_t tokens = 5, dim = 4;
  const auto q = filled(tag::q, tokens * 3 * dim);
  std::vector<float> k(static_cast<std::size_t>(tokens * 2 * dim)), v(k), out(q.size(), not_a_number),
      lse(3 * tokens, not_a_number);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = i / dim % 2 == 0 ? 10.0f : 20.0f;
  const query_rows queries = lower_intervals(
      runs{{0, tokens, 1}},
      [](index_t) {
        return make_intervals({0, unbounded});
      },
      tokens, 64);
  const key_rows keys = lower_keys(runs{{0, tokens, 1}}, queries, 64);
  const kv_segment<float> segment{dense_view<const float>(k.data(), {1, tokens, 2, dim}),
                                  dense_view<const float>(v.data(), {1, tokens, 2, dim}), keys.table()};
  const exact_space workspace(Kernel::workspace_bytes(dim, dim));
  forward_call<float, float> call;
  call.q = dense_view<const float>(q.data(), {1, tokens, 3, dim});
  call.queries = queries.table();
  call.segments = {&segment, 1};
  call.heads = {3, 1, 2};
  call.out = dense_view(out.data(), {1, tokens, 3, dim});
  call.lse = dense_heads(lse.data(), {1, 3, tokens});
  call.workspace = workspace.get();
  Kernel{}.forward(call, by_intervals{});
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == (i / dim % 3 == 0 ? 10.0f : 20.0f));
}
