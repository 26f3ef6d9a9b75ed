// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tokens that every rank holds (text, a prefix), counted once, with gradients.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden s10f{0.33204464, 93.75245195, 0.12112454, 0.29709721, -1.49559587};
const golden s10c{2.42053438, 62.61354910, 0.41185249, 0.59546185, -0.55626235};
const golden x8x3{1.73463967, 18.84501634, -0.72801756, 0.11772630, 1.07823647};

attention_case image_and_text(index_t image, index_t text, joint_place where, any_mask mask,
                              std::optional<golden> sums) {
  attention_case c{
      .tokens = image, .shape = {.heads = 4, .kv_heads = 4, .head_dim = 4}, .mask = std::move(mask), .sums = sums};
  c.shape.joint_q = c.shape.joint_kv = text;
  c.shape.joint_at = where;
  return c;
}

}  // namespace

TEST_CASE("text on every rank is attended once, in front as at the rear, and all ranks get the same for it [M1]") {
  for (const joint_place where : {joint_place::front, joint_place::rear}) {
    attention_case c = image_and_text(8, 2, where, see_all, s10f);
    check_everywhere(c);
    c.mask = see_past;
    c.sums = s10c;
    check_everywhere(c);
  }
}

TEST_CASE("a ring counts replicated keys once: (10 + 1 + 1) / 3 is 4 [M2]") {
  attention_case c{.tokens = 2, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1}, .mask = see_all};
  c.shape.joint_q = c.shape.joint_kv = 1;
  c.inputs = tensors{{0, 0, 0}, {1, -1, 1}, {10, 1, 1}, {1, 1, 1}, {}};
  check_everywhere(c, [](const problem&, const outcome<float>& got) { return literal_fault(got.out, {4, 4, 4}); });
}

TEST_CASE("any number of text tokens, heads and ranks gives the definition, with the gradient through lse [M1] [M2]") {
  int turn = 0;
  for (index_t text = 1; text <= 6; ++text)
    for (int ranks = 1; ranks <= 6; ++ranks) {
      const bool front = ++turn % 2 == 0;
      attention_case c = image_and_text(turn % 11, text, front ? joint_place::front : joint_place::rear, see_past, {});
      c.shape.heads = 6;
      c.shape.kv_heads = turn % 3 == 0 ? 2 : 3;
      c.shape.value_dim = 3;
      c.shape.batch = turn % 4 == 0 ? 2 : 1;
      c.shape.joint_q = turn % 5 == 0 ? 0 : text;  // text as keys only
      c.with_dlse = true;
      c.ranks = {ranks};
      c.deals = {every_deal[static_cast<std::size_t>(turn % 3)]};
      c.options.reuse = turn % 2 ? reuse::saved : reuse::resend;
      check_everywhere(c);
    }
}

TEST_CASE("padded text is not attended: three of five text tokens are valid [M3]") {
  attention_case c = image_and_text(8, 5, joint_place::rear, any_mask(valid{.keys = 11}, "11 of 13 keys"), {});
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const double image = wsum(rows_of(got.out, 16, 0, 8));
    if (!all_are(rows_of(got.dk, 16, 11, 2), 0) || !all_are(rows_of(got.dv, 16, 11, 2), 0))
      return std::string("padding has a gradient");
    return std::abs(image - 0.78128270) <= 2e-5 ? std::string() : "image rows sum to " + std::to_string(image);
  });
}

TEST_CASE("cross attention to replicated keys: gradients complete on every rank, or parts that sum to them [M4]") {
  attention_case c{
      .tokens = 8, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_all, .sums = x8x3, .kv_tokens = 0};
  c.shape.joint_kv = 3;
  c.ranks = {1, 2, 4, 8};
  check_everywhere(c);
  c.options.joint_gradient = joint_gradient::partial;
  check_everywhere(c);
  c.tokens = 7;
  c.sums = {};
  c.kv_tokens = 5;
  c.mask = see_past;
  c.shape.heads = 6;
  c.shape.joint_at = joint_place::rear;
  for (const write how : {write::assign, write::add}) {
    c.options.gradients = how;
    check_everywhere(c);
  }
}

}  // namespace seqpar::test
