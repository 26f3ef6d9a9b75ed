// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The published sums for the masks of today's systems, and a deliberately wrong hybrid that must be noticed.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

any_layout paired_contiguous(index_t tokens, int ranks) {
  return any_layout(paired{contiguous{.tokens = tokens / 2, .ranks = ranks}}, "paired");
}
any_layout paired_zigzag(index_t tokens, int ranks) {
  return any_layout(paired{zigzag{.tokens = tokens / 2, .ranks = ranks}}, "paired zigzag");
}
any_layout on_a_grid(index_t tokens, int ranks) {  // four frames of tokens / 4 in two rows
  const grid_split split = ranks % 2 == 0 ? grid_split{2, ranks / 2} : grid_split{1, ranks};
  return any_layout(grid{4, 2, tokens / 8, split.h, split.w}, "grid");
}
const std::vector<deal> plain{contiguously, in_zigzag, in_stripes, on_a_grid};
const std::vector<deal> pairs{paired_contiguous, paired_zigzag, contiguously, in_zigzag};

void check(index_t tokens, index_t heads, index_t kv_heads, any_mask mask, const std::vector<deal>& deals,
           golden sums) {
  const attention_case c{.tokens = tokens,
                         .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = 4},
                         .mask = std::move(mask),
                         .sums = sums,
                         .ranks = {1, 2, 4, 8},
                         .deals = deals};
  check_everywhere(c);
}
any_mask forcing(index_t frames, index_t frame_tokens, index_t frames_per_block) {
  return any_mask(teacher_forcing{.clean = frames * frame_tokens, .block = frame_tokens * frames_per_block},
                  "teacher forcing");
}

/// The index rule of a public system's hybrid of 2 × 2 ranks: eight pieces are dealt as (0, 3) (4, 7) to the members of
/// ring index 0 and as (1, 2) (5, 6) to those of ring index 1; the ring then masks each group's rows, in this order, as
/// if they were a zigzag over two ranks. `taken` is what a position is taken for.
struct wrong_hybrid {
  std::array<index_t, 16> taken{};
  wrong_hybrid() {
    const std::array<std::array<index_t, 4>, 2> pieces{{{0, 3, 4, 7}, {1, 2, 5, 6}}};
    const zigzag believed{.tokens = 16, .ranks = 2};
    for (int group = 0; group < 2; ++group)
      for (index_t i = 0; i < 8; ++i) {
        const index_t piece = pieces[static_cast<std::size_t>(group)][static_cast<std::size_t>(i / 2)];
        taken[static_cast<std::size_t>(piece * 2 + i % 2)] = believed.global_of(group, i);
      }
  }
  bool allows(index_t q, index_t k) const {
    return taken[static_cast<std::size_t>(k)] <= taken[static_cast<std::size_t>(q)];
  }
};

}  // namespace

TEST_CASE("causal: 8, 16 and 32 tokens give the published sums on every mesh and layout") {
  check(8, 2, 2, see_past, plain, {1.47633511, 22.26007235, -0.16915725, -0.10624958, 1.39575915});
  check(16, 2, 2, see_past, plain, {1.87148926, 62.89828945, -0.32851846, -0.04838146, 0.93312637});
  check(32, 4, 4, see_past, plain, {1.63312214, 332.44266886, 1.23677875, 0.49624524, -0.90580964});
}

TEST_CASE("teacher forcing, strict for noisy on clean, gives the published sums on every mesh and layout") {
  check(8, 2, 2, forcing(4, 1, 1), pairs, {1.20915752, 13.77307234, -0.12189200, -0.17849822, 1.02557412});
  check(16, 4, 4, forcing(8, 1, 1), pairs, {3.70399659, 86.79885854, 1.18542650, 0.33495617, -1.04264232});
  check(16, 4, 4, forcing(4, 2, 1), pairs, {3.22814020, 97.69667162, 0.97824206, 0.22076320, -0.15174665});
  check(32, 4, 4, forcing(8, 2, 2), pairs, {0.77210864, 284.69833884, 0.87976316, 0.93302914, -0.39277114});
}

TEST_CASE("grouped queries: 8 heads over 2 and over 4 kv heads give the published sums") {
  check(16, 8, 2, see_past, plain, {2.01727749, 248.80590832, -0.87400914, -0.78003115, -5.01698018});
  check(16, 8, 4, see_past, plain, {3.51257197, 250.25953596, -1.27893234, 0.33615935, -0.29589658});
}

TEST_CASE("block causal, documents and a window give the published sums") {
  check(16, 2, 2, any_mask(block_causal{4}, "block causal"), plain,
        {1.63988966, 71.46621761, -0.49448415, 0.14554912, 0.41648058});
  const std::vector<index_t> two = pack({8, 8}), four = pack({8, 8, 8, 16});
  check(16, 2, 2, any_mask(seqpar::within{documents{two}, causal{}}, "documents"), plain,
        {1.27813368, 43.50406940, 0.02719684, 0.12447931, 1.69665609});
  check(40, 2, 2, any_mask(seqpar::within{documents{four}, causal{}}, "documents"), plain,
        {-0.52856890, 129.33822538, 0.89998536, -0.64608335, 2.61834982});
  check(16, 2, 2, any_mask(window{.left = 3, .right = 0}, "window"), plain,
        {1.52130065, 40.83710596, -0.01433874, -0.11766028, 0.94462312});
}

TEST_CASE("a condition prefix that sees only itself gives the published sums") {
  // q noise or k condition: the first four see the first four, the rest sees all
  const std::vector<index_t> queries{0, 4, 16}, keys{0, 0, 16};
  check(16, 4, 4, any_mask(any_of{first_keys{4}, documents{queries, keys}}, "condition prefix"), plain,
        {-0.58317389, 157.96911746, 0.80896979, 0.47955727, 0.21882445});
}

TEST_CASE("negative control: a hybrid that is 0.1 % off in the sum of lse is told by every comparison") {
  const golden right{1.87148926, 62.89828945, -0.32851846, -0.04838146, 0.93312637};
  attention_case c{.tokens = 16, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_past, .sums = right};
  const problem good = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
  const tensors in = recipe_tensors(good);
  const dense_result want = definition<float>(good, in);
  CHECK(fault_of(good, run_problem<float>(good, in), want) == "");

  problem bad = good;
  bad.mask = any_mask(wrong_hybrid{}, "wrong hybrid");
  const outcome<float> got = run_problem<float>(bad, in);
  CHECK(std::abs(wsum(got.out) - 0.50585859) < 2e-5);
  CHECK(std::abs(sum_of_finite(got.lse) - 62.97102064) < 2e-5);
  CHECK(std::abs(sum_of_finite(got.lse) / right.lse - 1) < 2e-3);  // what a loose tolerance would let pass
  CHECK(fault_of(bad, got, want).starts_with("out: element"));
  CHECK(fault_of(bad, got, definition<float>(bad, in)) == "");
  CHECK(sums_fault(got, right, 2e-5) != "");
  CHECK(!compare(got.lse, want.lse, want.lse_magnitude));
  CHECK(!compare(got.dq, want.dq, want.dq_magnitude));
  CHECK(!compare(got.dk, want.dk, want.dk_magnitude));
  CHECK(!compare(got.dv, want.dv, want.dv_magnitude));
}

}  // namespace seqpar::test
