// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the forward kernels are given, and how their work is numbered.
#pragma once

#include <cmath>
#include <limits>

#include <seqpar/cuda/each.hpp>
#include <seqpar/cuda/sight.hpp>
#include <seqpar/cuda/tiles.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

inline constexpr float infinite = std::numeric_limits<float>::infinity();
/// Stands for a scale of 0, so that −∞·scale is −∞.
inline constexpr float least_scale = std::numeric_limits<float>::min();
inline constexpr float log2_of_e = 1.44269504088896340736f;

/// A forward_call of at most most_segments segments as the device is given it, the mask by value.
template <class T, class Out, class Mask>
struct forward_params {
  cuda::segment<T> segments[most_segments]{};
  query_list queries{};
  rows<const T> q{};
  rows<Out> out{};
  numbers<float> lse{};
  float *acc = nullptr, *max = nullptr, *sum = nullptr;  ///< the state: dense, see state_view
  head_map map{};
  index_t q_rows = 0;
  std::int32_t segment_count = 0, batch = 0, heads = 0, qk_dim = 0, v_dim = 0;
  std::int32_t packed = 1, packs_per_kv = 0, first_pack = 0, packs = 0;  ///< pack_heads()
  float scale = 1;
  state_in in = state_in::none;
  state_out out_kind = state_out::final;
  Mask mask;

  static forward_params of(const forward_call<T, Out>& call, const Mask& mask) {
    static_assert(std::is_trivially_copyable_v<Mask>, "[seqpar] cuda: a mask goes to the device as it lies in memory");
    forward_params p{.mask = mask};
    for (const kv_segment<T>& s :
         call.segments.first(call.segments.size() < most_segments ? call.segments.size() : std::size_t{most_segments}))
      p.segments[p.segment_count++] = cuda::segment<T>::of(s);
    p.queries = query_list::of(call.queries);
    p.q = rows<const T>::of(call.q);
    p.out = rows<Out>::of(call.out);
    p.lse = numbers<float>::of(call.lse);
    p.acc = call.state.acc;
    p.max = call.state.max;
    p.sum = call.state.sum;
    p.map = call.heads;
    p.q_rows = call.q.tokens();
    p.batch = static_cast<std::int32_t>(call.q.batch());
    p.heads = static_cast<std::int32_t>(call.q.heads());
    p.qk_dim = static_cast<std::int32_t>(call.q.dim());
    p.v_dim = static_cast<std::int32_t>(call.segments.empty() ? call.out.dim() : call.segments.front().v.dim());
    p.scale = call.scale;
    p.in = call.in;
    p.out_kind = call.out_kind;
    p.pack_heads(1);
    return p;
  }

  /// Where there are few queries, a block takes those of several heads that share keys, as many as fit in `rows`: what
  /// is read of the keys and multiplied with them serves all. Packs are even, and a kv head has packs of its own.
  void pack_heads(int rows) {
    const index_t fit = q_rows > 0 && q_rows < rows ? rows / q_rows : 1;
    const auto heads_per_kv = static_cast<std::int32_t>(map.heads_per_kv);
    packs_per_kv = static_cast<std::int32_t>((heads_per_kv + fit - 1) / fit);
    packed = (heads_per_kv + packs_per_kv - 1) / packs_per_kv;
    first_pack = pack_of(0);
    packs = heads > 0 ? pack_of(heads - 1) - first_pack + 1 : 0;
  }

  /// Blocks' worth of work when each takes `part` rows of a query tile.
  SEQPAR_HD index_t work(int part) const {
    return index_t{queries.count} * (query_rows_of_tile / part) * packs * batch;
  }

 private:
  std::int32_t pack_of(std::int32_t head) const {
    const index_t global = map.q_first + head, kv = global / map.heads_per_kv;
    return static_cast<std::int32_t>(kv * packs_per_kv + (global - kv * map.heads_per_kv) / packed);
  }
};

/// One block's work: up to `part` rows of a query tile, for `heads` heads of one batch item, which share a kv head. Row
/// i of the block is that of token_of(i) and head_of(i).
struct query_part {
  std::int32_t tile, first, tokens;
  std::int32_t batch, head, heads, kv;
  SEQPAR_HD std::int32_t rows() const { return tokens * heads; }
  SEQPAR_HD std::int32_t token_of(std::int32_t i) const { return first + i % tokens; }
  SEQPAR_HD std::int32_t head_of(std::int32_t i) const { return head + i / tokens; }

  /// Work w: heads that share keys follow each other, and within a head the last tiles come first: under causal masks
  /// they have most to do.
  template <class Params>
  SEQPAR_HD static query_part of(const Params& p, index_t w, int part) {
    const int parts = query_rows_of_tile / part;
    const index_t in_pack = index_t{p.queries.count} * parts, plane = w / in_pack;
    const auto last = static_cast<std::int32_t>(in_pack - 1 - (w - plane * in_pack));
    query_part q;
    q.tile = last / parts;
    q.batch = static_cast<std::int32_t>(plane / p.packs);
    const auto pack = static_cast<std::int32_t>(plane - index_t{q.batch} * p.packs) + p.first_pack;
    const std::int32_t kv = pack / p.packs_per_kv, in_kv = (pack - kv * p.packs_per_kv) * p.packed;
    const auto q_first = static_cast<std::int32_t>(p.map.q_first),
               group = static_cast<std::int32_t>(p.map.heads_per_kv);
    const std::int32_t from = kv * group + in_kv - q_first, room = group - in_kv < p.packed ? group - in_kv : p.packed;
    q.head = from < 0 ? 0 : from;
    q.heads = (from + room < p.heads ? from + room : p.heads) - q.head;
    q.kv = kv - static_cast<std::int32_t>(p.map.kv_first);
    const query_tile t = p.queries.tiles[q.tile];
    const std::int32_t skipped = last % parts * part;
    q.first = t.row + skipped;
    q.tokens = t.rows - skipped < part ? t.rows - skipped : part;
    return q;
  }
  /// Into shared memory and back: registers are dear.
  template <class Words>
  SEQPAR_DEVICE void save(Words to) const {
    to[0] = tile;
    to[1] = first;
    to[2] = tokens;
    to[3] = batch;
    to[4] = head;
    to[5] = heads;
    to[6] = kv;
  }
  template <class Words>
  SEQPAR_DEVICE static query_part saved(Words from) {
    return {from[0], from[1], from[2], from[3], from[4], from[5], from[6]};
  }
  /// A row's place in the state.
  template <class Params>
  SEQPAR_HD index_t place(const Params& p, std::int32_t i) const {
    return (index_t{batch} * p.heads + head_of(i)) * p.q_rows + token_of(i);
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
