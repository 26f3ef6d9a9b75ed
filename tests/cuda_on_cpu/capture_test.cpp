// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What may be captured, what ends a capture, and how graphs replay.
#include <atomic>

#include "tests/cuda_on_cpu/fixture.hpp"

namespace cuda_on_cpu {
namespace {

constexpr auto global = cudaStreamCaptureModeGlobal;
constexpr auto local = cudaStreamCaptureModeThreadLocal;
constexpr auto relaxed = cudaStreamCaptureModeRelaxed;

class graph {
 public:
  explicit graph(cudaStream_t s) {
    cudaGraph_t g = nullptr;
    must(cudaStreamEndCapture(s, &g));
    must(cudaGraphInstantiate(&exec_, g, 0));
    must(cudaGraphDestroy(g));
  }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  ~graph() { static_cast<void>(cudaGraphExecDestroy(exec_)); }
  void launch(cudaStream_t s) const { must(cudaGraphLaunch(exec_, s)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

cudaError_t end(cudaStream_t s) {
  cudaGraph_t g = nullptr;
  const auto e = cudaStreamEndCapture(s, &g);
  CHECK((g == nullptr) == (e != cudaSuccess));
  if (g != nullptr) must(cudaGraphDestroy(g));
  return e;
}

cudaStreamCaptureStatus status_of(cudaStream_t s) {
  auto status = cudaStreamCaptureStatusNone;
  must(cudaStreamIsCapturing(s, &status));
  return status;
}

// The call gives this error, and the capture of `s` ends with it, and `s` can be used again.
template <class Call>
void ends_capture(cudaStreamCaptureMode mode, cudaError_t wanted, Call call,
                  cudaError_t at_end = cudaErrorStreamCaptureInvalidated) {
  reset();
  const stream s(cudaStreamDefault);
  must(cudaStreamBeginCapture(s, mode));
  expect(call(s), wanted);
  CHECK(status_of(s) == cudaStreamCaptureStatusInvalidated);
  expect(cudaMemsetAsync(nullptr, 0, 0, s), cudaSuccess);  // nothing to do, nothing captured
  expect(cudaLaunchHostFunc(
             s, [](void*) {}, nullptr),
         cudaErrorStreamCaptureInvalidated);
  expect(end(s), at_end);
  CHECK(report() != "");
  CHECK(status_of(s) == cudaStreamCaptureStatusNone);
  must(run_in(s, [] {}));
  s.sync();
}

TEST_CASE("a captured operation does not run until its graph does, and then each time") {
  const machine_of_test m;
  const stream s;
  int runs = 0;
  auto count = [&] { ++runs; };
  must(cudaStreamBeginCapture(s, global));
  CHECK(status_of(s) == cudaStreamCaptureStatusActive);
  must(run_often_in(s, count));
  const graph g(s);
  CHECK(status_of(s) == cudaStreamCaptureStatusNone);
  s.sync();
  CHECK(runs == 0);
  for (int i = 0; i < 10; ++i) g.launch(s);
  s.sync();
  CHECK(runs == 10);
}

TEST_CASE("launches of one graph follow each other, whatever their streams") {
  const machine_of_test m;
  const stream a, b;
  int runs = 0;
  auto count = [&] {
    const int before = runs;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    runs = before + 1;
  };
  must(cudaStreamBeginCapture(a, global));
  for (int i = 0; i < 5; ++i) must(run_often_in(a, count));
  const graph g(a);
  for (int i = 0; i < 10; ++i) g.launch(i % 2 == 0 ? a : b);
  a.sync();
  b.sync();
  CHECK(runs == 50);
}

TEST_CASE("a graph keeps the order that events gave it") {
  const machine_of_test m;
  const stream a, b;
  int value = 0, seen = 0;
  auto write = [&] { ++value; };
  auto read = [&] { seen = value; };
  must(cudaStreamBeginCapture(a, global));
  must(run_often_in(a, write));
  order(a, b);
  must(run_often_in(b, read));
  order(b, a);
  must(run_often_in(a, write));
  const graph g(a);
  for (int i = 0; i < 30; ++i) {
    g.launch(a);
    a.sync();
    CHECK(seen == 2 * i + 1);
  }
}

TEST_CASE("replays copy what is in memory then, also from pageable memory") {
  const machine_of_test m;
  const stream s;
  const ints device(4), out(4, where::pinned);
  std::vector<int> in(4, 1);
  must(cudaStreamBeginCapture(s, global));
  must(cudaMemcpyAsync(device.data(), in.data(), 16, cudaMemcpyHostToDevice, s));
  must(cudaMemcpyAsync(out.data(), device.data(), 16, cudaMemcpyDeviceToHost, s));
  const graph g(s);
  for (int i = 5; i < 8; ++i) {
    in.assign(4, i);
    g.launch(s);
    s.sync();
    CHECK(out.all(i));
  }
}

TEST_CASE("streams join a capture through events, and both branches run in any order") {
  const machine_of_test m;
  const stream a, b;
  bool seen[2] = {};
  std::atomic<int> order_seen{0};
  auto left = [&] {
    int none = 0;
    order_seen.compare_exchange_strong(none, 1);
  };
  auto right = [&] {
    int none = 0;
    order_seen.compare_exchange_strong(none, 2);
  };
  must(cudaStreamBeginCapture(a, global));
  order(a, b);
  CHECK(status_of(b) == cudaStreamCaptureStatusActive);
  unsigned long long id_a = 0, id_b = 0;
  auto status = cudaStreamCaptureStatusNone;
  must(cudaStreamGetCaptureInfo(a, &status, &id_a));
  must(cudaStreamGetCaptureInfo(b, &status, &id_b));
  CHECK(id_a == id_b);
  must(run_often_in(a, left));
  must(run_often_in(b, right));
  order(b, a);
  const graph g(a);
  CHECK(status_of(b) == cudaStreamCaptureStatusNone);
  for (int i = 0; i < 200 && !(seen[0] && seen[1]); ++i) {
    order_seen = 0;
    g.launch(a);
    a.sync();
    seen[order_seen - 1] = true;
  }
  CHECK(seen[0]);
  CHECK(seen[1]);
}

TEST_CASE("work that does not come back to the captured stream is an error") {
  reset();
  const stream a, b;
  must(cudaStreamBeginCapture(a, global));
  order(a, b);
  auto nothing = [] {};
  must(run_often_in(b, nothing));
  expect(end(a), cudaErrorStreamCaptureUnjoined);
  CHECK(status_of(b) == cudaStreamCaptureStatusNone);
}

TEST_CASE("synchronizing ends a capture in every mode") {
  for (const auto mode : {global, local, relaxed}) {
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) { return cudaStreamSynchronize(s); });
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) { return cudaStreamQuery(s); });
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [](cudaStream_t) { return cudaDeviceSynchronize(); });
  }
}

