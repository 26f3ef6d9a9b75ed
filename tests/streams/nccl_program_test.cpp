// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of docs/streams.md.
#include <doctest/doctest.h>

#include <seqpar/nccl.hpp>
#include <tests/streams/engine.hpp>

namespace {
using seqpar::test::check_cuda;

/// Device memory of a plan and of a few arrays, given back at the end.
class device_arena {
 public:
  explicit device_arena(const seqpar::memory_sizes& n) {
    view_ = {take(n.tables), take(n.scratch), take(n.exchange), take(n.saved)};
  }
  device_arena(const device_arena&) = delete;
  ~device_arena() {
    for (void* p : taken_) cudaFree(p);
  }
  operator seqpar::memory() const { return view_; }
  float* array(seqpar::index_t count) {
    return static_cast<float*>(take(count * static_cast<seqpar::index_t>(sizeof(float))).pointer);
  }

 private:
  seqpar::region take(seqpar::index_t bytes) {
    void* p = nullptr;
    if (bytes > 0) check_cuda(cudaMalloc(&p, static_cast<std::size_t>(bytes)));
    taken_.push_back(p);
    return {p, bytes};
  }
  seqpar::memory view_;
  std::vector<void*> taken_;
};

// [snippet]
void one_rank(seqpar::threads::transport host) {  // or mpi::transport: any transport for host memory
  check_cuda(cudaSetDevice(host.rank()));
  seqpar::nccl::world world(host, {.deadline = std::chrono::seconds(30)});  // meets the others, makes the communicator
  const seqpar::mesh team = seqpar::ring(seqpar::nccl::transport(world));

  seqpar::cuda::on_stream exec;
  check_cuda(cudaStreamCreateWithFlags(&exec.compute, cudaStreamNonBlocking));
  check_cuda(cudaStreamCreateWithFlags(&exec.exchange, cudaStreamNonBlocking));

  const seqpar::contiguous blocks{.tokens = 12, .ranks = team.size()};
  const seqpar::striped stripes{.tokens = 12, .ranks = team.size()};
  auto move = seqpar::plan_reshard(team, blocks, stripes, {.row_bytes = sizeof(float)});
  device_arena arena(move.memory());
  move.prepare(arena, exec);
  float* in = arena.array(blocks.count_of(team.index()));
  float* out = arena.array(stripes.count_of(team.index()));
  // … kernels on exec.compute write `in` …
  seqpar::check(move.forward(in, out, arena, exec));
  // … kernels on exec.compute read `out` …
  seqpar::check(team.transport().finish(exec, std::chrono::seconds(30)));  // when the host wants to know

  check_cuda(cudaStreamDestroy(exec.exchange));
  check_cuda(cudaStreamDestroy(exec.compute));
}
// [/snippet]
}  // namespace

TEST_CASE("the program of docs/streams.md runs") {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices));
  seqpar::run_ranks(std::min(devices, 3), one_rank);
}
