// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who owns which token.
#pragma once

#include <concepts>
#include <utility>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A layout deals the tokens 0 … token_count()−1 to the ranks 0 … rank_count()−1. A rank here is an index in the
/// mesh's list of ranks. A layout is a regular, cheaply copied value and knows nothing of masks, bytes or transports.
///
///   token_count()            how many tokens there are
///   rank_count()             over how many ranks they are dealt
///   count_of(rank)           how many of them `rank` owns (0 is legal)
///   global_of(rank, local)   the global position of row `local` of `rank`
///   place_of(global)         the rank and row that hold position `global`
///
/// Optional:
///   for_each_run(rank, f)    f(run) for affine pieces that spell global_of(rank, 0), global_of(rank, 1), … in order
///   resized(tokens)          the same rule for another number of tokens; per_document and the inner of nested need it
///   problem()                nullptr, or what is wrong with the value (a negative size, say): a literal or a flaw
///   document_at(global)      the positions [lo, hi) of the document (the copy of a pair) that holds `global`: labels
///                            and rotary positions end and begin there
///   is_noisy(global)         the tokens are a clean and a noisy copy, one after the other; is this one of the second?
///
/// Laws (laws.hpp): Σ_r count_of(r) = token_count();  place_of(global_of(r, i)) = (r, i);
/// global_of(place_of(g)) = g;  the runs of r, end to end, are global_of(r, ·);  documents follow one another from 0 to
/// token_count().
template <class L>
concept sequence_layout = std::copyable<L> && std::equality_comparable<L> &&
    requires(const L& layout, int rank, index_t i) {
  { layout.token_count() } -> std::convertible_to<index_t>;
  { layout.rank_count() } -> std::convertible_to<int>;
  { layout.count_of(rank) } -> std::convertible_to<index_t>;
  { layout.global_of(rank, i) } -> std::convertible_to<index_t>;
  { layout.place_of(i) } -> std::same_as<place>;
};

namespace detail {
struct ignore_run {
  constexpr void operator()(run) const {}
};
}  // namespace detail

template <class L>
concept has_runs = requires(const L& layout, int rank, detail::ignore_run f) {
  layout.for_each_run(rank, f);
};

template <class L>
concept resizable_layout = sequence_layout<L> && requires(const L& layout, index_t tokens) {
  { layout.resized(tokens) } -> std::same_as<L>;
};

template <class L>
concept has_documents = requires(const L& layout, index_t global) {
  { layout.document_at(global) } -> std::same_as<interval>;
};

template <class L>
concept has_copies = requires(const L& layout, index_t global) {
  { layout.is_noisy(global) } -> std::convertible_to<bool>;
};

/// The document that holds a position: the layout's own, else all tokens are one.
template <sequence_layout L>
constexpr interval document_at(const L& layout, index_t global) {
  if constexpr (has_documents<L>)
    return layout.document_at(global);
  else
    return {0, layout.token_count()};
}

/// The position in time, which rotary embeddings use: that inside its document, the same for both copies of a token.
template <sequence_layout L>
constexpr index_t time_of(const L& layout, index_t global) {
  return global - document_at(layout, global).lo;
}

/// Calls f(run) for affine pieces that spell global_of(rank, ·) in order: the layout's own, else derived row by row.
template <sequence_layout L, class F>
constexpr void for_each_run(const L& layout, int rank, F&& f) {
  if constexpr (has_runs<L>) {
    layout.for_each_run(rank, std::forward<F>(f));
  } else {
    const index_t count = layout.count_of(rank);
    run r{0, 0, 1};
    for (index_t i = 0; i < count; ++i) {
      const index_t g = layout.global_of(rank, i);
      if (r.count == 1 && g != r.first) r.step = g - r.first;
      if (r.count > 0 && g == r.at(r.count)) {
        ++r.count;
      } else {
        if (r.count > 0) f(r);
        r = {g, 1, 1};
      }
    }
    if (r.count > 0) f(r);
  }
}

/// What is wrong with a layout or mask, or nullptr.
template <class P>
constexpr flaw problem_of(const P& policy) {
  if constexpr (requires {
                  { policy.problem() } -> std::convertible_to<const char*>;
                })
    return policy.problem();
  else
    return nullptr;
}

}  // namespace v0_1
}  // namespace seqpar
