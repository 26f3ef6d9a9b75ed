// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block kernel of CUDA devices: which body a call is given.
#pragma once

#include <algorithm>
#include <concepts>
#include <span>
#include <type_traits>

#include <seqpar/cuda/attend_backward.hpp>
#include <seqpar/cuda/attend_backward_plain.hpp>
#include <seqpar/cuda/attend_forward.hpp>
#include <seqpar/cuda/attend_forward_plain.hpp>
#include <seqpar/cuda/space.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

namespace detail {
struct keep_as_it_is {
  std::span<const index_t> operator()(std::span<const index_t> table) const { return table; }
};
}  // namespace detail

/// Exact attention on tensor cores for the head-dim classes named, head_class<64>, head_class<192, 128>, …: the first
/// that is wide enough is taken. 16-bit calls whose dims are multiples of 8 and whose rows lie on 16 bytes run there;
/// all others (fp32, odd dims or strides, wider heads) are right, too, in plain fp32 arithmetic.
///
/// Stream: exec.compute. Memory: none of its own. Determinism: bitwise, no atomics.
/// Numbers: 16-bit products are summed in fp32; P and dS are rounded to T before the second product.
/// Masks: key intervals; else a functor that is trivially copyable, views no tables and is marked SEQPAR_HD.
/// Architecture: the least that the program is built for; what it offers a block decides the depth of the pipelines.
template <int Architecture, class... Classes>
struct attention_for {
  static constexpr index_t query_tile_rows = query_rows_of_tile, key_tile_rows = key_rows_of_tile;
  static constexpr bool walks_by_keys = true;
  template <class Mask>
  static constexpr bool takes_mask = std::is_trivially_copyable_v<Mask> && !requires(const Mask& mask) {
    mask.rebound(detail::keep_as_it_is{});
  };
  static index_t workspace_bytes(index_t, index_t) { return 0; }

  /// The bodies that forward and backward choose from.
  template <class T, class Out, class Mask>
  static constexpr auto forward_bodies() {
    using plain = attend_forward_plain<T, Out, Mask>;
    if constexpr (sizeof(T) == 2)
      return bodies<plain, attend_forward<T, Out, Classes, Mask, Architecture>...>{};
    else
      return bodies<plain>{};
  }
  template <class T, class Mask>
  static constexpr auto backward_bodies() {
    using plain = bodies<attend_backward_plain_keys<T, Mask>, attend_backward_plain_queries<T, Mask>>;
    if constexpr (sizeof(T) == 2)
      return plain{} + bodies<attend_backward_keys<T, Classes, Mask, Architecture>...,
                              attend_backward_queries<T, Classes, Mask, Architecture>...>{};
    else
      return plain{};
  }

  /// Puts the bodies of these calls on the device before they are captured.
  template <class T, class Out, class Mask, class Launcher>
  static status load(const launched_by<Launcher>&, passes which) {
    cudaError_t e = detail::load_all<Launcher>(forward_bodies<T, Out, Mask>());
    if (e == cudaSuccess && which == passes::both) e = detail::load_all<Launcher>(backward_bodies<T, Mask>());
    return status_of(e, "cuda: the attention kernels are not built for this device");
  }

  /// Do calls with these rows of q and v, and all others of theirs (k, out, gradients), run on tensor cores?
  template <class Q, class V, class... Others>
  static bool on_tensor_cores(const rows_view<Q>& q, const rows_view<V>& v, const Others&... others) {
    return sizeof(Q) == 2 && ((q.dim() <= Classes::qk && v.dim() <= Classes::v) || ...) && fits(q, q.dim()) &&
           fits(v, v.dim()) && (fits(others, others.dim()) && ...);
  }

