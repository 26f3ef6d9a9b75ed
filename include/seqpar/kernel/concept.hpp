// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The waist between attention and the kernels: one block of queries against a list of key/value segments, as plain
// data.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/mask/concept.hpp>
#include <seqpar/space/host.hpp>
#include <seqpar/types.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

struct rectangle;  // kernel/rectangles.hpp

/// Up to kernel's query_tile consecutive query rows.
struct query_tile {
  std::int32_t row, rows;
};

/// Up to kernel's key_tile consecutive key rows. Row i of the tile has position `position + i·step`;
/// step = irregular: its position stands in the segment's list, positions[row + i].
struct key_tile {
  static constexpr std::int32_t irregular = 0;
  std::int32_t row, rows, position, step;
};

/// `count` consecutive key tiles from `first`. kind is some (rows must be tested) or all (none need be).
struct tile_range {
  std::int32_t first, count;
  cover kind;
};

/// The query rows: tiles and, per row, the keys it may see, as two intervals of positions [lo0, hi0) ∪ [lo1, hi1).
/// `position` (per row) is what a functor mask is asked with.
struct query_table {
  std::span<const query_tile> tiles;
  std::span<const std::int32_t> lo0, hi0, lo1, hi1, position;
};

/// One segment's key rows and which of its tiles each query tile visits: those of query tile t are
/// ranges[first_range[t]] … ranges[first_range[t + 1] − 1], in ascending order; tiles that nothing sees are absent.
/// query_ranges says the same by key tile (its ranges count query tiles), for kernels that walk by keys.
struct key_table {
  std::span<const key_tile> tiles;
  std::span<const std::int32_t> positions;  ///< empty when every tile is affine
  std::span<const std::int32_t> first_range;
  std::span<const tile_range> ranges;
  std::span<const std::int32_t> first_query_range{};  ///< empty unless the kernel has walks_by_keys
  std::span<const tile_range> query_ranges{};
  const std::vector<rectangle>* rectangles = nullptr;  ///< host memory; null unless so few suffice (most_rectangles)
  constexpr std::int32_t position_of(const key_tile& tile, std::int32_t i) const {
    return tile.step == key_tile::irregular ? positions[static_cast<std::size_t>(tile.row + i)]
                                            : tile.position + i * tile.step;
  }
};

/// Keys and values that lie together: k [batch, rows, kv heads, qk dim], v [batch, rows, kv heads, v dim];
/// for the backward pass also dk, dv of the same shapes in fp32, which the kernel adds to.
template <class T>
struct kv_segment {
  rows_view<const T> k, v;
  key_table table;
  rows_view<float> dk{}, dv{};
};

/// Which kv head a query head uses: local query head h ↦ (q_first + h) / heads_per_kv − kv_first.
struct head_map {
  index_t q_first = 0, kv_first = 0, heads_per_kv = 1;
  constexpr index_t kv_of(index_t h) const { return (q_first + h) / heads_per_kv - kv_first; }
};

/// Online-softmax state in fp32: over the keys seen so far, m = max s, sum = Σ exp(s − m), acc = Σ exp(s − m)·v.
/// Nothing seen: m = −∞, sum = 0, acc = 0. Dense: acc [batch][heads][rows][v dim], m and sum [batch][heads][rows].
struct state_view {
  float *acc = nullptr, *max = nullptr, *sum = nullptr;
  state_rows of(index_t batch, index_t heads, index_t rows, index_t dim) const {
    return {{acc, {batch, rows, heads, dim}, {heads * rows * dim, dim, rows * dim, 1}},
            dense_heads(max, {batch, heads, rows}),
            dense_heads(sum, {batch, heads, rows})};
  }
};

enum class state_in : std::uint8_t { none, carry };    ///< start afresh | go on from the state
enum class state_out : std::uint8_t { carry, final };  ///< leave the state | write out and lse

