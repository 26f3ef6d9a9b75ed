// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The laws of masks, tried by brute force on one pair of lengths.
#pragma once

#include <cstddef>
#include <vector>

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/intervals.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What reach must be: masks may send more than is needed, shipped ones do not.
enum class reach_law { superset, exact };

namespace mask_law {
inline constexpr char intervals[] = "key_intervals: k in key_intervals(q) if and only if allows(q, k)";
inline constexpr char normal[] = "key_intervals: ascending, apart, empty ones last, no more than max_intervals";
inline constexpr char try_intervals[] = "try_key_intervals: where it answers, exactly what q is allowed";
inline constexpr char band[] = "band: exactly what q is allowed, and neither end descends";
inline constexpr char none[] = "covers: none means that nothing is allowed";
inline constexpr char all[] = "covers: all means that everything is allowed";
inline constexpr char reach[] = "reach: every key that a query of the span may see";
inline constexpr char exact_reach[] = "reach: no key that no query of the span may see";
inline constexpr char pure[] = "allows: the same answer every time";
}  // namespace mask_law

namespace detail {
/// Where the pair (q, k) lies in a dense row-major q × k table; 64-bit, so good far beyond 46340 tokens.
SEQPAR_HD constexpr index_t dense_index(index_t q, index_t k, index_t k_tokens) {
  return q * k_tokens + k;
}

/// Which pairs a mask allows, with sums over rectangles.
class allowed_table {
 public:
  template <class M>
  allowed_table(const M& mask, index_t q_tokens, index_t k_tokens)
      : width_(k_tokens + 1), sums_(static_cast<std::size_t>((q_tokens + 1) * width_), 0) {
    for (index_t q = 0; q < q_tokens; ++q)
      for (index_t k = 0; k < k_tokens; ++k)
        at(q + 1, k + 1) = at(q, k + 1) + at(q + 1, k) - at(q, k) + (mask.allows(q, k) ? 1 : 0);
  }
  index_t pairs(interval q, interval k) const {
    return at(q.hi, k.hi) - at(q.lo, k.hi) - at(q.hi, k.lo) + at(q.lo, k.lo);
  }
  bool allows(index_t q, index_t k) const { return pairs({q, q + 1}, {k, k + 1}) == 1; }

 private:
  index_t& at(index_t q, index_t k) { return sums_[static_cast<std::size_t>(dense_index(q, k, width_))]; }
  index_t at(index_t q, index_t k) const { return sums_[static_cast<std::size_t>(dense_index(q, k, width_))]; }
  index_t width_;
  std::vector<index_t> sums_;
};

constexpr bool in_normal_form(interval_pair keys, int max_intervals) {
  const interval a = keys.first, b = keys.second;
  if (a.empty()) return b.empty();
  return b.empty() || (max_intervals > 1 && a.hi < b.lo);
}
}  // namespace detail

/// nullptr, or the first law that `mask`, bound to these lengths, breaks. Tries every query, every span of queries and
/// every rectangle: about (q_tokens · k_tokens)² / 4 steps, so for small lengths.
template <attention_mask M>
const char* broken_mask_law(const M& unbound_mask, index_t q_tokens, index_t k_tokens,
                            reach_law demanded = reach_law::superset) {
  const auto mask = seqpar::bound(unbound_mask, q_tokens, k_tokens);
  using bound_mask = decltype(seqpar::bound(unbound_mask, q_tokens, k_tokens));
  const detail::allowed_table allowed(mask, q_tokens, k_tokens);
  const auto exactly = [&](index_t q, auto keys) {
    for (index_t k = 0; k < k_tokens; ++k)
      if (keys.contains(k) != allowed.allows(q, k)) return false;
    return true;
  };
  interval last{0, 0};
  for (index_t q = 0; q < q_tokens; ++q) {
    for (index_t k = 0; k < k_tokens; ++k)
      if (bool{mask.allows(q, k)} != allowed.allows(q, k)) return mask_law::pure;
    if constexpr (interval_mask<bound_mask>) {
      const interval_pair keys = mask.key_intervals(q);
      if (!exactly(q, keys)) return mask_law::intervals;
      if (!detail::in_normal_form(keys, max_intervals_of<bound_mask>)) return mask_law::normal;
    }
    const auto tried = seqpar::try_key_intervals(mask, q);
    if (tried && !exactly(q, *tried)) return mask_law::try_intervals;
    if constexpr (detail::banded<bound_mask>) {
      const interval keys = mask.band(q);
      if (!exactly(q, keys) || (q > 0 && (keys.lo < last.lo || keys.hi < last.hi))) return mask_law::band;
      last = keys;
    }
  }
  for (index_t a = 0; a < q_tokens; ++a) {
    for (index_t b = a + 1; b <= q_tokens; ++b) {
      const interval q{a, b};
      std::vector<char> reached(static_cast<std::size_t>(k_tokens), 0);
      seqpar::reach(mask, q, k_tokens, [&](interval keys) {
        for (index_t k = keys.lo; k < keys.hi; ++k) reached[static_cast<std::size_t>(k)] = 1;
      });
      for (index_t k = 0; k < k_tokens; ++k) {
        const bool wanted = allowed.pairs(q, {k, k + 1}) > 0, sent = reached[static_cast<std::size_t>(k)] != 0;
        if (wanted && !sent) return mask_law::reach;
        if (sent && !wanted && demanded == reach_law::exact) return mask_law::exact_reach;
      }
      for (index_t c = 0; c < k_tokens; ++c) {
        for (index_t d = c + 1; d <= k_tokens; ++d) {
          const interval k{c, d};
          const cover told = seqpar::covers(mask, q, k);
          if (told == cover::none && allowed.pairs(q, k) != 0) return mask_law::none;
          if (told == cover::all && allowed.pairs(q, k) != q.size() * k.size()) return mask_law::all;
        }
      }
    }
  }
  return nullptr;
}

}  // namespace v0_1
}  // namespace seqpar
