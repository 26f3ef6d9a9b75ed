// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks of the caller's own whose intervals come unordered or overlapping.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

/// The last three keys, and the first two.
struct sinks {
  constexpr bool allows(index_t q, index_t k) const { return k < 2 || (k <= q && k > q - 3); }
  static constexpr interval recent(index_t q) { return {q < 2 ? 0 : q - 2, q + 1}; }
};
struct window_first : sinks {
  constexpr interval_pair key_intervals(index_t q) const { return {recent(q), {0, 2}}; }
};
struct sinks_first : sinks {
  constexpr interval_pair key_intervals(index_t q) const { return {{0, 2}, recent(q)}; }
};

void check_mask(const any_mask& mask) {
  attention_case c{.tokens = 40, .shape = {.heads = 2, .kv_heads = 1, .head_dim = 4}, .mask = mask};
  c.ranks = {1, 2, 4};
  c.deals = {contiguously, in_zigzag};
  check_everywhere(c);
}

}  // namespace

TEST_CASE("a mask may give its intervals unordered or overlapping: alone, cut, joined and within documents") {
  static const std::vector<index_t> bounds = pack({15, 0, 25});
  check_mask(any_mask(window_first{}, "window, sinks"));
  check_mask(any_mask(sinks_first{}, "sinks, window"));
  check_mask(any_mask(all_of{window_first{}, causal{}}, "window, sinks, causal"));
  check_mask(any_mask(all_of{causal{}, sinks_first{}}, "causal, sinks, window"));
  check_mask(any_mask(any_of{window_first{}, first_keys{4}}, "window, sinks or four"));
  check_mask(any_mask(seqpar::within{documents{bounds}, window_first{}}, "window, sinks within documents"));
}

}  // namespace seqpar::test
