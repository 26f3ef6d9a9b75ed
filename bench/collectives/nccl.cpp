// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collectives over NCCL: a thread and a device for each rank. Verbs that move, none that add: those want nvcc.
#include <bench/collectives/collectives.hpp>
#include <bench/support/sites.hpp>
#include <seqpar/nccl.hpp>
#include <seqpar/transport/threads.hpp>

namespace seqpar::bench {
namespace {

void check_cuda(cudaError_t e) {
  check(cuda::status_of(e, "collectives: a call of the CUDA runtime failed"));
}

/// Ranks talk as threads; their memory is their device's.
class site : public talk<threads::transport> {
 public:
  explicit site(const threads::transport& host) : talk(host) {
    check_cuda(cudaStreamCreateWithFlags(&exec_.compute, cudaStreamNonBlocking));
    exec_.exchange = exec_.compute;
  }
  site(const site&) = delete;
  ~site() {
    give_back();
    cudaStreamDestroy(exec_.compute);
  }
  const cuda::on_stream& exec() const { return exec_; }
  void* take(index_t bytes) {
    void* p = nullptr;
    if (bytes > 0) check_cuda(cudaMalloc(&p, static_cast<std::size_t>(bytes)));
    return taken_.emplace_back(p);
  }
  void give_back() {
    for (void* p : taken_) cudaFree(p);
    taken_.clear();
  }
  void write(void* to, const void* from, index_t bytes) const { copy(to, from, bytes); }
  void read(void* to, const void* from, index_t bytes) const { copy(to, from, bytes); }
  void finish() const { check_cuda(cudaStreamSynchronize(exec_.compute)); }
  std::function<void()> plain(const ask&, const route&, int, const void*, void*) const { return {}; }

 private:
  static void copy(void* to, const void* from, index_t bytes) {
    if (bytes > 0) check_cuda(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  }
  cuda::on_stream exec_{};
  std::vector<void*> taken_;
};

}  // namespace

void measure_nccl(const command& c, const report& tell) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
    return std::puts("collectives: skipped: no CUDA device here"), void();
  run_ranks(c.ranks > 0 ? c.ranks : devices, [&](const threads::transport& host) {
    check_cuda(cudaSetDevice(host.rank()));
    nccl::world world(host, {.deadline = std::chrono::minutes(1)});
    const nccl::transport t(world);
    site mine(host);
    for (const ask& a : c.asks(host.size())) {
      const figures f = measure(t, mine, a, c.work);
      if (host.rank() == 0) tell(a, f);
    }
  });
}

}  // namespace seqpar::bench
