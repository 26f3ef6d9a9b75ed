// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The walk over rounds in which queries visit the keys of another member.
#pragma once

#include <seqpar/attention/pass.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Posts the query tables of the visitors of one round: of rows that lie here as they do in part 0.
template <class Pass, class Group, class T>
void post_sight(const Pass& pass, Group& group, const ring_round& round, const visitors<T>& to) {
  const query_table& own = pass.tables().queries[0];
  const auto post = [&](std::span<const std::int32_t> from, std::size_t i) {
    const auto array = [](const std::int32_t* p) {
      return row_array{const_cast<std::int32_t*>(p), 1, 0, sizeof(std::int32_t), 0, sizeof(std::int32_t)};
    };
    post_copy(group, pass.ring, round.once, array(from.data()), array(to.sight[i]));
  };
  if (!pass.s.intervals) return post(own.position, 0);
  post(own.lo0, 0);
  post(own.hi0, 1);
  post(own.lo1, 2);
  post(own.hi1, 3);
}

/// Queries come, are worked on, and something goes back of them. Those of the next round are under way while this
/// round's are worked on; what goes back is under way while the next round's are.
///
///   come(group, i)      posts the queries of round i (from 0)
///   work(i) → status    i = −1: this member's own queries, before those of round 0; called for rounds with visitors
///   go(group, i)        posts what goes back of round i
///   meet(way)           takes in what came back of this member's queries: in round order, once a round
template <class Pass, class Come, class Work, class Go, class Meet>
status run_visits(const Pass& pass, const char* goes_back, Come&& come, Work&& work, Go&& go, Meet&& meet) {
  const auto& rounds = pass.s.visits.rounds;
  const auto at = [&](std::ptrdiff_t i) -> const ring_round& { return rounds[static_cast<std::size_t>(i)]; };
  const auto start = [&](std::ptrdiff_t i) -> status {
    if (i == std::ssize(rounds) || at(i).idle()) return {};
    return pass.launch(Pass::keys_group, {"queries", i + 1}, [&](auto& g) { come(g, i); });
  };
  const auto take_in = [&](std::ptrdiff_t i) -> status {
    if (i < 0 || at(i).idle()) return {};
    if (status st = pass.wait(Pass::gradients_group); !st.ok()) return st;
    meet(at(i).kv);
    return {};
  };
  if (status st = start(0); !st.ok()) return st;
  if (status st = work(std::ptrdiff_t{-1}); !st.ok()) return st;
  for (std::ptrdiff_t i = 0; i < std::ssize(rounds); ++i) {
    const bool idle = at(i).idle();
    if (!idle)
      if (status st = pass.wait(Pass::keys_group); !st.ok()) return st;
    if (status st = start(i + 1); !st.ok()) return st;
    if (at(i).rows() > 0)
      if (status st = work(i); !st.ok()) return st;
    if (status st = take_in(i - 1); !st.ok()) return st;
    if (!idle)
      if (status st = pass.launch(Pass::gradients_group, {goes_back, i + 1}, [&](auto& g) { go(g, i); }); !st.ok())
        return st;
  }
  return take_in(std::ssize(rounds) - 1);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
