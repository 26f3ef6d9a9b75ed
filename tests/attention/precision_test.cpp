// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rounding does not grow with ranks, results do not change from run to run, and scales are values.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden s8c{1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915};

template <class T>
double worst(const std::vector<T>& got, const std::vector<double>& want) {
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isfinite(want[i])) error = std::max(error, std::abs(static_cast<double>(got[i]) - want[i]));
  return error;
}

}  // namespace

TEST_CASE("bfloat16 results on eight ranks are as near as on one: what is partial stays fp32 [L1]") {
  const attention_case c{.tokens = 64, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 64}, .mask = see_past};
  const problem one = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  const tensors in = recipe_tensors(one);
  const dense_result want = definition<bfloat16>(one, in);
  const outcome<bfloat16> alone = run_problem<bfloat16>(one, in);
  for (int ranks : {2, 4, 8})
    for (const mesh_shape& team : every_mesh(ranks))
      for (const schedule s : every_schedule)
        for (const deal d : {contiguously, in_zigzag}) {
          const problem p = c.at(d, ranks, team, s);
          const outcome<bfloat16> got = run_problem<bfloat16>(p, in);
          CHECK_MESSAGE(fault_of(p, got, want) == "", name_of(p));
          CHECK_MESSAGE(worst(got.out, want.out) <= 1.5 * worst(alone.out, want.out), name_of(p));
          CHECK_MESSAGE(worst(got.dq, want.dq) <= 1.5 * worst(alone.dq, want.dq), name_of(p));
          CHECK_MESSAGE(worst(got.dk, want.dk) <= 1.5 * worst(alone.dk, want.dk), name_of(p));
          CHECK_MESSAGE(worst(got.dv, want.dv) <= 1.5 * worst(alone.dv, want.dv), name_of(p));
          CHECK_MESSAGE(worst(got.lse, want.lse) < 1e-5, name_of(p));
        }
}

TEST_CASE("results are the same bits in twenty runs under the adversary, on every mesh and schedule [L2]") {
  attention_case c{.tokens = 64, .shape = {.heads = 8, .kv_heads = 2, .head_dim = 16}, .mask = see_past};
  const tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  for (const mesh_shape& team : every_mesh(4))
    for (const schedule s : every_schedule) {
      problem p = c.at(in_zigzag, 4, team, s);
      const outcome<float> first = run_problem<float>(p, in);
      CHECK(fault_of(p, first, definition<float>(p, in)) == "");
      for (std::uint64_t run = 1; run <= 20; ++run) {
        p.adversary = run;
        CHECK_MESSAGE(same_bits(run_problem<float>(p, in), first), name_of(p) << ", adversary " << run);
      }
    }
}

TEST_CASE(
    "weights sum to one: constant values come out, random ones stay between their bounds, dQ and dK vanish [L3]") {
  const std::vector<any_mask> masks{see_all, see_past, any_mask(window{.left = 5, .right = 2}, "window")};
  for (const any_mask& mask : masks) {
    attention_case c{.tokens = 21, .shape = {.heads = 2, .kv_heads = 1, .head_dim = 8}, .mask = mask};
    c.ranks = {1, 3, 8};
    const tensors plain = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
    const float least = *std::min_element(plain.v.begin(), plain.v.end());
    const float most = *std::max_element(plain.v.begin(), plain.v.end());
    check_everywhere(c, [&](const problem&, const outcome<float>& got) {
      for (float x : got.out)
        if (x < least - 2e-7f || x > most + 2e-7f) return std::string("out leaves the range of the values");
      return std::string();
    });
    tensors ones = plain;
    std::fill(ones.v.begin(), ones.v.end(), 1.f);
    c.inputs = ones;
    check_everywhere(c, [](const problem&, const outcome<float>& got) {
      for (float x : got.out)
        if (std::abs(x - 1.f) > 0x1p-23f) return std::string("out is not 1 within an ulp");
      for (const auto* x : {&got.dq, &got.dk})  // ds = p·(dout·1 − dout·1)
        for (float e : *x)
          if (std::abs(e) > 1e-5f) return std::string("dQ or dK do not vanish");
      return std::string();
    });
    check_everywhere<bfloat16>(c, [](const problem&, const outcome<bfloat16>& got) {
      return all_are(got.out, 1) ? std::string() : std::string("out in bfloat16 is not 1");
    });
  }
}

TEST_CASE("scales of 0, below 0 and 1 are values; unset is one over the root of the width [L4]") {
  attention_case c{.tokens = 8, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_past, .sums = s8c};
  check_everywhere(c);
  c.sums = {};
  const auto with = [&](float scale, auto&& right) {
    c.options.scale = scale;
    check_everywhere(c, [&](const problem&, const outcome<float>& got) {
      return right(got) ? std::string() : std::string("the published sums do not come out");
    });
  };
  const auto near = [](double x, double y) { return std::abs(x - y) <= 2e-5; };
  with(0.f, [&](const outcome<float>& got) {
    return near(wsum(got.out), 1.29312309) && near(sum_of_finite(got.lse), 21.20920581) && all_are(got.dq, 0) &&
           all_are(got.dk, 0);
  });
  with(-0.5f, [&](const outcome<float>& got) {
    return near(wsum(got.out), 1.12628331) && near(wsum(got.dq), -0.14883310) && near(wsum(got.dk), 0.29594125);
  });
  with(1.f,
       [&](const outcome<float>& got) { return near(wsum(got.out), 1.64923550) && near(wsum(got.dk), -0.02805371); });
  c.sums = s8c;
  c.options.scale = 0.5f;
  check_everywhere(c);
}

}  // namespace seqpar::test
