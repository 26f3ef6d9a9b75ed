// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block kernel made of a third party's attention: one call for each rectangle, merged in fp32.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <seqpar/cuda/merge_rows.hpp>
#include <seqpar/kernel/rectangles.hpp>
#include <seqpar/memory.hpp>
#include <seqpar/space/cuda.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// out = softmax(scale·q·kᵀ | −left ≤ j − i ≤ right)·v of consecutive rows, rounded to T; lse = log Σ exp (natural),
/// dense [batch][heads][q rows]. Query head h uses kv head h / (heads / kv heads).
template <class T>
struct sdpa_call {
  rows_view<const T> q, k, v;
  rows_view<T> out;
  float* lse;
  float scale;
  std::int32_t left, right;  ///< as in rectangle
  region workspace;
};

/// Third-party attention as a block_kernel. `Sdpa` is a copyable type with
///
///   prepare(call, exec)            not const: builds and keeps what running this call needs, if it can compute it
///   ready(call, exec) const        has it been prepared for this call, and can compute it? Builds nothing
///   run(call, exec) const status   after ready said yes; on exec.compute
///   workspace_bytes                static: what it may be given in call.workspace
///
/// It is prepared for the calls that its plan shows it (block_kernel's prepare), whose tensors have no pointers.
/// Forward: 16-bit calls whose tables come with rectangles (key_table::rectangles), if Sdpa takes all of them; all else
/// and the backward pass is Fallback's. Numbers: partial results are T, not fp32: an error of half a unit of T each,
/// which Fallback does not have. Where one rectangle is the whole call, the result is Sdpa's own.
/// Memory: plans that write rectangles give the workspace of the second workspace_bytes.
template <class Sdpa, class Fallback>
class by_rectangles {
 public:
  static constexpr index_t query_tile_rows = Fallback::query_tile_rows, key_tile_rows = Fallback::key_tile_rows;
  static constexpr bool walks_by_keys = seqpar::detail::walks_by_keys<Fallback>();
  template <class Mask>
  static constexpr bool takes_mask = seqpar::detail::takes_mask<Fallback, Mask>();
  /// Beyond so many for one segment, a kernel that reads tables does better.
  static constexpr index_t most_rectangles = 32;
  static index_t workspace_bytes(index_t qk_dim, index_t v_dim) { return Fallback::workspace_bytes(qk_dim, v_dim); }
  static index_t workspace_bytes(index_t batch, index_t heads, index_t q_rows, index_t qk_dim, index_t v_dim) {
    carver count;
    arrays<float16>::take(count, batch * heads * q_rows, v_dim);
    return std::max(count.bytes(), workspace_bytes(qk_dim, v_dim));
  }

  by_rectangles() = default;
  explicit by_rectangles(Sdpa sdpa, Fallback fallback = {}) : sdpa_(std::move(sdpa)), fallback_(std::move(fallback)) {}

  /// What a run must not build: Fallback's bodies, and Sdpa's plans.
  template <class T, class Out, class Mask, class Exec>
  static status load(const Exec& exec, passes which) requires requires {
    Fallback::template load<T, Out, Mask>(exec, which);
  }
  { return Fallback::template load<T, Out, Mask>(exec, which); }
  template <class T, class Out, class Mask, class Exec>
  status prepare(const forward_call<T, Out>& call, const Mask& mask, const Exec& exec) {
    if constexpr (std::is_same_v<Mask, by_intervals>) prepare_by(call, rectangles_of_tables(call), exec);
    if constexpr (seqpar::detail::prepares_for<Fallback, forward_call<T, Out>, Exec>)
      return seqpar::detail::said_by([&] { return fallback_.prepare(call, mask, exec); });
    return {};
  }

  template <class T, class Out, class Mask, class Exec>
  status forward(const forward_call<T, Out>& call, const Mask& mask, const Exec& exec) const {
    if constexpr (std::is_same_v<Mask, by_intervals>)
      if (const std::optional<status> said = forward_by(call, rectangles_of_tables(call), exec)) return *said;
    return fallback_.forward(call, mask, exec);
  }
  template <class T, class Mask, class Exec>
  status backward(const backward_call<T>& call, const Mask& mask, const Exec& exec) const {
    return fallback_.backward(call, mask, exec);
  }

