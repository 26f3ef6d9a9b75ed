// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients: that every block's part reaches every owner, once, for every rank and schedule.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden s8f{0.25382004, 34.19949915, -0.20599733, -0.01865335, 0.69784760};
const golden s8c{1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915};

attention_case of(index_t tokens, any_mask mask, std::optional<golden> sums) {
  return {.tokens = tokens, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = std::move(mask), .sums = sums};
}
tensors inputs_of(const attention_case& c) {
  return recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
}

}  // namespace

TEST_CASE("backward attends to every rank's keys, not to its own at every step [H2]") {
  attention_case c = of(8, see_all, s8f);
  check_everywhere(c);
  // V of contiguous rank r of four times 10^r: a block taken for another is off by powers of ten
  tensors in = inputs_of(c);
  for (std::size_t i = 0; i < in.v.size(); ++i)
    in.v[i] *= static_cast<float>(std::pow(10., static_cast<double>(i / 16)));
  c.inputs = in;
  c.sums = golden{-848.40923053, 34.19949915, -30.14341356, -151.28061531, 0.69784760};
  c.sums_within = 2e-5 * 848;
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const auto near = [](double x, double want) { return std::abs(x - want) <= 2e-5 * std::abs(want); };
    const bool right = near(wsum(got.out), -848.40923053) && near(wsum(got.dq), -30.14341356) &&
                       near(wsum(got.dk), -151.28061531) && near(wsum(got.dv), 0.69784760);
    return right ? std::string() : std::string("the published sums do not come out");
  });
}

TEST_CASE("backward uses the whole row's out and lse, not those of a block [H3]") {
  attention_case c = of(8, see_all, s8f);
  c.ranks = {2};
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const bool blockwise = std::abs(wsum(got.dq) + 0.27129182) < 1e-3 || std::abs(wsum(got.dk) - 0.03339233) < 1e-3;
    return blockwise ? std::string("these are the sums of the per-block mistake") : std::string();
  });
}

TEST_CASE("dK and dV reach their owner whichever rank they come from, and every dO is in some dV once [H4]") {
  for (const any_mask& mask : {see_all, see_past})
    for (index_t from = 0; from < 3; ++from) {
      attention_case c = of(12, mask, {});
      tensors in = inputs_of(c);
      for (index_t i = 0; i < 12 * 8; ++i)
        if (i / 8 / 4 != from) in.dout[static_cast<std::size_t>(i)] = 0;
      c.inputs = in;
      c.ranks = {1, 2, 3, 5};
      check_everywhere(c, [&](const problem&, const outcome<float>& got) {
        for (std::size_t column = 0; column < 8; ++column) {
          double dv = 0, dout = 0;
          for (std::size_t row = 0; row < 12; ++row) {
            dv += static_cast<double>(got.dv[row * 8 + column]);
            dout += static_cast<double>(in.dout[row * 8 + column]);
          }
          if (std::abs(dv - dout) > 2e-6) return std::string("the sum of dV is not that of dO");
        }
        return std::string();
      });
    }
}

TEST_CASE("the gradient through lse alone, and added to that through out, comes out as published [H5]") {
  attention_case c = of(8, see_past, golden{s8c.out, s8c.lse, 0.08041886, -0.53510431, 1.39575915});
  c.with_dlse = true;
  check_everywhere(c);
  tensors in = inputs_of(c);
  std::fill(in.dout.begin(), in.dout.end(), 0.f);
  c.inputs = in;
  c.sums = golden{s8c.out, s8c.lse, 0.24957611, -0.42885474, 0};
  check_everywhere(c);
}

TEST_CASE("gradients that are asked for with saved q, k, v are those of sending them again, bit for bit") {
  for (const any_mask& mask : {see_all, see_past, any_mask(window{.left = 2, .right = 1}, "window")}) {
    attention_case c{.tokens = 13, .shape = {.batch = 2, .heads = 6, .kv_heads = 3, .head_dim = 5}, .mask = mask};
    c.shape.value_dim = 3;
    c.ranks = {1, 2, 3, 4};
    c.options.reuse = reuse::saved;
    check_everywhere(c, [&](const problem& p, const outcome<float>& got) {
      problem again = p;
      again.options.reuse = reuse::resend;
      again.options.moves = {side::keys, side::keys};
      const outcome<float> other = run_problem<float>(again, recipe_tensors(p));
      if (!same_bits(got, other)) return std::string("saved and resend differ");
      for (std::size_t m = 0; m < got.memory.size(); ++m) {
        const bool apart = p.team.ring * p.team.all_to_all == 1 || got.memory[m].saved > 0;
        if (!apart || other.memory[m].saved != 0) return std::string("memory.saved is not what saved needs");
        if (got.backward_bytes[m] > other.backward_bytes[m]) return std::string("saved sends more");
      }
      return std::string();
    });
  }
}

}  // namespace seqpar::test
