// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask of one's own: the first `count` tokens are a condition that sees itself only; all others see everything.
#include <cstdio>

#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/explain.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/window.hpp>

// [snippet]
struct condition_prefix {
  seqpar::extent count;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(seqpar::index_t q, seqpar::index_t k) const { return q >= count || k < count; }
  SEQPAR_HD constexpr seqpar::interval_pair key_intervals(seqpar::index_t q) const {
    return seqpar::make_intervals({0, q >= count ? seqpar::unbounded : seqpar::index_t{count}});
  }
};
static_assert(seqpar::explain_mask<condition_prefix>());

/// nullptr, or the law that is broken: by the mask alone, then inside a combination.
const char* broken_law() {
  const condition_prefix mask{.count = 4};
  for (seqpar::index_t tokens = 0; tokens <= 12; ++tokens) {
    if (const char* law = seqpar::broken_mask_law(mask, tokens, tokens, seqpar::reach_law::exact)) return law;
    const seqpar::all_of near_by{mask, seqpar::window{.left = 2, .right = 2}};
    if (const char* law = seqpar::broken_mask_law(near_by, tokens, tokens, seqpar::reach_law::exact)) return law;
  }
  return nullptr;
}
// [/snippet]

int main() {
  const char* law = broken_law();
  std::printf("condition_prefix: %s\n", law ? law : "obeys the laws of masks");
  return law ? 1 : 0;
}
