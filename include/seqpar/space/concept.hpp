// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a run asks of a memory.
#pragma once

#include <concepts>
#include <span>

#include <seqpar/space/host.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The operations of one run, on the memory that its exec stands for; `space_of(exec)` makes it. They take effect in
/// the order of the calls, and behind them come the kernels given the same exec; when, is the space's own affair (on
/// the host: before they return). Nothing here waits but finish(), and nothing allocates.
///
///   copy(to, from)                to[k] = from[k], bytes in the order of each block (copy.hpp)
///   zero(at)                      at[k] = 0
///   fill(at, value)               at[i] = value, elements of value's type
///   store<To, From>(to, from, w)  to[i] = from[i], or to[i] += from[i]; elements, blocks of the same shape, one
///                                 rounding
///   row_dots(x, y, minus, to)     to[b, h, t] = Σ_d x[b, t, h, d]·y[b, t, h, d] − minus[b, h, t], in fp32; minus may
///                                 be null
///   merge(to, from)               states of rows: to ← what has been seen by either. With M = max(to.max, from.max):
///                                 acc ← e^(max−M)·acc + e^(from.max−M)·from.acc, sum alike, max ← M; −∞ saw nothing
///   upload(to, from, bytes)       from host memory that may be reused at once; for prepare
///   outcome()                     ok, or the first of these calls that failed
///   finish()                      waits until all is done; for prepare
///   problem_of(p)                 optional: nullptr, or why this memory is not for this space
///
/// For decode, unless on the host: merge takes results, too, whose sums are null: max is the lse, and the average goes
/// to to.acc; and
///
///   put(to, words)                word words[i].at of `to` = words[i].value; `words` may be reused at once
template <class S>
concept space = requires(const S& s, const block& b, const rows_view<const float>& x, const heads_view<const float>& y,
                         const heads_view<float>& z, const state_rows& states, void* to, const void* from, index_t n) {
  s.copy(b, b);
  s.zero(b);
  s.fill(b, n);
  s.template store<float, float>(b, b, write::assign);
  s.row_dots(x, x, y, z);
  s.merge(states, states);
  s.upload(to, from, n);
  { s.outcome() } -> std::same_as<status>;
  { s.finish() } -> std::same_as<status>;
};

template <class S>
concept decoding_space = space<S> && requires(const S& s, void* to, std::span<const placed_word> words) {
  s.put(to, words);
};

namespace detail {
template <space S>
const char* problem_of_memory(const S& work, const void* p) {
  if constexpr (requires { work.problem_of(p); })
    return work.problem_of(p);
  else
    return nullptr;
}
}  // namespace detail

/// What the caller of a run names: `on_host{}`, or streams.
template <class E>
concept executor = std::copyable<E> && requires(const E& exec) {
  { space_of(exec) } -> space;
};

static_assert(executor<on_host>);

}  // namespace v0_1
}  // namespace seqpar
