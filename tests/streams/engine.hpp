// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks with streams: NCCL communicators, or threads that hand device memory to each other. "Kernels" are the host's,
// run in stream order by cudaLaunchHostFunc on managed memory, so that the same tests run on the stand-in and on a GPU.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/transport/nccl.hpp>
#include <seqpar/transport/threads_cuda.hpp>
#include <tests/support/engine.hpp>
#include <tests/support/small_rank.hpp>

namespace seqpar::test {

inline void check_cuda(cudaError_t e) {
  check(cuda::status_of(e, "test: a call of the runtime failed"));
}

/// How many ranks may have a device each.
inline int devices() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count));
  return count;
}

/// Work on a stream that the host does. A captured one is run by every launch of its graph, so closures are kept.
template <class F>
cudaError_t enqueue(cudaStream_t stream, F&& work) {
  static std::mutex mutex;
  static std::list<std::function<void()>> kept;
  std::function<void()>* closure;
  {
    const std::lock_guard lock(mutex);
    closure = &kept.emplace_back(std::forward<F>(work));
  }
  return cudaLaunchHostFunc(
      stream, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, closure);
}

/// Streams whose sums and kernels are the host's.
struct late_host : cuda::on_stream {};

class late_space : public cuda::stream_space {
 public:
  using cuda::stream_space::stream_space;
  template <class To, class From>
  void store(const block& to, const block& from, write how) const {
    note(enqueue(stream_, [=] { host_space{}.store<To, From>(to, from, how); }));
  }
  template <class X, class Y>
  void row_dots(const rows_view<const X>& x, const rows_view<const Y>& y, const heads_view<const float>& minus,
                const heads_view<float>& to) const {
    note(enqueue(stream_, [=] { host_space{}.row_dots(x, y, minus, to); }));
  }
  void merge(const state_rows& to, const state_rows& from) const {
    note(enqueue(stream_, [=] { host_space{}.merge(to, from); }));
  }
};
inline late_space space_of(const late_host& s) {
  return late_space(s);
}

/// A block kernel that runs in stream order.
struct late_kernel : host_fast {
  using host_fast::backward;
  using host_fast::forward;
  template <class Call, class Mask>
  void forward(const Call& call, const Mask& mask, const late_host& exec) const {
    run(call, exec, [mask](const Call& c) { host_fast{}.forward(c, mask); });
  }
  template <class Call, class Mask>
  void backward(const Call& call, const Mask& mask, const late_host& exec) const {
    run(call, exec, [mask](const Call& c) { host_fast{}.backward(c, mask); });
  }

 private:
  template <class Call, class F>
  static void run(const Call& call, const late_host& exec, F compute) {
    const std::vector segments(call.segments.begin(), call.segments.end());
    check_cuda(enqueue(exec.compute, [call, segments, compute] {
      Call c = call;
      c.segments = segments;
      compute(c);
    }));
  }
};

/// Memory that the host and the device of its maker may touch.
class managed_memory : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* p = nullptr;
    check_cuda(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal));
    return p;
  }
  void do_deallocate(void* p, std::size_t, std::size_t) override { cudaFree(p); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

/// A rank's two streams, as an Exec. Memory in use outlives the work: it is settled first.
template <class Exec>
class basic_stream_site {
 public:
  /// Without overlap the two are one.
  explicit basic_stream_site(bool overlap = true) {
    check_cuda(cudaStreamCreateWithFlags(&exec.compute, cudaStreamNonBlocking));
    exec.exchange = exec.compute;
    if (overlap) check_cuda(cudaStreamCreateWithFlags(&exec.exchange, cudaStreamNonBlocking));
  }
  basic_stream_site(const basic_stream_site&) = delete;
  ~basic_stream_site() {
    abandon();
    if (exec.exchange != exec.compute) cudaStreamDestroy(exec.exchange);
    cudaStreamDestroy(exec.compute);
  }
  void abandon() const {
    cudaStreamSynchronize(exec.exchange);
    cudaStreamSynchronize(exec.compute);
  }
  void settle() const { check_cuda(cudaStreamSynchronize(exec.compute)); }

  Exec exec{};
  managed_memory resource;
  std::pmr::memory_resource* memory = &resource;
};
using stream_site = basic_stream_site<late_host>;

template <class Transport>
using stream_rank = small_rank<Transport, late_kernel, stream_site>;

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
/// Raises unless the graph of a first run, with other inputs each turn, has the bits of eager runs.
template <class Rank>
void compare_replays(Rank& eager, Rank& replayed, int turns) {
  const cudaGraphExec_t graph = captured(replayed);
  for (int turn = 0; turn < turns; ++turn) {
    eager.fill(turn);
    replayed.fill(turn);
    check(eager.run());
    eager.site.settle();
    check_cuda(cudaGraphLaunch(graph, replayed.site.exec.compute));
    replayed.site.settle();
    if (eager.results() != replayed.results()) raise(error(errc::invalid_argument, "a replay differs"));
  }
  check_cuda(cudaGraphExecDestroy(graph));
}

/// Threads that share one device, or have one each.
template <class Exec>
struct device_threads {
  using transport = threads::device_transport;
  bool one_device = true, overlap = true;

  template <class F>
  void run(const threads::options& o, F&& f) const {
    run_ranks(o, [&](threads::transport t) {
      check_cuda(cudaSetDevice(one_device ? 0 : t.rank() % devices()));
      f(transport(t));
    });
  }
  auto site(const transport&) const { return basic_stream_site<Exec>(overlap); }
  template <class T>
  void combine(std::vector<T>&, const T&) const {}
};
using on_device_threads = device_threads<late_host>;

/// Threads with a device and an NCCL communicator each: devices() at most.
template <class Exec>
struct nccl_threads {
  using transport = nccl::transport;
  bool overlap = true;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);

  template <class F>
  void run(const threads::options& o, F&& f) const {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) raise(error(errc::transport_failed, "test: no unique id"));
    run_ranks(threads::options{.ranks = o.ranks}, [&](threads::transport t) {
      check_cuda(cudaSetDevice(t.rank()));
      nccl::world world(id, t.rank(), t.size(), {.deadline = deadline});
      try {
        f(transport(world));
      } catch (...) {
        transport(world).abort({});
        throw;
      }
    });
  }
  auto site(const transport&) const { return basic_stream_site<Exec>(overlap); }
  template <class T>
  void combine(std::vector<T>&, const T&) const {}
};
using on_nccl = nccl_threads<late_host>;

}  // namespace seqpar::test

// What small ranks over NCCL run, compiled once, in order_test.cpp.
extern template struct seqpar::attention_apart<float, seqpar::nccl::transport, seqpar::test::late_host,
                                               seqpar::test::late_kernel>;
