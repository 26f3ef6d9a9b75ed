// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks compare global positions: unequal lengths, windows over ranks, strided keys, distances.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

const golden br2x5{-0.15382083, 3.14254068, -0.10144565, 0.09338336, 0.53070757};
const golden tl2x5{0.48555498, 0.62722825, -0.08721608, 0.01300416, 0.67028844};
const golden br5x2{0.57381068, 0.71638197, -0.00067447, -0.03401640, -0.60145855};
const golden br4x12{0.35548807, 19.13545924, -0.20401187, 0.12644974, 1.15614952};
const golden win4{1.08122430, 29.60036575, -0.46056108, -0.21328226, 2.49516723};
const golden s12c{1.78552503, 41.36515605, -0.40468423, 0.00735589, 1.78979251};

attention_case of(index_t queries, index_t keys, index_t heads, any_mask mask, std::optional<golden> sums) {
  return {.tokens = queries,
          .shape = {.heads = heads, .kv_heads = heads, .head_dim = 4},
          .mask = std::move(mask),
          .sums = sums,
          .kv_tokens = keys,
          .ranks = {1, 2, 3, 4}};
}

/// Any mask as a bare functor: no intervals, no reach.
template <class M>
struct bare {
  M mask;
  bool allows(index_t q, index_t k) const { return mask.allows(q, k); }
};

/// Every second key up to the diagonal, and key 0: more intervals than two.
struct every_second {
  bool allows(index_t q, index_t k) const { return k <= q && (k == 0 || (q - k) % 2 == 0); }
};

}  // namespace

TEST_CASE("causal ends at the last key when lengths differ, begins at the first by option, on any ranks [I1]") {
  check_everywhere(of(2, 5, 1, see_past, br2x5));
  check_everywhere(of(2, 5, 1, any_mask(causal{alignment::top_left}, "causal, top left"), tl2x5));
  check_everywhere(of(5, 2, 1, see_past, br5x2), [](const problem&, const outcome<float>& got) {
    for (std::size_t row = 0; row < 3; ++row)
      if (!std::isinf(got.lse[row]) || got.lse[row] > 0) return std::string("rows 0 to 2 are not empty");
    return all_are(rows_of(got.out, 4, 0, 3), 0) ? std::string() : std::string("rows 0 to 2 are not 0");
  });
  check_everywhere(of(4, 12, 2, see_past, br4x12));
}

TEST_CASE("causal is right for all pairs of lengths up to 9, queries and keys dealt in different ways [I1]") {
  int turn = 0;
  for (index_t queries = 0; queries <= 9; ++queries)
    for (index_t keys = 0; keys <= 9; ++keys) {
      attention_case c =
          of(queries, keys, 1,
             (queries + keys) % 2 ? see_past : any_mask(causal{alignment::top_left}, "causal, top left"), {});
      c.deals = {every_deal[static_cast<std::size_t>(++turn % 3)]};
      c.kv_deal = every_deal[static_cast<std::size_t>(turn / 3 % 3)];
      c.ranks = {turn % 4 + 1};
      check_everywhere(c);
    }
}

TEST_CASE("a window of four keys is the same over one rank and over ranks of three tokens [I2]") {
  const attention_case c = of(12, 12, 2, any_mask(window{.left = 3, .right = 0}, "win4"), win4);
  check_everywhere(c);
}

TEST_CASE("every window over every number of ranks gives the definition and moves just its keys [I2]") {
  for (index_t left = 0; left <= 6; ++left)
    for (index_t right = 0; right <= 3; ++right) {
      attention_case c = of(13, 13, 1, any_mask(window{.left = left, .right = right}, "window"), {});
      c.ranks = {static_cast<int>((left + right) % 5 + 2)};
      check_everywhere(c);
    }
}

