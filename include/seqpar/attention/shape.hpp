// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an attention plan is told: sizes and options, the same on every rank.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include <seqpar/detail/agreement.hpp>
#include <seqpar/error.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Where replicated (joint) tokens stand in the positions that the mask sees.
enum class joint_place : std::uint8_t { front, rear };

/// q, dq [batch, tokens, heads, head_dim]; k, dk [batch, tokens, kv_heads, head_dim];
/// v, dv [batch, tokens, kv_heads, value_dim]; out, dout [batch, tokens, heads, value_dim]; lse [batch, heads, tokens].
/// Joint tokens (text, a prefix) lie whole on every rank, beside the dealt ones, and are counted once.
struct attention_shape {
  index_t batch = 1;
  extent heads;
  extent kv_heads;        ///< divides heads; query head h uses kv head h / (heads / kv_heads)
  extent head_dim;        ///< 1 … 256
  index_t value_dim = 0;  ///< 0: as head_dim
  index_t joint_q = 0, joint_kv = 0;
  joint_place joint_at = joint_place::front;

  index_t v_dim() const { return value_dim == 0 ? index_t{head_dim} : value_dim; }
  index_t heads_per_kv() const { return heads / kv_heads; }
};

/// How the sequence stage moves keys and values between the members of a ring.
enum class schedule : std::uint8_t {
  direct,      ///< round s: from the owner r−s straight to me, only the rows that my queries may see, each once
  pass_along,  ///< round s: from my neighbour r−1, which had them in s−1: for links where only neighbours are near
  all_gather,  ///< direct in one round: few messages and one kernel call, room for the keys of all
  double_ring  ///< what someone in a window of members wants enters it once and is handed round inside: for nodes
};

/// Which rows travel along the ring to meet the others.
enum class side : std::uint8_t {
  keys,     ///< keys and values come to the queries; backward, their gradients go back
  queries,  ///< queries visit the keys; their partial results, or gradients, go back and are merged at home
  cheaper   ///< whichever is fewer bytes over all ranks; keys where both are as many or queries cannot travel
};

/// Of each pass. Queries travel under schedule::direct, without joint queries, capacity and reuse::saved.
struct moving_sides {
  side forward = side::cheaper, backward = side::cheaper;
};

/// What backward does for the exchanged q, k, v.
enum class reuse : std::uint8_t {
  resend,  ///< exchange them again
  saved    ///< forward keeps them in memory.saved
};

/// Gradients of joint keys and values: complete on every rank, or this rank's own share, to be summed by the caller.
enum class joint_gradient : std::uint8_t { complete, partial };

/// The largest layouts that plan.update may bring. Zero: exactly the planned one; nothing is spent on more.
struct update_capacity {
  index_t tokens_per_rank = 0;   ///< of the query and the key layout
  index_t ranges_per_tile = 16;  ///< how finely a mask may cut the row of one query tile, per round
};

struct attention_options {
  seqpar::passes passes = forward_only;
  std::optional<float> scale = {};  ///< unset: 1/√head_dim; 0 and negative are values
  seqpar::schedule schedule = seqpar::schedule::direct;
  index_t window = 0;  ///< double_ring: so many neighbours on the ring are a window (those of a node); divides its size
  moving_sides moves = {};
  seqpar::reuse reuse = seqpar::reuse::resend;
  write gradients = write::assign;
  seqpar::joint_gradient joint_gradient = seqpar::joint_gradient::complete;
  update_capacity capacity = {};
  agreement check = agreement::checked;
};

namespace detail {

template <class = when_used>
failure check_shape(const char* where, const attention_shape& n) {
  if (n.batch < 0) return invalid(where, {"batch must not be negative, got ", n.batch});
  if (n.heads < 1) return invalid(where, {"heads must be at least 1, got ", n.heads});
  if (n.kv_heads < 1 || n.heads % n.kv_heads != 0)
    return invalid(where, {"kv_heads must divide heads (", n.heads, "), got ", n.kv_heads});
  if (n.head_dim < 1 || n.head_dim > 256) return invalid(where, {"head_dim must be 1 to 256, got ", n.head_dim});
  if (n.v_dim() < 1 || n.v_dim() > 256) return invalid(where, {"value_dim must be 1 to 256, got ", n.value_dim});
  for (index_t joint : {n.joint_q, n.joint_kv})
    if (joint < 0 || joint > std::numeric_limits<std::int32_t>::max())
      return invalid(where, {"joint tokens must be 0 to 2^31 - 1, got ", joint});
  return {};
}

inline bool queries_may_travel(const attention_options& o, const attention_shape& n) {
  return o.schedule == schedule::direct && o.reuse == reuse::resend && o.capacity.tokens_per_rank == 0 &&
         n.joint_q == 0;
}
inline failure check_moves(const char* where, const attention_options& o, const attention_shape& n) {
  const bool asked = o.moves.forward == side::queries || o.moves.backward == side::queries;
  if (!asked || queries_may_travel(o, n)) return {};
  return invalid(where,
                 "queries travel with schedule::direct and reuse::resend only, without joint queries and capacity; "
                 "leave options.moves to side::cheaper, or give side::keys");
}

/// Item i of n cut into `parts`: the first n mod parts get one more.
constexpr interval share(index_t n, index_t parts, index_t i) {
  const index_t base = n / parts, more = n % parts;
  const index_t lo = i * base + (i < more ? i : more);
  return {lo, lo + base + (i < more ? 1 : 0)};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
