// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <seqpar/attention/state.hpp>
#include <tests/support/dense.hpp>
#include <tests/support/recipe.hpp>
#include <tests/support/tolerance.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

/// One row.
struct partial {
  std::vector<float> out;
  float lse;
  friend bool operator==(const partial&, const partial&) = default;
};

partial merged(partial a, partial b) {
  const std::array<index_t, 4> shape{1, 1, 1, static_cast<index_t>(a.out.size())};
  merge(dense_view(a.out.data(), shape), dense_heads(&a.lse, {1, 1, 1}), dense_view<const float>(b.out.data(), shape),
        dense_heads<const float>(&b.lse, {1, 1, 1}));
  return a;
}

}  // namespace

TEST_CASE("two empty partials merge into an empty one, without NaN [A1]") {
  CHECK(merged({{0, 0}, -inf}, {{0, 0}, -inf}) == partial{{0, 0}, -inf});
}

TEST_CASE("one finite partial among empty ones, wherever it stands, comes out bit for bit [A1] [A2]") {
  const partial empty{{0, 0}, -inf}, some{{1, 2}, 0.5f};
  for (int where = 0; where < 5; ++where) {
    partial p = where == 0 ? some : empty;
    for (int i = 1; i < 5; ++i) p = merged(p, i == where ? some : empty);
    CHECK(p == some);
  }
  CHECK(merged({{-0.0f, 3e-41f}, -1e30f}, empty) == partial{{-0.0f, 3e-41f}, -1e30f});
}

TEST_CASE("what an empty partial's out holds is never read [A4]") {
  const partial garbage{{std::nanf(""), 1e30f}, -inf}, some{{1, 2}, 0.5f};
  CHECK(merged(garbage, some) == some);
  CHECK(merged(some, garbage) == some);
  CHECK(merged(garbage, {{std::nanf(""), 0}, -inf}) == partial{{0, 0}, -inf});
}

TEST_CASE("a large difference of lse neither overflows nor leaves a trace [A7]") {
  CHECK(merged({{1}, 0}, {{2}, 1000}) == partial{{2}, 1000});
  CHECK(merged({{2}, 1000}, {{1}, 0}) == partial{{2}, 1000});
  CHECK(merged({{2}, -1000}, {{1}, 1000}) == partial{{1}, 1000});
}

TEST_CASE("the logarithm is natural [A8]") {
  partial p{{0}, 0};
  for (int i = 1; i < 8; ++i) p = merged(p, {{static_cast<float>(i)}, 0});
  CHECK(p.lse == doctest::Approx(std::log(8.0)).epsilon(1e-6));
  CHECK(p.out[0] == doctest::Approx(3.5).epsilon(1e-6));
}

TEST_CASE("partials over parts of the keys, merged in any order, give the result over all keys") {
  const dense_shape n = self_shape(12, 2, 4);
  const auto q = filled(tag::q, n.q_size()), k = filled(tag::k, n.k_size()), v = filled(tag::v, n.v_size());
  const auto over = [&](index_t lo, index_t hi) {
    return dense_attention(n, {default_scale}, q, k, v, std::vector<float>{}, {},
                           [=](index_t i, index_t j) { return j <= i && lo <= j && j < hi; });
  };
  const dense_result want = over(0, 12);
  const std::array<index_t, 4> shape{1, 12, 2, 4};
  std::vector<index_t> parts{0, 1, 2};
  do {
    std::vector<float> out(want.out.size()), lse(want.lse.size(), -inf);
    for (index_t part : parts) {
      const dense_result r = over(part * 4, part * 4 + 4);
      const std::vector<float> o(r.out.begin(), r.out.end()), l(r.lse.begin(), r.lse.end());
      merge(dense_view(out.data(), shape), dense_heads(lse.data(), {1, 2, 12}), dense_view(o.data(), shape),
            dense_heads(l.data(), {1, 2, 12}));
    }
    CHECK(compare(out, want.out, want.out_magnitude));
    CHECK(compare(lse, want.lse, want.lse_magnitude));
  } while (std::next_permutation(parts.begin(), parts.end()));
}
