// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine underneath: what is ordered, what runs when, and what it may touch. Everything here is held by one lock.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/control.hpp"

namespace cuda_on_cpu {

/// TSan sees neither reads nor writes nor locks of this scope.
class unseen {
 public:
  unseen();
  ~unseen();
  unseen(const unseen&) = delete;
  unseen& operator=(const unseen&) = delete;
};

/// An order that CUDA promises: what came before release() happened before what comes after acquire().
class edge {
 public:
  void release();
  void acquire();

 private:
  char mark_ = 0;
};

struct machine;
machine& the_machine();

/// Holds the machine's lock, unseen.
struct guard {
  guard();
  unseen quiet;
  std::unique_lock<std::mutex> lock;
};

/// Leaves the lock, and is seen, for a while: what users can see is done here.
class outside {
 public:
  explicit outside(guard&);
  ~outside();
  outside(const outside&) = delete;
  outside& operator=(const outside&) = delete;

 private:
  guard& held_;
};

/// Numbers that look random, the same for the same seed.
class dice {
 public:
  explicit dice(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t operator()();

 private:
  std::uint64_t state_;
};

/// Memory that a call gave out; it stays readable until the last operation on it is over, and that is how late
/// operations on freed memory are found.
struct allocation {
  enum class kind { device, pinned, managed };
  allocation(char* at, std::size_t size, kind of, int ordinal) : begin(at), bytes(size), what(of), device(ordinal) {}
  allocation(const allocation&) = delete;
  allocation& operator=(const allocation&) = delete;
  ~allocation() { std::free(begin); }
  bool on_device() const { return what != kind::pinned; }

  char* begin;
  std::size_t bytes;
  kind what;
  int device;
  bool freed = false;
  bool for_windows = false;  // from ncclMemAlloc
};
using allocation_ptr = std::shared_ptr<allocation>;  // none: pageable host memory

/// What an operation does, and the memory it uses.
struct job {
  std::string name;
  std::function<void()> work;
  std::vector<allocation_ptr> memory;
};
using job_ptr = std::shared_ptr<const job>;

/// One operation of a stream. Besides its stream's order it waits for `after`.
struct task {
  job_ptr what;
  std::vector<std::shared_ptr<task>> after;
  bool done = false;
  edge issued, finished;
};
using task_ptr = std::shared_ptr<task>;

struct capture;

/// One call may not be made at some moments of a capture.
enum class manners { harmless, unsafe };

struct machine {
  std::mutex mutex;
  std::condition_variable changed;
  settings set;

  std::map<char*, allocation_ptr> memory;
  std::set<cudaStream_t> streams;  // alive, or still working after cudaStreamDestroy
  std::vector<std::thread> ended;  // have nothing left to do but return
  std::map<int, cudaStream_t> legacy;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> graph_execs;
  std::set<std::shared_ptr<capture>> captures;  // under way
  std::set<std::pair<int, int>> peers;
  // Set by the NCCL half: every waiting operation gives up; all communicators are freed; those that are left.
  std::function<void()> end_nccl, forget_nccl;
  std::function<std::string()> nccl_leaks;

  std::chrono::steady_clock::time_point moved_last = std::chrono::steady_clock::now();
  std::map<std::string, std::size_t> calls;
  std::map<std::pair<int, int>, std::size_t> links;
  std::vector<std::string> found;
  cudaError_t broken = cudaSuccess;  // a sticky error
  int made = 0;                      // names streams

  void note(std::string mistake) { found.push_back(std::move(mistake)); }
  void progress();
  void join_ended();
};

/// What a thread knows.
struct thread_state {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  bool in_host_function = false;
  const char* calling = "";
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
thread_state& this_thread();

/// Waits a while, outside of the lock.
void nap(dice&);
/// Does it, unless its memory is gone.
void perform(const job&);
/// Waits until the task is over.
void finish(guard&, const task_ptr&);
/// Does the work in stream order, or captures it. `after` as in task.
cudaError_t submit(cudaStream_t, job, std::vector<task_ptr> after = {});
task_ptr enqueue(cudaStream_t, job_ptr, std::vector<task_ptr> after);
/// The same for work that belongs to several streams, the first of which does it, and that follows what `order` holds:
/// an event that stands for the work so submitted before.
cudaError_t submit_across(const std::vector<cudaStream_t>&, CUevent_st& order, job);
cudaStream_t make_stream(int device, bool blocking);
/// The stream that a handle means; null with an error for none. Using the legacy stream may end captures.
cudaStream_t resolve(cudaStream_t, cudaError_t&);
/// Memory that holds the range; an error if the range leaves it.
allocation_ptr locate(const void* pointer, std::size_t bytes, cudaError_t&);
cudaError_t allocate(void** out, std::size_t bytes, allocation::kind);
cudaError_t release(void* p, bool on_device);

// Capture (runtime_graph.cpp).
cudaError_t add_node(cudaStream_t, job_ptr);
cudaError_t add_node_across(const std::vector<cudaStream_t>&, CUevent_st& order, job_ptr);
cudaError_t join_or_refuse(cudaStream_t, cudaEvent_t);  // cudaStreamWaitEvent where either side captures
void forget_stream(cudaStream_t);
void forget_graphs();
cudaError_t refuse_unsafe();
cudaError_t invalidate(capture&, cudaError_t);
cudaError_t invalidate_blocking(int device);  // use of the legacy stream

/// How each function begins and ends: counted, refused where it must be, its error remembered.
cudaError_t enter(const char* function, manners);
cudaError_t leave(cudaError_t);
template <class Body>
cudaError_t api(const char* function, manners how, Body body) {
  guard held;
  cudaError_t e = enter(function, how);
  if (e == cudaSuccess) e = body(held);
  return leave(e);
}

}  // namespace cuda_on_cpu

struct CUstream_st {
  int name;
  int device;
  bool blocking;  // ordered with the legacy stream
  bool closed = false;
  std::thread worker{};
  std::condition_variable filled{};  // or closed
  std::deque<cuda_on_cpu::task_ptr> queue{};
  cuda_on_cpu::task_ptr last{};
  std::shared_ptr<cuda_on_cpu::capture> in{};  // being captured
  std::vector<cudaGraphNode_t> tail{};         // what the next node follows
};

struct CUevent_st {
  int device;
  cuda_on_cpu::task_ptr last;                // what the last record waits for; none: never recorded
  std::shared_ptr<cuda_on_cpu::capture> in;  // recorded in a capture, at
  std::vector<cudaGraphNode_t> tail;
};
