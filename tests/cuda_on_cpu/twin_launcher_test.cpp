// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bodies in stream order, on the stand-in runtime.
#include "tests/cuda_on_cpu/fixture.hpp"
#include "tests/cuda_on_cpu/twin_support.hpp"

namespace seqpar::twin {
namespace {

using cuda_on_cpu::expect;
using cuda_on_cpu::ints;
using cuda_on_cpu::must;
using cuda_on_cpu::stream;

// to[i] = 2·from[i] + 1, 4 at a time.
struct twice {
  struct params {
    int *to, *from;
    index_t quads;
  };
  static constexpr int threads = 32, blocks_per_sm = 1, shared_bytes = 512;
  template <class Hw>
  static void run(Hw& hw, const params& p) {
    auto own = hw.template shared<cuda::quad>(0) + hw.thread();
    for (index_t i = hw.block() * threads + hw.thread(); i < p.quads; i += hw.blocks() * threads) {
      hw.copy_async(own, p.from + 4 * i, true);
      hw.commit_copies();
      hw.template wait_copies<0>();
      cuda::quad x = *own;
      for (auto& word : x.word) word = 2 * word + 1;
      hw.store(p.to + 4 * i, x);
    }
  }
};

constexpr std::size_t count = 4 * 100;

TEST_CASE("Bodies run in the order of their stream, and a captured one in each replay") {
  const cuda_on_cpu::machine_of_test machine;
  const stream s;
  const ints a(count), b(count);
  const twice::params there{b.data(), a.data(), 100}, back{a.data(), b.data(), 100};
  take_report();
  must(cudaMemsetAsync(a.data(), 0, a.bytes(), s));
  must(launcher::launch<twice>(launcher::multiprocessors(), there, s));
  must(launcher::launch<twice>(2, back, s));
  s.sync();
  CHECK(a.all(3));
  CHECK(take_report().copied_bytes == 2 * 100 * 16);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  must(launcher::launch<twice>(1, there, s));
  must(launcher::launch<twice>(200, back, s));
  must(cudaStreamEndCapture(s, &graph));
  must(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 2; ++i) must(cudaGraphLaunch(replay, s));
  s.sync();
  CHECK(a.all(63));
  must(cudaGraphExecDestroy(replay));
  must(cudaGraphDestroy(graph));
}

TEST_CASE("What a body does wrong stands in the notebook, and the stream goes on") {
  cuda_on_cpu::reset();
  {
    const stream s;
    const ints a(count), b(count);
    must(cudaMemsetAsync(a.data(), 0, a.bytes(), s));
    must(launcher::launch<twice>(3, {b.data(), a.data(), 101}, s));
    must(launcher::launch<twice>(3, {b.data(), a.data(), 100}, s));
    s.sync();
    CHECK(b.all(1));
    CHECK(cuda_on_cpu::report().find("a kernel: thread 4 (warp 0, lane 4) of block 0") == 0);
    CHECK(cuda_on_cpu::report().find("an asynchronous copy of 16 bytes outside of all global memory") !=
          std::string::npos);
  }
  cuda_on_cpu::reset();
}

TEST_CASE("Two streams run bodies beside each other") {
  const cuda_on_cpu::machine_of_test machine;
  const stream s, t;
  const ints a(count), b(count), c(count), d(count);
  for (int i = 0; i < 10; ++i) {
    must(cudaMemsetAsync(a.data(), 0, a.bytes(), s));
    must(cudaMemsetAsync(c.data(), 0, c.bytes(), t));
    must(launcher::launch<twice>(3, {b.data(), a.data(), 100}, s));
    must(launcher::launch<twice>(3, {d.data(), c.data(), 100}, t));
  }
  s.sync();
  t.sync();
  CHECK(b.all(1));
  CHECK(d.all(1));
}

}  // namespace
}  // namespace seqpar::twin
