// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who may see whom.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <utility>

#include <seqpar/layout/concept.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A mask says which key position a query position may attend to. It speaks of global positions only and never knows
/// how the sequence was dealt out. A mask is a cheaply copied value.
///
///   allows(q, k)              may query q see key k?
///
/// Optional:
///   key_intervals(q)          interval_pair: exactly the keys that q may see, unclipped (an open end is `unbounded`)
///   covers(q_span, k_span)    none | some | all over a rectangle of intervals; `some` is always legal
///   reach(q_span, f)          f(interval) whose union holds every key that some query of the span may see
///   bound(q_tokens, k_tokens) the same mask told both lengths (bottom-right causal needs them)
///   rebound(keep)             the same mask with every table it views replaced by keep(std::span<const index_t>)
///   problem()                 nullptr, or what is wrong with the value: a literal or a flaw
///   misfit(q, k)              what is wrong with the value for these padded_lengths, as std::string, or ""
///   tell_padding(q, k)        lowers q.real and k.real to the positions that are not padding
///
/// Laws (laws.hpp): k ∈ key_intervals(q) ⇔ allows(q, k);  covers = all ⇒ allows everywhere, none ⇒ nowhere;
/// allows(q, k) ∧ q ∈ span ⇒ k ∈ reach(span); for shipped masks reach is exact.
template <class M>
concept attention_mask = std::copyable<M> && requires(const M& mask, index_t q, index_t k) {
  { mask.allows(q, k) } -> std::convertible_to<bool>;
};

/// A mask that fits in two key intervals per query: one kernel serves them all.
template <class M>
concept interval_mask = attention_mask<M> && requires(const M& mask, index_t q) {
  { mask.key_intervals(q) } -> std::same_as<interval_pair>;
};

namespace detail {
struct ignore_interval {
  constexpr void operator()(interval) const {}
};
}  // namespace detail

template <class M>
concept has_covers = requires(const M& mask, interval span) {
  { mask.covers(span, span) } -> std::same_as<cover>;
};
template <class M>
concept has_reach = requires(const M& mask, interval span, detail::ignore_interval f) {
  mask.reach(span, f);
};

/// mask.covers, or derived from its intervals, or `some`.
template <attention_mask M>
constexpr cover covers(const M& mask, interval q, interval k) {
  if (q.empty() || k.empty()) return cover::none;
  if constexpr (has_covers<M>) {
    return mask.covers(q, k);
  } else if constexpr (interval_mask<M>) {
    bool any = false, all = true;
    for (index_t i = q.lo; i < q.hi && (all || !any); ++i) {
      const interval_pair said = mask.key_intervals(i), keys = make_intervals(said.first, said.second);
      const index_t seen = intersection(keys.first, k).size() + intersection(keys.second, k).size();
      any = any || seen > 0;
      all = all && seen == k.size();
    }
    return all ? cover::all : any ? cover::some : cover::none;
  } else {
    return cover::some;
  }
}

/// Calls f(interval) so that the union holds every key that a query of `q` may see, clipped to 0 ≤ k < k_tokens.
/// The mask's own reach, else the union of its intervals, else every key.
template <attention_mask M, class F>
constexpr void reach(const M& mask, interval q, index_t k_tokens, F&& f) {
  if (q.empty() || k_tokens <= 0) return;
  const auto clipped = [&](interval keys) {
    const interval inside = intersection(keys, {0, k_tokens});
    if (!inside.empty()) f(inside);
  };
  if constexpr (has_reach<M>) {
    mask.reach(q, clipped);
  } else if constexpr (interval_mask<M>) {
    for (index_t i = q.lo; i < q.hi; ++i) {
      const interval_pair keys = mask.key_intervals(i);
      clipped(keys.first);
      clipped(keys.second);
    }
  } else {
    clipped({0, k_tokens});
  }
}

/// The positions of a sequence: `real` ones, then padding, `all` of them together.
struct padded_length {
  index_t real, all;
};

/// mask.misfit(q, k) where it has it.
template <attention_mask M>
std::string misfit_of(const M& mask, padded_length q, padded_length k) {
  if constexpr (requires { mask.misfit(q, k); })
    return mask.misfit(q, k);
  else
    return {};
}

/// mask.bound(q_tokens, k_tokens) where it has it, else the mask itself.
template <attention_mask M>
constexpr auto bound(const M& mask, index_t q_tokens, index_t k_tokens) {
  if constexpr (requires { mask.bound(q_tokens, k_tokens); })
    return mask.bound(q_tokens, k_tokens);
  else
    return mask;
}

/// mask.rebound(keep) where it has it, else the mask itself.
template <attention_mask M, class Keep>
constexpr auto rebound(const M& mask, Keep&& keep) {
  if constexpr (requires { mask.rebound(keep); })
    return mask.rebound(keep);
  else
    return mask;
}

}  // namespace v0_1
}  // namespace seqpar
