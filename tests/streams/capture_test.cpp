// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {

/// The graph of what run() gives to the rank's streams.
template <class Rank>
cudaGraphExec_t captured(Rank& rank) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(rank.site.exec.compute, cudaStreamCaptureModeThreadLocal));
  const status s = rank.run();
  check_cuda(cudaStreamEndCapture(rank.site.exec.compute, &graph));
  check(s);
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  check_cuda(cudaGraphDestroy(graph));
  return executable;
}
}  // namespace

TEST_CASE(
    "after prepare forward and backward are captured in their first run, and a replay has the bits of an eager run "
    "[K3]") {
  for (const mesh_shape& shape : {mesh_shape{1, 1}, mesh_shape{4, 1}, mesh_shape{1, 4}, mesh_shape{2, 2}})
    for (const schedule how : {schedule::direct, schedule::pass_along}) {
      if (shape.ring * shape.all_to_all > devices()) continue;
      on_nccl{}.run({.ranks = shape.ring * shape.all_to_all}, [&](nccl::transport t) {
        const attention_options options{.passes = forward_backward, .schedule = how};
        stream_rank<nccl::transport> eager(t, shape, options), replayed(t, shape, options);
        const cudaGraphExec_t graph = captured(replayed);
        for (int turn = 0; turn < 3; ++turn) {
          eager.fill(turn);
          replayed.fill(turn);
          check(eager.run());
          eager.site.settle();
          check_cuda(cudaGraphLaunch(graph, replayed.site.exec.compute));
          replayed.site.settle();
          if (eager.results() != replayed.results()) raise(error(errc::invalid_argument, "a replay differs"));
        }
        check_cuda(cudaGraphExecDestroy(graph));
      });
    }
}

}  // namespace seqpar::test