/// out = softmax(scale·q·kᵀ | mask)·v over the segments; lse = log Σ exp (natural). A query that sees nothing: out 0,
/// lse −∞. No segments: a state that is carried in is finished as it is.
template <class T, class Out>
struct forward_call {
  rows_view<const T> q;  ///< [batch, rows, heads, qk dim]
  query_table queries;
  std::span<const kv_segment<T>> segments;
  head_map heads;
  float scale = 1;
  state_in in = state_in::none;
  state_out out_kind = state_out::final;
  state_view state{};    ///< needed unless in = none, out_kind = final, and the kernel takes so many segments at once
  rows_view<Out> out{};  ///< [batch, rows, heads, v dim]
  heads_view<float> lse{};    ///< [batch, heads, rows]
  void* workspace = nullptr;  ///< workspace_bytes, aligned to memory_alignment
};

/// With p = exp(scale·q·kᵀ − lse) where the mask allows, else 0, and ds = p∘(dout·vᵀ − delta):
/// dq += scale·ds·k,  dk += scale·dsᵀ·q,  dv += pᵀ·dout; all three in fp32, in a fixed order.
/// delta = rowsum(dout∘out) − dlse. A row with lse = −∞ adds nothing.
template <class T>
struct backward_call {
  rows_view<const T> q, dout;  ///< [batch, rows, heads, qk dim], [batch, rows, heads, v dim]
  query_table queries;
  std::span<const kv_segment<T>> segments;
  head_map heads;
  float scale = 1;
  heads_view<const float> lse{}, delta{};
  rows_view<float> dq{};
  void* workspace = nullptr;
};

/// The mask as the kernel sees it when its intervals are in the tables. Otherwise a functor allows(q, k) on positions.
struct by_intervals {};

/// A kernel computes one call on one processor; it knows nothing of ranks. A value; each plan has a copy of its own.
///
///   query_tile_rows, key_tile_rows                static: the largest tiles it takes
///   workspace_bytes(qk_dim, v_dim)                static: scratch per call, a multiple of memory_alignment
///   forward(call, mask), backward(call, mask)     mask: by_intervals, or any type with allows(q, k)
///   forward(call, mask, exec), backward(…)        the same given to an executor other than on_host
///
/// Either form, or both; each may return a status. Optional:
///
///   walks_by_keys        true: its tables say by key tile, too, who visits
///   most_rectangles      its tables come with rectangles, too, where no more than so many say the same; and its
///                        workspace is workspace_bytes(batch, heads, q_rows, qk_dim, v_dim), static
///   prepare(call, mask, exec)
///                        not const: is shown, while a plan is prepared or updated, every forward call that its runs
///                        will make, to build what a run must not. The caller's tensors come without pointers. May
///                        return a status
///   takes_mask<Mask>     false where it cannot ask a mask of this type; plans then refuse masks that do not fit in two
///                        intervals
template <class K>
concept block_kernel = std::copyable<K> && requires(index_t n) {
  { K::query_tile_rows } -> std::convertible_to<index_t>;
  { K::key_tile_rows } -> std::convertible_to<index_t>;
  { K::workspace_bytes(n, n) } -> std::convertible_to<index_t>;
};

/// Does it compute where Exec says?
template <class K, class Exec = on_host>
concept computes_on = block_kernel<K> && requires(const K& kernel, const forward_call<float, float>& f,
                                                  const backward_call<float>& b, by_intervals mask, const Exec& exec) {
  requires(std::same_as<Exec, on_host> &&
           requires {
             kernel.forward(f, mask);
             kernel.backward(b, mask);
           }) ||
      requires {
    kernel.forward(f, mask, exec);
    kernel.backward(b, mask, exec);
  };
};

namespace detail {
template <class K, class Call, class Exec>
concept prepares_for = requires(K& kernel, const Call& call, by_intervals mask, const Exec& exec) {
  kernel.prepare(call, mask, exec);
};
/// What a kernel's call returns: a status, or nothing.
template <class F>
status said_by(F&& call) {
  if constexpr (std::same_as<decltype(call()), status>) {
    return call();
  } else {
    call();
    return {};
  }
}

template <class K>
constexpr bool walks_by_keys() {
  if constexpr (requires { K::walks_by_keys; }) return K::walks_by_keys;
  return false;
}
template <class K>
constexpr index_t most_rectangles() {
  if constexpr (requires { K::most_rectangles; }) return K::most_rectangles;
  return 0;
}
template <class K, class Mask>
constexpr bool takes_mask() {
  if constexpr (requires { K::template takes_mask<Mask>; }) return K::template takes_mask<Mask>;
  return true;
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