  /// The call by the rectangles of each segment: rectangles_of(i) is a pointer to a list of them, null where they do
  /// not fit. prepare_by comes before forward_by; that gives nullopt, and does nothing, if the call is Fallback's.
  template <class T, class Out, class ListOf, class Exec>
  void prepare_by(const forward_call<T, Out>& call, ListOf&& rectangles_of, const Exec& exec) {
    if constexpr (!std::is_same_v<T, float>)
      if (const std::optional<arrays<T>> at = arranged(call, rectangles_of))
        each(call, rectangles_of, *at, [&](const rectangle&, const sdpa_call<T>& part) { sdpa_.prepare(part, exec); });
  }
  template <class T, class Out, class ListOf, class Exec>
  std::optional<status> forward_by(const forward_call<T, Out>& call, ListOf&& rectangles_of, const Exec& exec) const {
    if constexpr (std::is_same_v<T, float>) {
      return std::nullopt;
    } else {
      const std::optional<arrays<T>> found = arranged(call, rectangles_of);
      if (!found) return std::nullopt;
      const arrays<T>& at = *found;
      const index_t batch = call.q.batch(), heads = call.q.heads(), rows = call.q.tokens();
      // All of them, or none: what may be refused comes before the first launch.
      bool taken = true;
      each(call, rectangles_of, at,
           [&](const rectangle&, const sdpa_call<T>& part) { taken = taken && sdpa_.ready(part, exec); });
      if (!taken) return std::nullopt;

      status said;
      if (at.direct) {
        each(call, rectangles_of, at,
             [&](const rectangle&, const sdpa_call<T>& part) { said = sdpa_.run(part, exec); });
        return said;
      }
      using body = merge_rows<T, Out>;
      const state_rows state = at.state.of(batch, heads, rows, width_of(call));
      const auto launch = [&](const typename body::params& p) {
        if (said.ok()) said = status_of(exec.template launch<body>(p.work(), p), "cuda: merging rows failed");
      };
      if (call.in == state_in::none) launch(body::params::of(state, merging::start));
      each(call, rectangles_of, at, [&](const rectangle& r, const sdpa_call<T>& part) {
        if (said.ok()) said = sdpa_.run(part, exec);
        auto p = body::params::of(state.line(r.q, 1, r.q_rows), merging::merge);
        p.part = cuda::rows<const T>::of(part.out);
        p.part_max = {part.lse, heads * r.q_rows, r.q_rows, 1};
        launch(p);
      });
      auto p = body::params::of(state, merging::finish);
      p.out = cuda::rows<Out>::of(call.out);
      p.lse = numbers<float>::of(call.lse);
      if (call.out_kind == state_out::final) launch(p);
      return said;
    }
  }

 private:
  template <class T>
  struct arrays {
    state_view state;
    T* out;
    float* lse;
    std::byte* workspace;
    bool direct = false;  ///< the only call writes out and lse itself
    static arrays take(carver& c, index_t rows, index_t dim) {
      arrays a;
      a.state = {c.take<float>(rows * dim), c.take<float>(rows), c.take<float>(rows)};
      a.out = c.take<T>(rows * dim);
      a.lse = c.take<float>(rows);
      a.workspace = c.take<std::byte>(Sdpa::workspace_bytes);
      return a;
    }
  };

  template <class T, class Out>
  static auto rectangles_of_tables(const forward_call<T, Out>& call) {
    return [&call](std::size_t i) { return call.segments[i].table.rectangles; };
  }
  /// Where the call's parts go; nullopt if they are not for a third party.
  template <class T, class Out, class ListOf>
  static std::optional<arrays<T>> arranged(const forward_call<T, Out>& call, ListOf& rectangles_of) {
    if (!heads_are_even(call)) return std::nullopt;
    carver walk(region{call.workspace, 0});
    arrays<T> at = arrays<T>::take(walk, call.q.batch() * call.q.heads() * call.q.tokens(), width_of(call));
    if (call.in == state_in::carry || call.out_kind == state_out::carry) at.state = call.state;
    index_t count = 0, longest = 0;
    const bool listed = each(call, rectangles_of, at, [&](const rectangle& r, const sdpa_call<T>&) {
      ++count;
      longest = std::max<index_t>(longest, r.q_rows);
    });
    if (!listed) return std::nullopt;
    if constexpr (std::is_same_v<T, Out>)
      at.direct = count == 1 && longest == call.q.tokens() && call.in == state_in::none &&
                  call.out_kind == state_out::final && is_dense(call.lse);
    return at;
  }
  template <class T>
  static bool is_dense(const heads_view<T>& v) {
    return v.stride == dense_heads<T>(nullptr, v.shape).stride && reinterpret_cast<std::uintptr_t>(v.pointer) % 16 == 0;
  }
  template <class T, class Out>
  static index_t width_of(const forward_call<T, Out>& call) {
    return call.segments.empty() ? call.out.dim() : call.segments.front().v.dim();
  }
  /// Third parties know one way of sharing kv heads: heads / kv heads in a row use one.
  template <class T, class Out>
  static bool heads_are_even(const forward_call<T, Out>& call) {
    if (call.segments.empty()) return true;
    const index_t heads = call.q.heads(), kv_heads = call.segments.front().k.heads();
    if (kv_heads == 0 || heads % kv_heads != 0) return false;
    for (index_t h = 0; h < heads; ++h)
      if (call.heads.kv_of(h) != h / (heads / kv_heads)) return false;
    return true;
  }
  template <class T>
  static rows_view<const T> part_of(rows_view<const T> v, std::int32_t first, std::int32_t count) {
    if (v.pointer) v.pointer += first * v.stride[1];
    v.shape[1] = count;
    return v;
  }
  /// f(rectangle, its call) for all of them, in order; false where a segment has no list.
  template <class T, class Out, class ListOf, class F>
  static bool each(const forward_call<T, Out>& call, ListOf& rectangles_of, const arrays<T>& at, F&& f) {
    for (std::size_t i = 0; i < call.segments.size(); ++i) {
      const auto* list = rectangles_of(i);
      if (!list) return false;
      const kv_segment<T>& keys = call.segments[i];
      for (const rectangle& r : *list) {
        sdpa_call<T> part{part_of(call.q, r.q, r.q_rows),
                          part_of(keys.k, r.k, r.k_rows),
                          part_of(keys.v, r.k, r.k_rows),
                          {},
                          at.lse,
                          call.scale,
                          r.left,
                          r.right,
                          region{at.workspace, Sdpa::workspace_bytes}};
        part.out = dense_view(at.out, {call.q.batch(), r.q_rows, call.q.heads(), keys.v.dim()});
        if constexpr (std::is_same_v<T, Out>)
          if (at.direct) {
            part.out = call.out;
            part.lse = call.lse.pointer;
          }
        f(r, part);
      }
    }
    return true;
  }

  Sdpa sdpa_;
  Fallback fallback_;
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
