// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that compiles run_problem, and proofs that the harness sees what it is for.
#include <tests/attention/cases.hpp>

namespace seqpar::test {

template outcome<float> run_problem<float, host_fast>(const problem&, const tensors&, host_fast);
template outcome<bfloat16> run_problem<bfloat16, host_fast>(const problem&, const tensors&, host_fast);

TEST_CASE("fault_of sees one wrong element of any result, and one byte too many or too few") {
  const attention_case c{.tokens = 11, .shape = {.heads = 2, .kv_heads = 1, .head_dim = 4}, .mask = see_past};
  for (const schedule s : every_schedule) {
    const problem p = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, s);
    const tensors in = recipe_tensors(p);
    const dense_result want = definition<float>(p, in);
    const outcome<float> good = run_problem<float>(p, in);
    CHECK(fault_of(p, good, want) == "");
    const auto spoilt = [&](auto&& spoil) {
      outcome<float> bad = good;
      spoil(bad);
      return fault_of(p, bad, want);
    };
    CHECK(spoilt([](auto& o) { o.out[5] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.lse[3] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dq[40] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dk[12] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dv[43] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dv[43] = std::numeric_limits<float>::quiet_NaN(); }) != "");
    CHECK(spoilt([](auto& o) { ++o.forward_bytes[1]; }) != "");
    CHECK(spoilt([](auto& o) { --o.backward_bytes[2]; }) != "");
    CHECK(spoilt([](auto& o) { o.replicas_agree = false; }) != "");
  }
}

}  // namespace seqpar::test
