// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that does not say how much scratch it needs.
// expect: [seqpar] a kernel needs: static index_t workspace_bytes(index_t qk_dim, index_t v_dim);
#include <seqpar/kernel/explain.hpp>

struct idle {
  static constexpr seqpar::index_t query_tile_rows = 1, key_tile_rows = 1;
#ifdef TWIN
  static seqpar::index_t workspace_bytes(seqpar::index_t, seqpar::index_t) {
    return 0;
  }
#endif
  void forward(const auto&, const auto&) const {}
  void backward(const auto&, const auto&) const {}
};
static_assert(seqpar::explain_kernel<idle>());