TEST_CASE("no communicator takes another mask for causal: each kind is computed as itself [I3]") {
  const std::vector<index_t> bounds = pack({5, 1, 6});
  const std::vector<any_mask> masks{any_mask(window{.left = 3, .right = 0}, "window"),
                                    any_mask(seqpar::within{documents{bounds}, causal{}}, "documents"),
                                    any_mask(valid{.keys = 7}, "padding"),
                                    any_mask(every_second{}, "every second"),
                                    any_mask(bare<window>{{.left = 3, .right = 0}}, "window as a functor"),
                                    any_mask(first_keys{4}, "first keys"),
                                    any_mask(prefix_lm{5}, "prefix"),
                                    any_mask(block_causal{5}, "blocks"),
                                    any_mask(teacher_forcing{.clean = 6, .block = 2}, "teacher forcing"),
                                    any_mask(any_of{first_keys{2}, window{.left = 2, .right = 0}}, "sink + window"),
                                    any_mask(all_of{causal{}, valid{.queries = 9, .keys = 5}}, "padded causal"),
                                    see_all};
  for (const any_mask& mask : masks) {
    attention_case c = of(12, 12, 2, mask, {});
    c.ranks = {1, 3, 4};
    check_everywhere(c, [](const problem&, const outcome<float>& got) {
      return sums_fault(got, s12c, 2e-5).empty() ? std::string("computed as plain causal") : std::string();
    });
  }
  attention_case c = of(12, 12, 2, any_mask(bare<causal>{}, "causal as a functor"), s12c);
  check_everywhere(c);
}

TEST_CASE("causal holds when keys are strided over ranks: position 6 sees 2, 2, 2 and 1 of them [I4]") {
  attention_case c = of(4, 10, 2, see_past, {});
  c.kv_deal = in_stripes;
  c.ranks = {4};
  const any_layout keys = in_stripes(10, 4);
  std::vector<index_t> used(4);
  for (index_t k = 0; k <= 6; ++k) ++used[static_cast<std::size_t>(keys.place_of(k).rank)];
  CHECK(used == std::vector<index_t>{2, 2, 2, 1});
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    const bool right =
        std::abs(wsum(got.out) - 0.22156939) < 2e-5 && std::abs(sum_of_finite(got.lse) - 17.29889426) < 2e-5;
    return right ? std::string() : "the published sums do not come out: " + std::to_string(wsum(got.out));
  });
}

TEST_CASE("a bias by distance goes in as two more columns made from global positions; there is no bias option [I5]") {
  // −m·(i − j) = scale·(q₄·k₄ + q₅·k₅) with q₄ = m/scale, k₄ = j, q₅ = −m·i/scale, k₅ = 1
  attention_case c = of(12, 12, 2, see_past, {});
  const tensors plain = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  tensors in = plain;
  in.q.clear();
  in.k.clear();
  const float slope[] = {0.5f, 0.25f};
  for (std::size_t i = 0; i < 12; ++i)
    for (std::size_t h = 0; h < 2; ++h) {
      const auto at = static_cast<std::ptrdiff_t>(i * 8 + h * 4);
      in.q.insert(in.q.end(), plain.q.begin() + at, plain.q.begin() + at + 4);
      in.k.insert(in.k.end(), plain.k.begin() + at, plain.k.begin() + at + 4);
      in.q.insert(in.q.end(), {slope[h] * 2, -slope[h] * 2 * static_cast<float>(i)});
      in.k.insert(in.k.end(), {static_cast<float>(i), 1.f});
    }
  c.shape.head_dim = 6;
  c.shape.value_dim = 4;
  c.options.scale = 0.5f;
  c.inputs = in;
  c.ranks = {1, 4};
  const auto first_four = [](const std::vector<float>& x) {
    std::vector<float> y;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % 6 < 4) y.push_back(x[i]);
    return y;
  };
  check_everywhere(c, [&](const problem&, outcome<float> got) {
    got.dq = first_four(got.dq);
    got.dk = first_four(got.dk);
    return sums_fault(got, {1.19475878, 24.09444847, -0.42561982, -0.03611608, 1.85589238}, 2e-5);
  });
}

}  // namespace seqpar::test
