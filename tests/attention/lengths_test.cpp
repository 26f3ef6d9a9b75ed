// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lengths that do not divide, padding, ranks without rows.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

attention_case of(index_t tokens, index_t heads, any_mask mask, std::optional<golden> sums) {
  return {.tokens = tokens,
          .shape = {.heads = heads, .kv_heads = heads, .head_dim = 4},
          .mask = std::move(mask),
          .sums = sums};
}

const golden s10f{0.33204464, 93.75245195, 0.12112454, 0.29709721, -1.49559587};
const golden s10c{2.42053438, 62.61354910, 0.41185249, 0.59546185, -0.55626235};
const golden s11c{1.56605526, 36.22497211, -0.38102872, 0.01298642, 1.63214591};
const golden s14c{1.80666951, 51.73664594, -0.29247774, -0.05442722, 1.51764479};
const golden s3c{0.78365367, 3.74881335, -0.02552162, -0.18471908, 1.06840380};
const golden s1c{0.26830176, 0.19712915, 0, 0, 0.65948850};
const golden s7doc{0.94814838, 5.75739179, -0.11004416, -0.21761311, 1.17206823};

/// A tensor whose rows from `first` on hold `value`.
std::vector<float> padded(std::vector<float> x, index_t columns, index_t first, float value) {
  std::fill(x.begin() + first * columns, x.end(), value);
  return x;
}

}  // namespace

TEST_CASE("ten tokens over any number of ranks are ten tokens, in the all-to-all as in the ring [B1]") {
  attention_case c = of(10, 4, see_all, s10f);
  c.ranks = {2, 3, 4, 6, 8};
  check_everywhere(c);
  c.mask = see_past;
  c.sums = s10c;
  check_everywhere(c);
}

TEST_CASE("zigzag with pieces of unequal size has the same gradients as without [B2]") {
  attention_case c = of(11, 2, see_past, s11c);
  c.ranks = {2, 4, 5};
  check_everywhere(c);
}

TEST_CASE("seven real tokens of eight are seven, not six: padding belongs to no document [B3]") {
  const std::vector<index_t> bounds = pack({4, 3});
  const any_mask docs(seqpar::within{documents{bounds}, causal{}}, "documents 4, 3");
  attention_case c{.tokens = 8, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 8}, .mask = docs, .sums = s7doc};
  c.ranks = {1, 2, 4};
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const bool none = all_are(rows_of(got.out, 8, 7, 1), 0) && all_are(rows_of(got.dq, 8, 7, 1), 0) &&
                      all_are(rows_of(got.dk, 8, 7, 1), 0) && all_are(rows_of(got.dv, 8, 7, 1), 0);
    return none ? std::string() : std::string("the padding row is not 0");
  });
  c.tokens = 7;
  check_everywhere(c);
}

TEST_CASE("what padding at the end holds reaches nothing, not even one bit, and its rows come out as 0 [B4]") {
  attention_case c = of(16, 2, any_mask(all_of{causal{}, valid{.queries = 14, .keys = 14}}, "14 of 16, causal"), s14c);
  c.ranks = {2, 4};
  const tensors plain = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  for (const float pad : {1e4f, std::numeric_limits<float>::quiet_NaN()}) {
    c.inputs = tensors{padded(plain.q, 8, 14, pad),
                       padded(plain.k, 8, 14, pad),
                       padded(plain.v, 8, 14, pad),
                       padded(plain.dout, 8, 14, pad),
                       {}};
    check_everywhere(c, [&](const problem& p, const outcome<float>& got) {
      for (const auto* x : {&got.out, &got.dq, &got.dk, &got.dv})
        if (!all_are(rows_of(*x, 8, 14, 2), 0)) return std::string("a padding row is not 0");
      return same_bits(got, run_problem<float>(p, plain)) ? std::string() : std::string("padding changed a bit");
    });
  }
  const problem zigzag_ring = c.at(in_zigzag, 4, {.ring = 4, .all_to_all = 1}, schedule::direct);
  const outcome<float> first = run_problem<float>(zigzag_ring, *c.inputs);
  for (int run = 0; run < 10; ++run) CHECK(same_bits(run_problem<float>(zigzag_ring, *c.inputs), first));
}

TEST_CASE("attention returns as many rows as it was given, for every length and number of ranks [B5]") {
  const std::vector<any_mask> masks{see_past, see_all, any_mask(window{.left = 3, .right = 1}, "window 3+1+1")};
  for (index_t tokens = 0; tokens <= 33; ++tokens) {
    attention_case c = of(tokens, 2, masks[static_cast<std::size_t>(tokens % 3)], {});
    c.shape.kv_heads = 1;
    c.ranks = {1, 2, 3, 4, 8};
    c.deals = {every_deal[static_cast<std::size_t>(tokens / 3 % 3)]};
    check_everywhere(c);
  }
}

TEST_CASE("no token, one token and fewer tokens than ranks give the definition, and no call hangs [B6]") {
  attention_case c = of(3, 2, see_past, s3c);
  c.ranks = {1, 4, 8};
  check_everywhere(c);
  c.tokens = 1;
  c.sums = s1c;
  check_everywhere(c);
  c.tokens = 0;
  c.sums = golden{0, 0, 0, 0, 0};
  check_everywhere(c);
  c.tokens = 2;
  c.shape.batch = 0;
  check_everywhere(c);
}

TEST_CASE("a padding key of zeros takes no weight when the mask says so [B7]") {
  attention_case c{.tokens = 4,
                   .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1},
                   .mask = any_mask(valid{.queries = 3, .keys = 3}, "3 of 4")};
  c.inputs = tensors{{0, 0, 0, 0}, {1, -1, .5f, 0}, {1, 2, 3, 0}, {1, 1, 1, 1}, {}};
  c.ranks = {1, 2, 4};
  check_everywhere(c, [](const problem&, const outcome<float>& got) { return literal_fault(got.out, {2, 2, 2, 0}); });
}

TEST_CASE("frames that do not divide over the ranks are split as tokens: 84 over 8 are 4 x 11 and 4 x 10 [B8]") {
  attention_case c = of(21 * 2 * 2, 2, see_all, {});
  c.ranks = {8};
  c.deals = {contiguously};
  const any_layout layout = contiguously(84, 8);
  for (int r = 0; r < 8; ++r) CHECK(layout.count_of(r) == (r < 4 ? 11 : 10));
  check_everywhere(c);
  c.deals = {[](index_t tokens, int ranks) {
    return any_layout(zigzag{.tokens = tokens, .ranks = ranks, .granule = 4}, "zigzag of frames");
  }};
  check_everywhere(c);
}

}  // namespace seqpar::test
