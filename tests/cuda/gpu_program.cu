// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of docs/gpu.md.
#include <doctest/doctest.h>

#include <list>

#include <seqpar/cuda.cuh>
#include <seqpar/nccl.hpp>
#include <seqpar/seqpar.hpp>

namespace {

void check_cuda(cudaError_t e) {
  seqpar::check(seqpar::cuda::status_of(e, "test: a call of the runtime failed"));
}

/// Memory that is given back at the end. An engine has its own arena; this one the host can read, too.
class device_arena {
 public:
  device_arena() = default;
  device_arena(const device_arena&) = delete;
  ~device_arena() {
    for (void* p : taken_) cudaFree(p);
  }
  seqpar::memory regions(const seqpar::memory_sizes& n) {
    return {take(n.tables), take(n.scratch), take(n.exchange), take(n.saved)};
  }
  template <class T>
  T* array(seqpar::index_t count, T value) {
    T* p = static_cast<T*>(take(count * static_cast<seqpar::index_t>(sizeof(T))).pointer);
    std::fill_n(p, count, value);
    return p;
  }

 private:
  seqpar::region take(seqpar::index_t bytes) {
    void* p = nullptr;
    if (bytes > 0) check_cuda(cudaMallocManaged(&p, static_cast<std::size_t>(bytes), cudaMemAttachGlobal));
    taken_.push_back(p);
    return {p, bytes};
  }
  std::list<void*> taken_;
};

using seqpar::bfloat16;

// [snippet]
using kernel = seqpar::cuda::attention<seqpar::cuda::head_class<128>>;  // dims up to 128 on tensor cores

seqpar::rows_view<bfloat16> one_step(seqpar::nccl::world& world, cudaStream_t compute, cudaStream_t exchange,
                                     device_arena& arena) {
  const seqpar::mesh team = seqpar::ring(seqpar::nccl::transport(world));
  const seqpar::zigzag layout{.tokens = 500, .ranks = team.size()};
  auto plan = seqpar::plan_attention<bfloat16>(team, layout, seqpar::causal{},
                                               {.batch = 1, .heads = 4, .kv_heads = 2, .head_dim = 128},
                                               {.passes = seqpar::forward_backward}, kernel{});
  seqpar::cuda::on_device exec;  // was: seqpar::on_host
  exec.compute = compute;
  exec.exchange = exchange;
  exec.sm_margin = 8;  // multiprocessors left to the exchange; 0: none
  const seqpar::memory memory = arena.regions(plan.memory());
  plan.prepare(memory, exec);  // tables go to the device, and the kernels

  const auto n = plan.q_rows();
  const auto tensor = [&](seqpar::index_t heads, float value) {
    return seqpar::dense_view(arena.array(n * heads * 128, bfloat16(value)), {1, n, heads, 128});
  };
  const auto q = tensor(4, 1), k = tensor(2, 1), v = tensor(2, 1), out = tensor(4, 0), dout = tensor(4, 1);
  const auto dq = tensor(4, 0), dk = tensor(2, 0), dv = tensor(2, 0);
  const auto lse = seqpar::dense_heads(arena.array(4 * n, 0.f), {1, 4, n});
  // … kernels of yours on `compute` write q, k, v …
  seqpar::check(plan.forward({.q = q, .k = k, .v = v, .out = out, .lse = lse}, memory, exec));
  // … and read out, write dout …
  seqpar::check(plan.backward(
      {.q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv}, memory, exec));
  seqpar::check(team.transport().finish(exec, std::chrono::seconds(30)));  // when the host wants to know
  return out;
}
// [/snippet]

}  // namespace

TEST_CASE("on a GPU the program of docs/gpu.md is right") {
  seqpar::run_ranks({.ranks = 1}, [&](const seqpar::threads::transport& host) {
    seqpar::nccl::world world(host, {.deadline = std::chrono::seconds(30)});
    cudaStream_t compute = nullptr, exchange = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    check_cuda(cudaStreamCreateWithFlags(&exchange, cudaStreamNonBlocking));
    {
      device_arena arena;
      const auto out = one_step(world, compute, exchange, arena);
      bool right = true;  // like every value
      for (seqpar::index_t i = 0; i < out.elements(); ++i) right = right && static_cast<float>(out.pointer[i]) == 1;
      CHECK(right);
    }
    check_cuda(cudaStreamDestroy(exchange));
    check_cuda(cudaStreamDestroy(compute));
  });
}