  template <class T, class Out, class Mask, class Launcher>
  status forward(forward_call<T, Out> call, const Mask& mask, const launched_by<Launcher>& exec) const {
    const auto all = call.segments;
    const state_out last = call.out_kind;
    if (all.size() > most_segments && call.q.elements() > 0 && call.state.acc == nullptr)
      return {errc::invalid_argument, "cuda: more than 8 segments carry a state between them; give the call one"};
    cudaError_t e = cudaSuccess;
    for (std::size_t first = 0; first == 0 || (e == cudaSuccess && first < all.size()); first += most_segments) {
      call.segments = all.subspan(first, std::min<std::size_t>(most_segments, all.size() - first));
      call.out_kind = first + most_segments < all.size() ? state_out::carry : last;
      const auto p = forward_params<T, Out, Mask>::of(call, mask);
      const bool wide = fits(call.q, p.qk_dim) && fits(call.out, p.v_dim) && keys_fit(call.segments);
      const bool taken = wide && (try_forward<T, Out, Classes>(p, exec, e) || ...);
      if (!taken) e = give_forward<attend_forward_plain<T, Out, Mask>>(p, exec);
      call.in = state_in::carry;
    }
    return status_of(e, "cuda: the attention kernel could not be started");
  }

  template <class T, class Mask, class Launcher>
  status backward(const backward_call<T>& call, const Mask& mask, const launched_by<Launcher>& exec) const {
    cudaError_t e = cudaSuccess;
    for (std::size_t first = 0; e == cudaSuccess && first < call.segments.size(); first += most_segments) {
      const auto p = backward::arguments<T, Mask>::of(call, mask, first);
      const bool wide =
          fits(call.q, p.qk_dim) && fits(call.dout, p.v_dim) && fits(call.dq, p.qk_dim) && keys_fit(call.segments);
      const bool taken = wide && (try_backward<T, Classes>(p, exec, e) || ...);
      if (!taken)
        e = give_backward<attend_backward_plain_keys<T, Mask>, attend_backward_plain_queries<T, Mask>>(p, exec);
    }
    return status_of(e, "cuda: the attention kernel could not be started");
  }

 private:
  /// May rows of this width be read 16 bytes at a time?
  template <class E>
  static bool fits(const rows_view<E>& v, index_t dim) {
    return dim % 8 == 0 && (v.pointer == nullptr || rows<E>::of(v).aligned());
  }
  template <class T>
  static bool keys_fit(std::span<const kv_segment<T>> segments) {
    return std::all_of(segments.begin(), segments.end(), [](const kv_segment<T>& s) {
      return fits(s.k, s.k.dim()) && fits(s.v, s.v.dim()) && fits(s.dk, s.k.dim()) && fits(s.dv, s.v.dim());
    });
  }

  template <class Body, class Launcher>
  static cudaError_t give_forward(typename Body::params p, const launched_by<Launcher>& exec) {
    p.pack_heads(Body::packed_rows);
    return exec.template launch<Body>(p.work(Body::rows_per_block), p);
  }
  template <class ByKeys, class ByQueries, class Launcher>
  static cudaError_t give_backward(const typename ByKeys::params& p, const launched_by<Launcher>& exec) {
    const cudaError_t e = exec.template launch<ByKeys>(ByKeys::side::work(p), p);
    return e == cudaSuccess ? exec.template launch<ByQueries>(ByQueries::side::work(p), p) : e;
  }
  /// True when the class is wide enough: then the call was given to it, and `e` says how that went.
  template <class T, class Out, class Class, class Mask, class Launcher>
  static bool try_forward(const forward_params<T, Out, Mask>& p, const launched_by<Launcher>& exec, cudaError_t& e) {
    if constexpr (sizeof(T) == 2)
      if (p.qk_dim <= Class::qk && p.v_dim <= Class::v) {
        e = give_forward<attend_forward<T, Out, Class, Mask, Architecture>>(p, exec);
        return true;
      }
    return false;
  }
  template <class T, class Class, class Mask, class Launcher>
  static bool try_backward(const backward::arguments<T, Mask>& p, const launched_by<Launcher>& exec, cudaError_t& e) {
    if constexpr (sizeof(T) == 2)
      if (p.qk_dim <= Class::qk && p.v_dim <= Class::v) {
        e = give_backward<attend_backward_keys<T, Class, Mask, Architecture>,
                          attend_backward_queries<T, Class, Mask, Architecture>>(p, exec);
        return true;
      }
    return false;
  }
};

/// For any device from sm_80 on.
template <class... Classes>
using attention = attention_for<80, Classes...>;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
