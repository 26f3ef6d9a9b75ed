// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two plans whose messages have equal sizes, run by each rank in an order of its own.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include <seqpar/attention/plan.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/mask/full.hpp>
#include <tests/support/apart.hpp>

namespace seqpar::test {

/// A reshard of 4·ranks² rows of a float, whose results are checked.
template <class Transport>
class checked_reshard {
 public:
  explicit checked_reshard(const mesh<Transport>& team)
      : from_{.tokens = 4 * square(team), .ranks = team.size()},
        to_{.tokens = 4 * square(team), .ranks = team.size()},
        me_(team.index()),
        plan_(plan_reshard(team, from_, to_, {.row_bytes = sizeof(float)})),
        memory_(plan_.memory()) {
    plan_.prepare(memory_, on_host{});
  }
  /// Row i of the sequence is `first` + i.
  status run(float first) const {
    std::vector<float> in(static_cast<std::size_t>(from_.count_of(me_))), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = first + static_cast<float>(from_.global_of(me_, static_cast<index_t>(i)));
    if (status s = plan_.forward(in.data(), out.data(), memory_, on_host{}); !s.ok()) return s;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != first + static_cast<float>(to_.global_of(me_, static_cast<index_t>(i))))
        return {errc::invalid_argument, "test: a row of another plan"};
    return {};
  }

 private:
  static index_t square(const mesh<Transport>& team) { return index_t{team.size()} * team.size(); }
  contiguous from_;
  striped to_;
  int me_;
  exchange<Transport> plan_;
  host_memory memory_;
};

/// What `first` and `second` say, run in that order or, on a rank that `swaps`, in the other.
template <class First, class Second>
status in_order(bool swaps, First&& first, Second&& second) {
  status s = swaps ? second() : first();
  if (s.ok()) s = swaps ? first() : second();
  return s;
}

/// Two equal reshards.
template <class Transport>
status two_reshards(const mesh<Transport>& team, bool swaps) {
  const checked_reshard<Transport> a(team), b(team);
  return in_order(
      swaps, [&] { return a.run(0); }, [&] { return b.run(1000); });
}

/// Attention whose keys of a round have the bytes of the rows of a reshard, and that reshard.
template <class Transport>
status attention_and_reshard(const mesh<Transport>& team, bool swaps) {
  const contiguous rows{.tokens = 4 * team.size(), .ranks = team.size()};
  auto plan = plan_attention<float>(team, rows, full{}, {.heads = 1, .kv_heads = 1, .head_dim = 1});
  const host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  const checked_reshard<Transport> move(team);
  float q[4] = {}, k[4] = {}, v[4] = {1, 1, 1, 1}, out[4], lse[4];
  const auto view = [](float* x) { return dense_view(x, {1, 4, 1, 1}); };
  return in_order(
      swaps,
      [&] {
        return plan.forward(
            {.q = view(q), .k = view(k), .v = view(v), .out = view(out), .lse = dense_heads(lse, {1, 1, 4})}, memory,
            on_host{});
      },
      [&] { return move.run(0); });
}

}  // namespace seqpar::test
