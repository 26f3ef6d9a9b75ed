// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The uneven rule: how many tokens a piece gets when they do not divide.
#pragma once

#include <cstdint>
#include <limits>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Who gets what when n units do not divide by p pieces (11 by 4 in brackets).
enum class uneven : std::uint8_t {
  first_get_more,   ///< the first n mod p pieces get one more [3,3,3,2]
  last_takes_rest,  ///< ⌊n/p⌋ each, the last piece takes the rest [2,2,2,5]
  ceil_each         ///< ⌈n/p⌉ each until none are left [3,3,3,2]; later pieces may be empty
};

/// n tokens cut into `count` consecutive pieces. Granules (a frame, a block) are never cut apart; the last granule may
/// be partial. Requires tokens ≥ 0, count ≥ 1, granule ≥ 1.
struct pieces {
  index_t tokens;
  index_t count;
  index_t granule = 1;
  uneven rule = uneven::first_get_more;

  /// How many granules there are, the partial one included.
  SEQPAR_HD constexpr index_t units() const { return tokens / granule + (tokens % granule != 0 ? 1 : 0); }

  /// Where piece i begins; begin_of(count) = tokens.
  SEQPAR_HD constexpr index_t begin_of(index_t i) const {
    const index_t n = units(), each = n / count, more = n % count;
    index_t unit = n;
    if (i < count) {
      if (rule == uneven::first_get_more) unit = i * each + (i < more ? i : more);
      if (rule == uneven::last_takes_rest) unit = i * each;
      if (rule == uneven::ceil_each) unit = i * (each + (more != 0 ? 1 : 0));
    }
    return unit < n ? unit * granule : tokens;
  }
  SEQPAR_HD constexpr index_t size_of(index_t i) const { return begin_of(i + 1) - begin_of(i); }

  /// Which piece holds token t, 0 ≤ t < tokens.
  SEQPAR_HD constexpr index_t piece_of(index_t t) const {
    const index_t unit = t / granule, n = units(), each = n / count, more = n % count;
    if (rule == uneven::ceil_each) return unit / (each + (more != 0 ? 1 : 0));
    if (rule == uneven::last_takes_rest) return each == 0 || unit / each >= count ? count - 1 : unit / each;
    const index_t large = more * (each + 1);  // units in the pieces that got one more
    return unit < large ? unit / (each + 1) : more + (unit - large) / each;
  }
  friend constexpr bool operator==(const pieces&, const pieces&) = default;
};

namespace detail {
/// What is wrong with the sizes that every layout has, or nullptr.
constexpr flaw problem_of_sizes(index_t tokens, index_t ranks, index_t granule = 1) {
  if (tokens < 0) return {"tokens is negative; give 0 or more", tokens};
  if (tokens > unbounded) return {"more than 2^62 tokens; give fewer", tokens};
  if (ranks < 1) return {"ranks is below 1; give at least one rank", ranks};
  if (ranks > (std::numeric_limits<int>::max)()) return {"more ranks than an int holds; give fewer", ranks};
  if (granule < 1) return {"granule is below 1; give 1 or more", granule};
  return nullptr;
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
