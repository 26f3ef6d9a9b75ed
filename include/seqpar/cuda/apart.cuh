// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles kernels for cuda::apart: one file for nvcc says which.
#pragma once

#include <array>
#include <type_traits>

#include <seqpar/cuda/apart.hpp>
#include <seqpar/cuda/launch.cuh>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

template <class Body>
cudaError_t apart::launch(index_t blocks, const typename Body::params& p, cudaStream_t stream) {
  return gpu::launch<Body>(blocks, p, stream);
}
template <class Body>
cudaError_t apart::load_one() {
  return gpu::load<Body>();
}

namespace detail {
/// What keeps them in the object file.
template <class... Bodies>
std::array<void*, 2 * sizeof...(Bodies)> addresses_of(bodies<Bodies...>) {
  return {reinterpret_cast<void*>(&apart::launch<Bodies>)..., reinterpret_cast<void*>(&apart::load_one<Bodies>)...};
}

/// A plan whose mask is a functor has kernels of intervals, too.
template <class Kernel, class T, class Out, class Mask>
constexpr auto attention_bodies() {
  constexpr auto own = Kernel::template forward_bodies<T, Out, Mask>() + Kernel::template backward_bodies<T, Mask>();
  if constexpr (std::is_same_v<Mask, by_intervals>)
    return own;
  else
    return own + attention_bodies<Kernel, T, Out, by_intervals>();
}
}  // namespace detail

/// `template struct seqpar::cuda::kernels_apart<attention<head_class<64>>, bfloat16>;` compiles what plans ask for that
/// are given this kernel and these types of inputs, outputs and gradients; Mask: a functor, beside the intervals.
template <class Kernel, class T, class Out = T, class Grad = T, class Mask = by_intervals>
struct kernels_apart {
  static inline const auto addresses =
      detail::addresses_of(detail::attention_bodies<Kernel, T, Out, Mask>() + detail::space_bodies<T, Out, Grad>());
};

/// Bodies by name, for what else a program asks for: `template struct seqpar::cuda::bodies_apart<…>;`
template <class... Bodies>
struct bodies_apart {
  static inline const auto addresses = detail::addresses_of(bodies<Bodies...>{});
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
