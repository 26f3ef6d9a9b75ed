// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Documents packed into one sequence, wherever they lie on the ranks.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden doc5{0.18359344, 24.55923879, 0.19529789, -0.02881933, -0.12418844};
const golden doc4{1.37444908, 31.75255538, -0.49613570, 0.10689380, 1.80742515};
const golden f3{0.50310009, 3.95380623, -0.22398367, 0.14125880, 0.17913942};

attention_case of(index_t tokens, const std::vector<index_t>& bounds, std::optional<golden> sums) {
  return {.tokens = tokens,
          .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4},
          .mask = any_mask(seqpar::within{documents{bounds}, causal{}}, "documents, causal"),
          .sums = sums};
}

}  // namespace

TEST_CASE("a ring keeps five packed documents apart [F1]") {
  const std::vector<index_t> bounds = pack({3, 4, 2, 5, 2});
  attention_case c = of(16, bounds, doc5);
  c.ranks = {1, 2, 4, 5, 8};
  check_everywhere(c);
}

TEST_CASE("a document over three ranks and one of one token are documents like any other [F2]") {
  const std::vector<index_t> bounds = pack({1, 7, 5, 3});
  attention_case c = of(16, bounds, doc4);
  c.ranks = {2, 4, 7};
  check_everywhere(c);
}

TEST_CASE("a document without queries has keys that nobody sees: their gradients are 0 [F3]") {
  const std::vector<index_t> queries{0, 3, 3, 6}, keys{0, 2, 4, 6};
  attention_case c{.tokens = 6,
                   .shape = {.heads = 1, .kv_heads = 1, .head_dim = 4},
                   .mask = any_mask(documents{queries, keys}, "documents"),
                   .sums = f3};
  c.ranks = {1, 2, 3, 6};
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const bool none = all_are(rows_of(got.dk, 4, 2, 2), 0) && all_are(rows_of(got.dv, 4, 2, 2), 0);
    return none ? std::string() : std::string("keys 2 and 3 have a gradient");
  });
}

TEST_CASE("random documents, empty ones among them, dealt whole or each for itself, give the definition [F1] [F2]") {
  std::uint64_t draw = 7;
  const auto next = [&](std::uint64_t n) {
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    return static_cast<index_t>((draw >> 33) % n);
  };
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<index_t> lengths;
    for (index_t d = next(6); d >= 0; --d) lengths.push_back(next(9));
    const std::vector<index_t> bounds = pack(lengths);
    attention_case c = of(bounds.back(), bounds, {});
    if (turn % 3 == 1) c.mask = any_mask(seqpar::within{documents{bounds}, window{.left = 2, .right = 1}}, "windows");
    if (turn % 3 == 2)
      c.mask = any_mask(seqpar::within{documents{bounds}, any_of{first_keys{1}, window{.left = 1, .right = 0}}},
                        "sink + window");
    c.ranks = {static_cast<int>(next(6) + 1)};
    c.deals = {every_deal[static_cast<std::size_t>(turn % 3)]};
    check_everywhere(c);
    // per_document and segments hold views, so they are made here
    const tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
    const int ranks = c.ranks.front();
    for (const mesh_shape& team : every_mesh(ranks)) {
      problem p = c.at(contiguously, ranks, team, turn % 2 ? schedule::direct : schedule::pass_along);
      p.q_layout = any_layout(per_document<zigzag>{bounds, {.tokens = 0, .ranks = ranks}}, "zigzag per document");
      p.kv_layout = turn % 4 == 0 ? p.kv_layout : p.q_layout;
      const std::string fault = fault_when_run<float>(p, in, definition<float>(p, in), see_nothing<float>);
      CHECK_MESSAGE(fault.empty(), name_of(p) << ": " << fault);
    }
  }
}

TEST_CASE("attention on rows that are put back in any order is the same attention [F4]") {
  const std::vector<run> runs{{1, 3, 2}, {0, 2, 4}, {15, 4, -1}, {2, 1, 1}, {6, 3, 1}, {9, 3, 1}};
  const std::vector<index_t> offsets{0, 2, 3, 3, 6};
  const any_layout odd(segments{runs, offsets}, "segments");
  attention_case c = of(16, pack({1, 7, 5, 3}), doc4);
  const std::vector<index_t> bounds = pack({1, 7, 5, 3});
  c.mask = any_mask(seqpar::within{documents{bounds}, causal{}}, "documents, causal");
  const tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  const dense_result want =
      definition<float>(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct), in);
  const std::vector<any_layout> layouts{odd, contiguously(16, 4), in_zigzag(16, 4), in_stripes(16, 4),
                                        backwards(16, 4)};
  for (const any_layout& queries : layouts)
    for (const any_layout& keys : layouts)
      for (const mesh_shape& team : every_mesh(4))
        for (const schedule s : every_schedule) {
          problem p = c.at(contiguously, 4, team, s);
          p.q_layout = queries;
          p.kv_layout = keys;
          const std::string fault = fault_when_run<float>(
              p, in, want, [](const problem&, const outcome<float>& got) { return sums_fault(got, doc4, 2e-5); });
          CHECK_MESSAGE(fault.empty(), name_of(p) << ": " << fault);
        }
}

}  // namespace seqpar::test