TEST_CASE("calls that may synchronize end captures that are not relaxed") {
  void* p = nullptr;
  const auto allocate = [&](cudaStream_t) { return cudaMalloc(&p, 4); };
  for (const auto mode : {global, local}) {
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, allocate);
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaMallocHost(&p, 4); });
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [&](cudaStream_t) { return cudaFree(nullptr); });
    ends_capture(mode, cudaErrorStreamCaptureUnsupported, [](cudaStream_t) {
      const event e;
      return cudaEventQuery(e);
    });
  }
  const machine_of_test m;
  const stream s;
  must(cudaStreamBeginCapture(s, relaxed));
  CHECK(allocate(s) == cudaSuccess);
  auto mode = relaxed;
  CHECK(end(s) == cudaSuccess);
  must(cudaFree(p));
  must(cudaStreamBeginCapture(s, global));
  must(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == global);
  CHECK(allocate(s) == cudaSuccess);
  must(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == relaxed);
  CHECK(end(s) == cudaSuccess);
  must(cudaFree(p));
}

TEST_CASE("another thread's allocation ends a global capture and no other") {
  const auto allocate_elsewhere = [] {
    auto e = cudaSuccess;
    std::thread([&] {
      void* p = nullptr;
      e = cudaMalloc(&p, 4);
      if (e == cudaSuccess) must(cudaFree(p));
    }).join();
    return e;
  };
  reset();
  const stream s;
  must(cudaStreamBeginCapture(s, global));
  CHECK(allocate_elsewhere() == cudaErrorStreamCaptureUnsupported);
  CHECK(end(s) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  must(cudaStreamBeginCapture(s, local));
  CHECK(allocate_elsewhere() == cudaSuccess);
  CHECK(end(s) == cudaSuccess);
}

TEST_CASE("a capture may not wait for work outside, nor outside for the capture") {
  ends_capture(local, cudaErrorStreamCaptureIsolation, [](cudaStream_t s) {
    const stream other;
    const event e;
    must(cudaEventRecord(e, other));
    return cudaStreamWaitEvent(s, e, 0);
  });
  ends_capture(local, cudaErrorStreamCaptureIsolation, [](cudaStream_t s) {
    const event never;
    return cudaStreamWaitEvent(s, never, 0);
  });
  ends_capture(local, cudaErrorStreamCaptureImplicit, [](cudaStream_t) {
    return cudaLaunchHostFunc(
        nullptr, [](void*) {}, nullptr);
  });
}

TEST_CASE("two captures may not become one") {
  reset();
  const stream a, b;
  const event e;
  must(cudaStreamBeginCapture(a, local));
  must(cudaStreamBeginCapture(b, local));
  must(cudaEventRecord(e, b));
  expect(cudaStreamWaitEvent(a, e, 0), cudaErrorStreamCaptureMerge);
  expect(end(a), cudaErrorStreamCaptureInvalidated);
  expect(end(b), cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("an event recorded in a capture cannot be asked, nor waited for afterwards") {
  const machine_of_test m;
  const stream s, other;
  const event e;
  must(cudaStreamBeginCapture(s, relaxed));
  must(cudaEventRecord(e, s));
  expect(cudaEventQuery(e), cudaErrorCapturedEvent);
  expect(cudaEventSynchronize(e), cudaErrorCapturedEvent);
  CHECK(end(s) == cudaSuccess);
  expect(cudaStreamWaitEvent(other, e, 0), cudaErrorCapturedEvent);
  must(cudaEventRecord(e, s));
  must(cudaStreamWaitEvent(other, e, 0));
  must(cudaEventSynchronize(e));
}

TEST_CASE("a capture ends where, and in the thread in which, it began") {
  reset();
  const stream s, forked;
  expect(cudaStreamBeginCapture(nullptr, global), cudaErrorStreamCaptureUnsupported);
  expect(end(s), cudaErrorStreamCaptureUnmatched);
  must(cudaStreamBeginCapture(s, global));
  order(s, forked);
  expect(end(forked), cudaErrorStreamCaptureUnmatched);
  expect(end(s), cudaErrorStreamCaptureInvalidated);
  const auto elsewhere = [&] {
    auto e = cudaSuccess;
    std::thread([&] {
      cudaGraph_t g = nullptr;
      e = cudaStreamEndCapture(s, &g);
      if (g != nullptr) must(cudaGraphDestroy(g));
    }).join();
    return e;
  };
  must(cudaStreamBeginCapture(s, local));
  CHECK(elsewhere() == cudaErrorStreamCaptureWrongThread);
  CHECK(end(s) == cudaErrorStreamCaptureInvalidated);
  must(cudaStreamBeginCapture(s, relaxed));
  CHECK(elsewhere() == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("a graph that uses freed memory breaks the device") {
  reset();
  const stream s;
  auto x = std::make_unique<ints>(4);
  must(cudaStreamBeginCapture(s, global));
  must(cudaMemsetAsync(x->data(), 0, 16, s));
  const graph g(s);
  g.launch(s);
  s.sync();
  CHECK(report() == "");
  x.reset();
  g.launch(s);
  CHECK(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
  CHECK(report() == "cudaMemsetAsync in stream 1 used memory that was freed before it had run\n");
  reset();
}

}  // namespace
}  // namespace cuda_on_cpu
