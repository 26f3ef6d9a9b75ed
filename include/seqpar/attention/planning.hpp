// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Planning an attention: its checks, its setup, and what the ranks must give alike. Compiled once for all types.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <seqpar/attention/setup.hpp>
#include <seqpar/detail/agreement.hpp>
#include <seqpar/exchange/detail/plan_checks.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What planning does whatever the types are, to be compiled apart, once: an engine says
///
///   extern template struct seqpar::planning_apart<>;   where plans are made,
///   template struct seqpar::planning_apart<>;          in one source file.
template <class = when_used>
struct planning_apart {
  static failure check(const char* where, const attention_shape& n, const attention_options& o, const mesh_shape& team,
                       const std::vector<int>& ranks, index_t q_tokens, index_t kv_tokens,
                       detail::function_ref<index_t(int)> rows_of);
  static detail::attention_setup setup(const detail::attention_problem& p);
  static detail::statement say(const detail::attention_problem& p, float scale, index_t element_types,
                               const std::vector<int>& ranks);
};

/// What is wrong with the sizes and options of a call whose layouts and mask have passed their own checks; rows_of: the
/// most that a member holds. Asked before layouts are lowered, which takes room for all their runs.
template <class When>
failure planning_apart<When>::check(const char* where, const attention_shape& n, const attention_options& o,
                                    const mesh_shape& team, const std::vector<int>& ranks, index_t q_tokens,
                                    index_t kv_tokens, detail::function_ref<index_t(int)> rows_of) {
  constexpr index_t most_tokens = std::numeric_limits<std::int32_t>::max();
  if (o.capacity.tokens_per_rank < 0 || o.capacity.tokens_per_rank > most_tokens || o.capacity.ranges_per_tile < 1 ||
      o.capacity.ranges_per_tile > most_tokens)
    return detail::invalid(where, {"capacity must be 0 to 2^31 - 1 tokens, ranges_per_tile 1 to 2^31 - 1, got ",
                                   o.capacity.tokens_per_rank, " and ", o.capacity.ranges_per_tile});
  if (o.schedule == schedule::double_ring && (o.window < 1 || team.ring % o.window != 0))
    return detail::invalid(where, {"double_ring takes options.window, ring members that share a node: a divisor of ",
                                   index_t{team.ring}, ", got ", o.window});
  if (o.scale && !std::isfinite(*o.scale))
    return detail::invalid(where,
                           {"the scale must be finite; leave it unset for 1/sqrt(head_dim), got ", double{*o.scale}});
  index_t widest = std::max(q_tokens, kv_tokens);
  if (widest <= most_tokens) widest = std::max(q_tokens + n.joint_q, kv_tokens + n.joint_kv);
  if (widest > most_tokens)
    return detail::invalid(
        where, {"more than 2^31 - 1 tokens (", widest, ") do not fit the kernels' tables; split the sequence"});
  const index_t most_rows = o.capacity.tokens_per_rank;
  if (detail::exceeds_64_bits({n.batch, n.heads, std::max(widest, most_rows * team.size()), 256 * 16}))
    return detail::invalid(where, "the tensors have more than 2^62 bytes; give smaller sizes");
  for (int m = 0; most_rows > 0 && m < team.size(); ++m)
    if (const index_t rows = rows_of(m); rows > most_rows)
      return detail::invalid(
          where, {"rank ", ranks[static_cast<std::size_t>(m)], " holds ", rows,
                  " tokens, more than capacity.tokens_per_rank, ", most_rows, "; plan with a larger capacity"});
  return {};
}

template <class When>
detail::attention_setup planning_apart<When>::setup(const detail::attention_problem& p) {
  return detail::setup_builder(p).build();
}

/// What a rank says of its call; element_types and ranks speak of the plan, the rest is in the problem.
template <class When>
detail::statement planning_apart<When>::say(const detail::attention_problem& p, float scale, index_t element_types,
                                            const std::vector<int>& ranks) {
  const attention_shape& n = p.shape;
  const attention_options& o = p.options;
  detail::statement said("plan_attention");
  said.add("batch", n.batch);
  said.add("heads", n.heads);
  said.add("kv_heads", n.kv_heads);
  said.add("head_dim", n.head_dim);
  said.add("value_dim", n.v_dim());
  said.add("joint_q", n.joint_q);
  said.add("joint_kv", n.joint_kv);
  said.add_hash("the place of joint tokens", static_cast<index_t>(n.joint_at));
  said.add_hash("the kernel", p.kernel.query_tile * 65536 + p.kernel.key_tile);
  said.add_hash("the element types", element_types);
  said.add_hash("the scale", std::bit_cast<std::int32_t>(scale));
  said.add_hash("the schedule", static_cast<index_t>(o.schedule));
  said.add("window", o.window);
  said.add_hash("the sides that move",
                static_cast<index_t>(o.moves.forward) * 3 + static_cast<index_t>(o.moves.backward));
  said.add_hash("passes", static_cast<index_t>(o.passes));
  said.add_hash("reuse", static_cast<index_t>(o.reuse));
  said.add_hash("gradients", static_cast<index_t>(o.gradients));
  said.add_hash("joint_gradient", static_cast<index_t>(o.joint_gradient));
  said.add("capacity", o.capacity.tokens_per_rank);
  said.add("the mesh's ring size", p.team.ring);
  said.add_hash("the mesh's placement", static_cast<index_t>(p.team.inside));
  std::uint64_t h = 5;
  for (int r : ranks) h = detail::statement::mix(h, r);
  said.add_hash("the mesh's ranks", static_cast<index_t>(h >> 1));
  said.add("tokens", p.q_tokens());
  said.add("key tokens", p.k_tokens());
  said.add_hash("the layout", detail::statement::hash_of_layout(p.q));
  said.add_hash("the layout of the keys", detail::statement::hash_of_layout(p.kv));
  said.add_hash("the mask", detail::statement::hash_of_mask(p.mask, p.q_tokens(), p.k_tokens()));
  return said;
}

}  // namespace v0_1
}  // namespace seqpar
