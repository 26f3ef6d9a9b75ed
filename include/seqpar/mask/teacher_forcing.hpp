// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Teacher forcing over a clean and a noisy copy of the same tokens.
#pragma once

#include <string>

#include <seqpar/error.hpp>
#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Positions [0, m) are clean, [m, 2m) noisy copies of the same tokens, m = clean; blocks of `block` tokens, the last
/// may be short. With i, j the positions inside a copy and b(i) = i div block:
///
///   clean i sees clean j   b(j) ≤ b(i)        noisy i sees clean j   b(j) < b(i)   (strict: never its own answer)
///   clean i sees noisy j   never              noisy i sees noisy j   b(j) = b(i)
///
/// Positions from 2m on see nothing and are seen by nobody: a plan refuses them, unless they are said to be padding, as
/// in all_of{teacher_forcing, valid{.queries = 2m, .keys = 2m}}, or another part of an any_of speaks of them. Padding
/// that ends each copy belongs to m: real tokens see none of it where it fills whole blocks. Source: LongLive-2.0.
struct teacher_forcing {
  extent clean, block;

  static constexpr int max_intervals = 2;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const {
    const index_t m = clean;
    if (q >= 2 * m || k >= 2 * m) return false;
    const index_t q_block = (q < m ? q : q - m) / block, k_block = (k < m ? k : k - m) / block;
    if (k < m) return q < m ? k_block <= q_block : k_block < q_block;
    return q >= m && k_block == q_block;
  }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const {
    const index_t m = clean;
    if (q < m) return make_intervals({0, end_of(q)});
    if (q >= 2 * m) return {};
    return make_intervals({0, start_of(q - m)}, {m + start_of(q - m), m + end_of(q - m)});
  }
  constexpr cover covers(interval q, interval k) const {
    const index_t m = clean;
    const interval cq = intersection(q, {0, m}), ck = intersection(k, {0, m});
    const interval nq = inside(intersection(q, {m, 2 * m})), nk = inside(intersection(k, {m, 2 * m}));
    const bool beyond = q.hi > 2 * m || k.hi > 2 * m;
    bool any = false, all = !beyond && (cq.empty() || nk.empty());
    const auto part = [&](interval queries, interval keys, bool some_allowed, bool all_allowed) {
      if (queries.empty() || keys.empty()) return;
      any = any || some_allowed;
      all = all && all_allowed;
    };
    part(cq, ck, ck.lo < end_of(cq.hi - 1), ck.hi <= end_of(cq.lo));
    part(nq, ck, ck.lo < start_of(nq.hi - 1), ck.hi <= start_of(nq.lo));
    part(nq, nk, nk.lo < end_of(nq.hi - 1) && start_of(nq.lo) < nk.hi,
         start_of(nq.hi - 1) <= nk.lo && nk.hi <= end_of(nq.lo));
    return all ? cover::all : any ? cover::some : cover::none;
  }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    const index_t m = clean;
    const interval cq = intersection(q, {0, m}), nq = inside(intersection(q, {m, 2 * m}));
    const index_t seen = detail::greater(cq.empty() ? 0 : end_of(cq.hi - 1), nq.empty() ? 0 : start_of(nq.hi - 1));
    const interval noisy = nq.empty() ? interval{} : interval{m + start_of(nq.lo), m + end_of(nq.hi - 1)};
    const interval_pair keys = make_intervals({0, seen}, noisy);
    if (!keys.first.empty()) f(keys.first);
    if (!keys.second.empty()) f(keys.second);
  }
  constexpr flaw problem() const {
    if (clean < 0 || clean > unbounded / 2) return {"teacher_forcing: clean counts tokens; give 0 or more", clean};
    if (block < 1) return {"teacher_forcing: block counts tokens; give 1 or more", block};
    return {};
  }
  /// 2m positions: not fewer than the real ones, and all of the keys are there.
  std::string misfit(padded_length q, padded_length k) const {
    const index_t n = 2 * clean;
    if (q.real <= n && k.real <= n && n <= k.all) return {};
    return detail::sentence(
        {"teacher_forcing: clean is ", clean, ", the sequence has ", q.real <= n ? k.all : q.all,
         " positions; give half of them, or say with all_of{teacher_forcing, valid} which are padding"});
  }
  friend constexpr bool operator==(teacher_forcing, teacher_forcing) = default;

 private:
  /// First token of i's block, and the first one after it.
  SEQPAR_HD constexpr index_t start_of(index_t i) const { return i / block * block; }
  SEQPAR_HD constexpr index_t end_of(index_t i) const {
    const index_t start = start_of(i), left = clean - start;
    return start + detail::lesser(block, left);
  }
  /// Positions in the noisy copy, counted from its start.
  SEQPAR_HD constexpr interval inside(interval noisy) const {
    return noisy.empty() ? interval{} : interval{noisy.lo - clean, noisy.hi - clean};
  }
};

}  // namespace v0_1
}  // namespace seqpar
