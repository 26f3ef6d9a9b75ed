// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask of the caller's own may give its two intervals in any order, and overlapping: only their union counts.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/window.hpp>

using namespace seqpar;

namespace {

/// The last three keys, and the first two.
struct sinks {
  constexpr bool allows(index_t q, index_t k) const { return k < 2 || (k <= q && k > q - 3); }
  static constexpr interval recent(index_t q) { return {q < 2 ? 0 : q - 2, q + 1}; }
};
/// The window first, then the sinks; near the start they overlap.
struct window_first : sinks {
  constexpr interval_pair key_intervals(index_t q) const { return {recent(q), {0, 2}}; }
};
/// In order, but overlapping near the start.
struct sinks_first : sinks {
  constexpr interval_pair key_intervals(index_t q) const { return {{0, 2}, recent(q)}; }
};
/// The same keys twice.
struct twice : sinks {
  constexpr bool allows(index_t q, index_t k) const { return recent(q).contains(k); }
  constexpr interval_pair key_intervals(index_t q) const { return {recent(q), recent(q)}; }
};
/// An empty interval stands first, away from the origin.
struct empty_first : sinks {
  constexpr bool allows(index_t q, index_t k) const { return recent(q).contains(k); }
  constexpr interval_pair key_intervals(index_t q) const { return {{9, 4}, recent(q)}; }
};

/// Do covers, reach and try_key_intervals tell the truth about `allows`, on every rectangle? The normal form of what
/// the mask itself gives is not demanded.
template <class M>
std::string fault_of(const M& unbound_mask, index_t n, bool exact) {
  const auto mask = seqpar::bound(unbound_mask, n, n);
  for (index_t q = 0; q < n; ++q) {
    const auto keys = seqpar::try_key_intervals(mask, q);
    for (index_t k = 0; keys && k < n; ++k)
      if (keys->contains(k) != mask.allows(q, k)) return "intervals of query " + std::to_string(q);
    for (index_t up_to = q + 1; up_to <= n; ++up_to) {
      const interval span{q, up_to};
      std::vector<char> reached(static_cast<std::size_t>(n));
      reach(mask, span, n, [&](interval x) {
        for (index_t k = x.lo; k < x.hi; ++k) reached[static_cast<std::size_t>(k)] = 1;
      });
      for (index_t lo = 0; lo < n; ++lo)
        for (index_t hi = lo + 1; hi <= n; ++hi) {
          bool any = false, all = true;
          for (index_t i = q; i < up_to; ++i)
            for (index_t k = lo; k < hi; ++k) {
              any = any || mask.allows(i, k);
              all = all && mask.allows(i, k);
            }
          const cover told = covers(mask, span, {lo, hi});
          const std::string where =
              std::to_string(q) + ".." + std::to_string(up_to) + " x " + std::to_string(lo) + ".." + std::to_string(hi);
          if ((told == cover::all && !all) || (told == cover::none && any)) return "covers of " + where;
          if (exact && told != (all ? cover::all : any ? cover::some : cover::none)) return "exact covers of " + where;
          if (any && hi == lo + 1 && !reached[static_cast<std::size_t>(lo)]) return "reach of " + where;
        }
    }
  }
  return "";
}
template <class M>
void check_everywhere(const M& mask) {
  static const std::vector<index_t> bounds = pack({5, 0, 4, 3}), whole = pack({12});
  const index_t n = 12;
  CHECK(fault_of(mask, n, true) == "");
  CHECK(fault_of(all_of{mask, causal{}}, n, false) == "");
  CHECK(fault_of(all_of{causal{}, mask}, n, false) == "");
  CHECK(fault_of(all_of{mask, mask}, n, false) == "");
  CHECK(fault_of(any_of{mask, first_keys{4}}, n, false) == "");
  CHECK(fault_of(any_of{window{.left = 5, .right = 0}, mask}, n, false) == "");
  CHECK(fault_of(seqpar::within{documents{bounds}, mask}, n, false) == "");
  CHECK(fault_of(seqpar::within{documents{whole}, mask}, n, false) == "");
  CHECK(fault_of(all_of{seqpar::within{documents{bounds}, mask}, any_of{mask, causal{}}}, n, false) == "");
}

}  // namespace

TEST_CASE("intervals in descending order are taken as their union, alone and in every combination") {
  check_everywhere(window_first{});
}
TEST_CASE("overlapping intervals are taken as their union: no key counts twice") {
  check_everywhere(sinks_first{});
  check_everywhere(twice{});
}
TEST_CASE("an empty interval may stand first") {
  check_everywhere(empty_first{});
}
