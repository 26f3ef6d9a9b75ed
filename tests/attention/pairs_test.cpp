// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clean and noisy copies of the same frames, teacher forcing.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden pair8{0.40471058, 49.83433883, -0.17434976, -0.40146549, 2.22698847};

any_layout paired_contiguous(index_t tokens, int ranks) {
  return any_layout(paired{contiguous{.tokens = tokens / 2, .ranks = ranks}}, "paired");
}
any_layout paired_frames(index_t tokens, int ranks) {
  return any_layout(paired{contiguous{.tokens = tokens / 2, .ranks = ranks, .granule = 2}}, "paired by frames");
}
any_layout paired_zigzag(index_t tokens, int ranks) {
  return any_layout(paired{zigzag{.tokens = tokens / 2, .ranks = ranks}}, "paired zigzag");
}
const std::vector<deal> pairs{paired_contiguous, paired_frames, paired_zigzag, contiguously, in_zigzag, in_stripes};

attention_case of(index_t clean, index_t block, std::optional<golden> sums) {
  attention_case c{.tokens = 2 * clean,
                   .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4},
                   .mask = any_mask(teacher_forcing{.clean = clean, .block = block}, "teacher forcing"),
                   .sums = sums};
  c.deals = pairs;
  return c;
}

}  // namespace

TEST_CASE("clean and noisy frames on one rank or dealt apart: the pair mask gives the published sums [P1]") {
  const any_layout layout = paired_frames(16, 2);
  std::vector<index_t> times;
  for (index_t i = 0; i < layout.count_of(1); ++i) times.push_back(layout.global_of(1, i) % 8);
  CHECK(times == std::vector<index_t>{4, 5, 6, 7, 4, 5, 6, 7});
  attention_case c = of(8, 2, pair8);
  c.ranks = {1, 2, 3, 4};
  check_everywhere(c);
  tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  std::fill_n(in.dout.begin(), 8 * 8, 0.f);  // dO on the noisy half only
  c.inputs = in;
  c.sums = golden{pair8.out, pair8.lse, 0.05518795, -0.39622211, 0.08969251};
  check_everywhere(c);
}

TEST_CASE("the block of the pair mask is the one given, also when the last one is ragged [P2]") {
  for (index_t clean = 1; clean <= 7; ++clean)
    for (index_t block = 1; block <= 4; ++block) {
      attention_case c = of(clean, block, {});
      c.shape.heads = c.shape.kv_heads = 1;
      c.deals = {pairs[static_cast<std::size_t>((clean + block) % 6)], contiguously};
      c.ranks = {static_cast<int>((clean * block) % 5 + 1)};
      check_everywhere(c);
    }
}

}  // namespace seqpar::test
