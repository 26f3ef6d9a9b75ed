// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention on meshes whose ranks and shares are placed by hand: for every engine the results of threads on the host.
#pragma once

#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <tests/support/attention_apart.hpp>

namespace seqpar::test {

/// Zigzag over the ring inside of a mesh of all-to-all `inside` and ring 2 [O2], and a mesh of ranks 0, 2, 1, 3 [O4].
inline std::vector<problem> placed_meshes(int ranks) {
  std::vector<problem> all;
  const auto add = [&](const auto& layout, index_t inside) -> problem& {
    return all.emplace_back(problem{.q_layout = any_layout(layout, "by hand"),
                                    .kv_layout = any_layout(layout, "by hand"),
                                    .mask = any_mask(causal{}),
                                    .shape = {.heads = 4, .kv_heads = 2, .head_dim = 8},
                                    .team = {.ring = 2, .all_to_all = inside}});
  };
  for (index_t inside : {2, 4})
    if (2 * inside <= ranks)
      add(nested<zigzag, contiguous>{{.tokens = 16, .ranks = 2}, {.tokens = 0, .ranks = inside}}, inside);
  if (ranks >= 4) add(zigzag{.tokens = 16, .ranks = 4}, 2).ranks = {0, 2, 1, 3};
  return all;
}

}  // namespace seqpar::test
