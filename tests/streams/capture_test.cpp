// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <cmath>

#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/window.hpp>
#include <tests/streams/engine.hpp>

namespace seqpar::test {
TEST_CASE(
    "after prepare forward and backward are captured in their first run, and a replay has the bits of an eager run "
    "[K3]") {
  for (const mesh_shape& shape : {mesh_shape{1, 1}, mesh_shape{4, 1}, mesh_shape{1, 4}, mesh_shape{2, 2}})
    for (const schedule how : {schedule::direct, schedule::pass_along, schedule::double_ring}) {
      if (shape.ring * shape.all_to_all > devices()) continue;
      on_nccl{}.run({.ranks = shape.ring * shape.all_to_all}, [&](nccl::transport t) {
        const index_t window = shape.ring > 1 ? shape.ring / 2 : 1;
        const attention_options options{.passes = forward_backward, .schedule = how, .window = window};
        stream_rank<nccl::transport> eager(t, shape, options), replayed(t, shape, options);
        compare_replays(eager, replayed, 3);
      });
    }
}

TEST_CASE("a plan with capacity has connected all its members: after an update the first run can be captured, too") {
  if (devices() < 4) return;
  on_nccl{}.run({.ranks = 4}, [](nccl::transport t) {
    const contiguous layout{.tokens = 64, .ranks = 4};
    const stream_site site;
    // Unchecked, so that no comparison of the plans has connected everybody before.
    auto plan = plan_attention<float>(
        ring(t), layout, window{.left = 3, .right = 0}, {.heads = 1, .kv_heads = 1, .head_dim = 8},
        {.passes = forward_only, .capacity = {.tokens_per_rank = 16}, .check = agreement::trusted}, late_kernel{});
    const guarded_memory memory(plan.memory(), site.memory);
    plan.prepare(memory, site.exec);
    plan.update(layout, window{.left = 64, .right = 0}, memory, site.exec);
    std::pmr::vector<float> x(16 * 8, .5f, site.memory), out(16 * 8, -1.f, site.memory), lse(16, site.memory);
    const rows_view<const float> rows = dense_view<const float>(x.data(), {1, 16, 1, 8});
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(site.exec.compute, cudaStreamCaptureModeThreadLocal));
    const status s = plan.forward({.q = rows,
                                   .k = rows,
                                   .v = rows,
                                   .out = dense_view(out.data(), {1, 16, 1, 8}),
                                   .lse = dense_heads(lse.data(), {1, 1, 16})},
                                  memory, site.exec);
    check_cuda(cudaStreamEndCapture(site.exec.compute, &graph));
    check(s);
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiate(&executable, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
    check_cuda(cudaGraphLaunch(executable, site.exec.compute));
    site.settle();
    check_cuda(cudaGraphExecDestroy(executable));
    for (float y : out)
      if (std::abs(y - .5f) > 1e-6f) raise(error(errc::invalid_argument, "a mean of equals is another number"));
  });
}

}  // namespace seqpar::test
