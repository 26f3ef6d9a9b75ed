// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include "harness.hpp"

using namespace seqpar;
using namespace seqpar::test;

TEST_CASE_TEMPLATE("a kernel writes exactly its workspace, nothing before and nothing behind", Kernel,
                   host_reference<float>, host_reference<double>, host_fast) {
  constexpr std::size_t guard = 256;
  constexpr std::byte canary{0x5a};
  for (index_t qk_dim : {1, 17, 64, 256})
    for (index_t v_dim : {1, 40, 256}) {
      const index_t n = 130;  // full tiles and a rest
      const auto q = filled(tag::q, n * qk_dim), k = filled(tag::k, n * qk_dim);
      const auto v = filled(tag::v, n * v_dim), dout = filled(tag::dout, n * v_dim);
      std::vector<float> out(v.size()), lse(n), delta(n), dq(q.size()), dk(q.size()), dv(v.size());
      const runs rows{{0, n, 1}};
      const query_rows queries = lower_intervals(
          rows,
          [](index_t p) {
            return make_intervals({0, p + 1});
          },
          n, Kernel::query_tile_rows);
      const key_rows keys = lower_keys(rows, queries, Kernel::key_tile_rows);
      const std::array<index_t, 4> wide{1, n, 1, qk_dim}, narrow{1, n, 1, v_dim};
      const kv_segment<float> segment{dense_view<const float>(k.data(), wide),
                                      dense_view<const float>(v.data(), narrow), keys.table(),
                                      dense_view(dk.data(), wide), dense_view(dv.data(), narrow)};

      const index_t bytes = Kernel::workspace_bytes(qk_dim, v_dim);
      CHECK(bytes % memory_alignment == 0);
      const std::size_t size = static_cast<std::size_t>(bytes), all = size + 2 * guard;
      const host_memory owner({.scratch = static_cast<index_t>(all)});
      std::byte* base = static_cast<std::byte*>(memory(owner).scratch.pointer);
      std::fill_n(base, all, canary);

      forward_call<float, float> forward;
      forward.q = dense_view<const float>(q.data(), wide);
      forward.queries = queries.table();
      forward.segments = {&segment, 1};
      forward.out = dense_view(out.data(), narrow);
      forward.lse = dense_heads(lse.data(), {1, 1, n});
      forward.workspace = base + guard;
      Kernel{}.forward(forward, by_intervals{});
      backward_call<float> backward;
      backward.q = forward.q;
      backward.dout = dense_view<const float>(dout.data(), narrow);
      backward.queries = forward.queries;
      backward.segments = forward.segments;
      backward.lse = forward.lse;
      backward.delta = dense_heads<const float>(delta.data(), {1, 1, n});
      backward.dq = dense_view(dq.data(), wide);
      backward.workspace = forward.workspace;
      Kernel{}.backward(backward, by_intervals{});

      const auto untouched = [&](std::size_t first) {
        return std::all_of(base + first, base + first + guard, [&](std::byte b) { return b == canary; });
      };
      CHECK(untouched(0));
      CHECK(untouched(guard + size));
    }
}
