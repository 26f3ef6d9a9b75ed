// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decode by the kernels of CUDA devices: the body of the host's test, over every transport of streams.
#include <algorithm>
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include <tests/cuda/engine.hpp>
#include <tests/support/decode.hpp>

namespace seqpar::test {
namespace {

using kernel = cuda::attention<cuda::head_class<32>>;
using on_streams = device_threads<on_kernels>;

/// P is rounded to T once.
constexpr double products = 1;

struct every_third {
  SEQPAR_HD bool allows(index_t q, index_t k) const { return (q - k) % 3 == 0; }
};

template <class T, class Engine, class Mask>
std::string fault_on(const Engine& on, const decode_problem& p, const Mask& mask) {
  const auto got = decode<T>(p, on, mask, kernel{});
  if (const std::string found = complaints(); !found.empty()) return found;
  return fault_of<T>(p, got, std::same_as<T, float> ? 0 : products);
}

std::vector<decode_problem> problems() {
  std::vector<decode_problem> all;
  all.push_back({.cache = empty_cache(4), .mask = window_and_sinks, .steps = 12});  // first all but one have nothing
  decode_problem uneven{.cache = caches(3, 7, 2)[1], .steps = 5, .fresh = 3};
  uneven.shape = {.batch = 3, .heads = 6, .kv_heads = 3, .head_dim = 5, .value_dim = 7, .cache_rows = 0};
  all.push_back(uneven);
  decode_problem long_lists{.cache = caches(2, 50, 5)[0].grown(1100), .steps = 2, .team = {1, 2}};
  long_lists.queries = {{300, 2, 400}, {600, 2, 1}};  // positions decide which of the keys are seen
  long_lists.shape = {.batch = 2, .heads = 4, .kv_heads = 1, .head_dim = 16, .cache_rows = 0};
  all.push_back(long_lists);
  decode_problem anywhere{.cache = caches(2, 12, 1)[0], .steps = 3};
  anywhere.queries = {{0, 0, 1}, {3, 3, 4}, {14, 2, -9}};
  all.push_back(anywhere);
  return all;
}

}  // namespace

TEST_CASE("decode by the kernels over threads with streams equals the definition at every step") {
  for (const decode_problem& p : problems()) CHECK(fault_on<float>(on_streams{}, p, p.mask) == "");
  CHECK(fault_on<float>(on_streams{.overlap = false}, problems()[1], problems()[1].mask) == "");
}

TEST_CASE("decode by the kernels over NCCL equals the definition at every step") {
  for (const decode_problem& p : problems())
    if (p.ranks() <= devices()) CHECK(fault_on<bfloat16>(nccl_threads<on_kernels>{}, p, p.mask) == "");
}

TEST_CASE("a mask that the kernels can ask is asked, one that they cannot is refused by advance") {
  decode_problem p{.cache = caches(2, 9, 1)[1], .mask = any_mask(every_third{}, "every third"), .steps = 3, .fresh = 2};
  CHECK(fault_on<float>(on_streams{}, p, every_third{}) == "");
  p.shape.cache_rows = 20;
  p.shape.queries = 2;
  on_streams{}.run({.ranks = 2}, [&](const on_streams::transport& world) {
    decoder<float, on_streams, kernel> rank(world, p, on_streams{}, p.mask, kernel{});
    rank.prepare();
    const status s = rank.advance(p.cache, 2);
    check(world.recover());
    if (s.message().find("this kernel cannot ask this type of mask") == std::string::npos) raise(error(s));
  });
}

TEST_CASE(
    "a forward captured over a cache with nothing in it is replayed as the cache grows, with the bits of eager runs") {
  using engine = nccl_threads<on_kernels>;
  for (const mesh_shape& team : {mesh_shape{1, 1}, mesh_shape{3, 1}, mesh_shape{2, 2}}) {
    decode_problem p{.cache = empty_cache(static_cast<int>(team.ring)), .steps = 70 * team.ring, .team = team};
    p.shape.cache_rows = p.cache.rows_for(p.steps);
    if (p.ranks() > devices()) continue;
    engine{}.run({.ranks = p.ranks()}, [&](const nccl::transport& t) {
      using rank_type = decoder<bfloat16, engine, kernel>;
      rank_type eager(t, p, engine{}, p.mask, kernel{}), replayed(t, p, engine{}, p.mask, kernel{});
      for (rank_type* r : {&eager, &replayed}) {
        r->prepare();
        r->aim(queries_of<bfloat16>(p, 0), 1);
        check(r->advance(p.cache, run{0, 1, 1}));
      }
      const cudaStream_t stream = replayed.site.exec.compute;
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      const status s = replayed.forward();
      check_cuda(cudaStreamEndCapture(stream, &graph));
      check(s);
      check_cuda(cudaGraphInstantiate(&executable, graph, 0));
      check_cuda(cudaGraphDestroy(graph));
      any_cache cache = p.cache;
      for (index_t step = 0; step < p.steps; step += 1 + step / 4) {
        const index_t more = step + 1 - cache.token_count();
        cache = cache.grown(more);
        for (rank_type* r : {&eager, &replayed}) {
          check(r->append(cache, more));
          check(r->advance(cache, 1));
          std::ranges::copy(queries_of<bfloat16>(p, step), r->steps.back().q.begin());
        }
        check(eager.forward());
        eager.site.settle();
        check_cuda(cudaGraphLaunch(executable, stream));
        replayed.site.settle();
        if (!(eager.result() == replayed.result()))
          raise(error(errc::invalid_argument, "a replay differs at step " + std::to_string(step)));
      }
      check_cuda(cudaGraphExecDestroy(executable));
    });
  }
  CHECK(complaints() == "");
}

TEST_CASE("memory of the host and calls on another executor than prepare's are refused by name") {
  const decode_problem p{.cache = empty_cache(1).grown(3),
                         .shape = {.heads = 1, .kv_heads = 1, .head_dim = 4, .cache_rows = 8}};
  on_streams{}.run({.ranks = 1}, [&](const on_streams::transport& world) {
    decoder<float, on_streams, kernel> rank(world, p, on_streams{}, p.mask, kernel{});
    const auto refused = [&](const status& s, const std::string& text) {
      check(world.recover());
      if (s.message().find(text) == std::string::npos) raise(error(errc::invalid_argument, text + "? " + s.message()));
    };
    const bool everywhere =
        space_of(rank.site.exec).problem_of(&p) == nullptr;  // a device that reads the host's memory
    if (!everywhere) {
      const failure f = rank.plan.try_prepare(host_memory(rank.plan.memory()), rank.site.exec);
      check(world.recover());
      const std::string said = f ? f->what() : "nothing";
      if (said.find("a buffer is host memory; give memory of the device: memory.tables") == std::string::npos)
        raise(error(errc::invalid_argument, "host tables: " + said));
    }
    rank.prepare();
    refused(rank.plan.advance(p.cache, 1, rank.given), "prepare was given another executor");
    refused(rank.plan.append(p.cache, rank.last(3, 3)), "prepare was given another executor");
    check(rank.append(p.cache, 3));
    check(rank.advance(p.cache, 1));
    rank.aim(queries_of<float>(p, 0), 1);
    if (everywhere) return;
    std::vector<float> k(rank.k.size());
    rank.a.k.pointer = k.data();
    refused(rank.forward(), "a buffer is host memory; give memory of the device: k");
    append_arguments<float> a = rank.last(3, 3);
    a.k_cache.pointer = k.data();
    refused(rank.plan.append(p.cache, a, rank.site.exec),
            "a buffer is host memory; give memory of the device: k_cache");
  });
}

#ifndef __CUDACC__
TEST_CASE("advance, append and forward never wait for a stream and allocate nothing on a device") {
  using engine = nccl_threads<on_kernels>;
  const decode_problem p{.cache = empty_cache(2),
                         .shape = {.heads = 2, .kv_heads = 1, .head_dim = 8, .cache_rows = 40}};
  const auto waits = [] {
    std::size_t n = 0;
    for (const char* f : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamQuery",
                          "cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc",
                          "cudaEventCreateWithFlags", "cudaMemcpy"})
      n += cuda_on_cpu::calls(f);
    return n;
  };
  std::atomic<int> ready{0}, done{0};
  std::atomic<std::size_t> before{0}, after{0};
  engine{}.run({.ranks = 2}, [&](const nccl::transport& t) {
    decoder<bfloat16, engine, kernel> rank(t, p, engine{}, p.mask, kernel{});
    rank.prepare();
    rank.aim(queries_of<bfloat16>(p, 0), 1);
    const auto meet = [](std::atomic<int>& all) {
      for (++all; all < 2;) std::this_thread::yield();
    };
    meet(ready);
    before = waits();
    any_cache cache = p.cache;
    for (int step = 0; step < 40; ++step) {
      cache = cache.grown(2);
      check(rank.plan.append(cache, rank.last(1, 1), rank.site.exec));
      check(rank.advance(cache, 1));
      check(rank.forward());
    }
    after = waits();
    meet(done);
  });
  CHECK(before == after);
  CHECK(complaints() == "");
}
#endif

}  // namespace seqpar::test
