// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Why a type is not a kernel, one sentence per requirement.
#pragma once

#include <concepts>

#include <seqpar/kernel/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// static_assert(explain_kernel<my_kernel>()), or <my_kernel, my_exec>: true, or an error that names what is missing.
template <class K, class Exec = on_host>
constexpr bool explain_kernel() {
  static_assert(std::copyable<K>, "[seqpar] a kernel is a value without state: it must be copyable");
  static_assert(
      requires {
        { K::query_tile_rows } -> std::convertible_to<index_t>;
        { K::key_tile_rows } -> std::convertible_to<index_t>;
      },
      "[seqpar] a kernel needs: static constexpr index_t query_tile_rows = ..., key_tile_rows = ...;");
  static_assert(
      requires(index_t n) {
        { K::workspace_bytes(n, n) } -> std::convertible_to<index_t>;
      },
      "[seqpar] a kernel needs: static index_t workspace_bytes(index_t qk_dim, index_t v_dim);");
  static_assert(computes_on<K, Exec>,
                "[seqpar] a kernel needs: template <class T, class Out, class Mask> "
                "void forward(const forward_call<T, Out>& call, const Mask& mask) const; and template <class T, class "
                "Mask> void backward(const backward_call<T>& call, const Mask& mask) const; with the executor as a "
                "third argument where it is not on_host");
  return computes_on<K, Exec>;
}

}  // namespace v0_1
}  // namespace seqpar
