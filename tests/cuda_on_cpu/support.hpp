// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the stand-in's own tests need: "kernels", memory, and ranks that are threads with a device each.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/control.hpp"

namespace cuda_on_cpu {

inline void must(cudaError_t e) {
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}
inline void must(ncclResult_t r) {
  if (r != ncclSuccess) throw std::runtime_error(ncclGetErrorString(r));
}

/// A kernel: runs once, when the stream gets there.
template <class F>
cudaError_t run_in(cudaStream_t s, F f) {
  auto* closure = new F(std::move(f));
  const auto e = cudaLaunchHostFunc(
      s,
      [](void* p) {
        const std::unique_ptr<F> once(static_cast<F*>(p));
        (*once)();
      },
      closure);
  if (e != cudaSuccess) delete closure;
  return e;
}

/// A kernel that a graph may run many times; it must outlive the graph.
template <class F>
cudaError_t run_often_in(cudaStream_t s, F& f) {
  return cudaLaunchHostFunc(
      s, [](void* p) { (*static_cast<F*>(p))(); }, &f);
}

enum class where { device, pinned };

/// Some ints.
class ints {
 public:
  explicit ints(std::size_t count, where at = where::device) : count_(count), at_(at) {
    void* p = nullptr;
    must(at == where::device ? cudaMalloc(&p, bytes()) : cudaMallocHost(&p, bytes()));
    begin_ = static_cast<int*>(p);
  }
  ints(const ints&) = delete;
  ints& operator=(const ints&) = delete;
  ~ints() { static_cast<void>(at_ == where::device ? cudaFree(begin_) : cudaFreeHost(begin_)); }
  int* data() const { return begin_; }
  int& operator[](std::size_t i) const { return begin_[i]; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(int); }
  void fill(int value) const {
    for (std::size_t i = 0; i < count_; ++i) begin_[i] = value;
  }
  bool all(int value) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (begin_[i] != value) return false;
    return true;
  }

 private:
  int* begin_;
  std::size_t count_;
  where at_;
};

class stream {
 public:
  explicit stream(unsigned flags = cudaStreamNonBlocking) { must(cudaStreamCreateWithFlags(&handle_, flags)); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { static_cast<void>(cudaStreamDestroy(handle_)); }
  operator cudaStream_t() const { return handle_; }
  void sync() const { must(cudaStreamSynchronize(handle_)); }

 private:
  cudaStream_t handle_ = nullptr;
};

class event {
 public:
  event() { must(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming)); }
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() { static_cast<void>(cudaEventDestroy(handle_)); }
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

/// `after` goes on behind what `before` holds now.
inline void order(cudaStream_t before, cudaStream_t after) {
  const event e;
  must(cudaEventRecord(e, before));
  must(cudaStreamWaitEvent(after, e, 0));
}

/// Runs body(rank) for each rank in a thread of its own, on the device of its number; throws what a rank threw.
template <class Body>
void on_ranks(int ranks, Body body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        must(cudaSetDevice(r));
        body(r);
      } catch (...) {
        thrown[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& e : thrown)
    if (e) std::rethrow_exception(e);
}

inline ncclUniqueId new_id() {
  ncclUniqueId id;
  must(ncclGetUniqueId(&id));
  return id;
}

/// A communicator, destroyed at the end, or aborted.
class comm {
 public:
  comm(const ncclUniqueId& id, int ranks, int rank) { must(ncclCommInitRank(&handle_, ranks, id, rank)); }
  comm(const comm&) = delete;
  comm& operator=(const comm&) = delete;
  ~comm() {
    if (handle_ != nullptr) static_cast<void>(ncclCommDestroy(handle_));
  }
  void abort() { must(ncclCommAbort(std::exchange(handle_, nullptr))); }
  operator ncclComm_t() const { return handle_; }

 private:
  ncclComm_t handle_ = nullptr;
};

}  // namespace cuda_on_cpu
