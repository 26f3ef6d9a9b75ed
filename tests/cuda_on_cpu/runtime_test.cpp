// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Devices, memory, copies, streams and events of the stand-in. planted.cpp shows that mistakes are found.
#include <atomic>
#include <cstring>
#include <numeric>

#include "tests/cuda_on_cpu/fixture.hpp"

namespace cuda_on_cpu {
namespace {

using namespace std::chrono_literals;

TEST_CASE("devices are as many as were set, and each thread has its own current one") {
  const machine_of_test m({.devices = 3});
  int n = 0, device = -1;
  must(cudaGetDeviceCount(&n));
  CHECK(n == 3);
  must(cudaSetDevice(2));
  std::thread([&] { must(cudaGetDevice(&device)); }).join();
  CHECK(device == 0);
  must(cudaGetDevice(&device));
  CHECK(device == 2);
  expect(cudaSetDevice(3), cudaErrorInvalidDevice);
  char a[32], b[32];
  must(cudaDeviceGetPCIBusId(a, sizeof a, 0));
  must(cudaDeviceGetPCIBusId(b, sizeof b, 1));
  CHECK(std::strcmp(a, b) != 0);
  cudaDeviceProp p{}, q{};
  must(cudaGetDeviceProperties(&p, 0));
  must(cudaGetDeviceProperties(&q, 1));
  CHECK(std::memcmp(&p.uuid, &q.uuid, sizeof p.uuid) != 0);
  adjust({.devices = 0});
  expect(cudaGetDeviceCount(&n), cudaErrorNoDevice);
  expect(cudaGetDevice(&device), cudaErrorNoDevice);
}

TEST_CASE("new memory is not zero, and the table knows whose it is") {
  const machine_of_test m;
  must(cudaSetDevice(1));
  const ints device(5), pinned(5, where::pinned);
  int pageable = 0;
  CHECK(device.all(-1));
  cudaPointerAttributes a{};
  must(cudaPointerGetAttributes(&a, device.data() + 4));
  CHECK(a.type == cudaMemoryTypeDevice);
  CHECK(a.device == 1);
  CHECK(a.hostPointer == nullptr);
  must(cudaPointerGetAttributes(&a, pinned.data()));
  CHECK(a.type == cudaMemoryTypeHost);
  must(cudaPointerGetAttributes(&a, &pageable));
  CHECK(a.type == cudaMemoryTypeUnregistered);
  void* managed = nullptr;
  must(cudaMallocManaged(&managed, 8, cudaMemAttachGlobal));
  must(cudaPointerGetAttributes(&a, managed));
  CHECK(a.type == cudaMemoryTypeManaged);
  must(cudaFree(managed));
  void* none = &pageable;
  must(cudaMalloc(&none, 0));
  CHECK(none == nullptr);
  must(cudaFree(none));
}

TEST_CASE("freeing what was not given out is refused and noted") {
  reset();
  const ints device(5), pinned(5, where::pinned);
  expect(cudaFree(device.data() + 1), cudaErrorInvalidValue);
  expect(cudaFree(pinned.data()), cudaErrorInvalidValue);
  expect(cudaFreeHost(device.data()), cudaErrorInvalidValue);
  CHECK(report() != "");
}

TEST_CASE("what is not given back is named") {
  reset();
  void* p = nullptr;
  cudaStream_t s = nullptr;
  cudaEvent_t e = nullptr;
  must(cudaMalloc(&p, 40));
  must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  must(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  CHECK(leaks() == "stream 1\n40 bytes of device memory\nevent of device 0\n");
  reset();
  CHECK(leaks() == "");
}

TEST_CASE("pageable memory is read before the copy returns and written before it returns") {
  const machine_of_test m;
  const stream s;
  const ints device(100);
  for (int i = 0; i < 20; ++i) {
    std::vector<int> host(100, i);
    must(cudaMemcpyAsync(device.data(), host.data(), device.bytes(), cudaMemcpyHostToDevice, s));
    std::fill(host.begin(), host.end(), -7);
    must(cudaMemcpyAsync(host.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost, s));
    CHECK(host == std::vector<int>(100, i));
  }
  CHECK(moved(-1, 0) == 20 * device.bytes());
  CHECK(moved(0, -1) == 20 * device.bytes());
  CHECK(calls("cudaMemcpyAsync") == 40);
}

TEST_CASE("boxes of two and three dimensions move as pitches say") {
  const machine_of_test m;
  const stream s;
  const ints from(60, where::pinned), device(60), to(60, where::pinned);
  std::iota(from.data(), from.data() + 60, 0);
  to.fill(-1);
  must(cudaMemsetAsync(device.data(), 0, device.bytes(), s));
  // Rows of 3 of 5 ints, to rows of 4.
  must(cudaMemcpy2DAsync(device.data(), 16, from.data(), 20, 12, 4, cudaMemcpyHostToDevice, s));
  must(cudaMemset2DAsync(device.data() + 3, 16, 0x01, 4, 4, s));
  must(cudaMemcpyAsync(to.data(), device.data(), device.bytes(), cudaMemcpyDefault, s));
  s.sync();
  for (std::size_t y = 0; y < 4; ++y) {
    for (std::size_t x = 0; x < 3; ++x) CHECK(to[4 * y + x] == static_cast<int>(5 * y + x));
    CHECK(to[4 * y + 3] == 0x01010101);
  }
  CHECK(to[16] == 0);
  // Slices of 4 × 5 ints: a box of 2 × 2 × 3 from (1, 1, 0) to the start of slices of 2 × 2.
  cudaMemcpy3DParms p{};
  p.srcPtr = {from.data(), 20, 20, 4};
  p.dstPtr = {device.data(), 8, 8, 2};
  p.srcPos = {4, 1, 0};
  p.extent = {8, 2, 3};
  p.kind = cudaMemcpyHostToDevice;
  must(cudaMemcpy3DAsync(&p, s));
  must(cudaMemcpyAsync(to.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost, s));
  s.sync();
  for (std::size_t z = 0; z < 3; ++z)
    for (std::size_t y = 0; y < 2; ++y)
      for (std::size_t x = 0; x < 2; ++x)
        CHECK(to[4 * z + 2 * y + x] == static_cast<int>(20 * z + 5 * (y + 1) + x + 1));
}

TEST_CASE("a copy that leaves its memory, or names the wrong direction, is refused") {
  const machine_of_test m;
  const stream s;
  const ints a(10), b(10);
  int host[20] = {};
  expect(cudaMemcpyAsync(a.data(), b.data() + 1, 40, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidValue);
  expect(cudaMemsetAsync(a.data() + 1, 0, 40, s), cudaErrorInvalidValue);
  expect(cudaMemsetAsync(host, 0, 4, s), cudaErrorInvalidValue);
  expect(cudaMemcpyAsync(a.data(), host, 40, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidMemcpyDirection);
  expect(cudaMemcpyAsync(a.data(), b.data(), 40, cudaMemcpyHostToDevice, s), cudaErrorInvalidMemcpyDirection);
  expect(cudaMemcpy2DAsync(a.data(), 4, host, 8, 8, 2, cudaMemcpyHostToDevice, s), cudaErrorInvalidPitchValue);
  expect(cudaMemcpy2DAsync(a.data(), 4, host, std::size_t{1} << 31, 4, 1, cudaMemcpyHostToDevice, s),
         cudaErrorInvalidPitchValue);
  expect(cudaMemcpyPeerAsync(a.data(), 1, b.data(), 0, 40, s), cudaErrorInvalidValue);
}

TEST_CASE("a copy that is not asynchronous is over when it returns, and waits for blocking streams") {
  const machine_of_test m;
  const stream s(cudaStreamDefault);
  const ints device(10), pinned(10, where::pinned);
  must(run_in(s, [&] {
    std::this_thread::sleep_for(2ms);
    device.fill(3);
  }));
  must(cudaMemcpy(pinned.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost));
  CHECK(pinned.all(3));
}

TEST_CASE("copies between devices are counted by link") {
  const machine_of_test m;
  const ints a(10);
  must(cudaSetDevice(3));
  const ints b(10);
  const stream s;
  must(cudaMemcpyPeerAsync(b.data(), 3, a.data(), 0, 40, s));
  s.sync();
  CHECK(moved(0, 3) == 40);
  CHECK(moved(3, 0) == 0);
}

TEST_CASE("a stream keeps its order and other streams do not") {
  const machine_of_test m;
  bool overtaken = false;
  for (std::uint64_t seed = 0; seed < 50 && !overtaken; ++seed) {
    adjust({.seed = seed});
    const stream a, b;
    std::atomic<int> count{0};
    int place[4] = {};
    for (int i = 0; i < 3; ++i) must(run_in(a, [&, i] { place[i] = ++count; }));
    must(run_in(b, [&] { place[3] = ++count; }));
    a.sync();
    b.sync();
    CHECK(place[0] < place[1]);
    CHECK(place[1] < place[2]);
    overtaken = place[3] < place[2];
  }
  CHECK(overtaken);
}

TEST_CASE("an event stands for what its stream held at the record, and a wait for the record before it") {
  const machine_of_test m;
  const stream a, b;
  const event e;
  std::atomic<bool> first{false}, go{false};
  CHECK(cudaEventQuery(e) == cudaSuccess);  // never recorded
  must(cudaEventSynchronize(e));
  must(run_in(a, [&] {
    std::this_thread::sleep_for(2ms);
    first = true;
  }));
  must(cudaEventRecord(e, a));
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  cudaGetLastError();
  must(run_in(a, [&] {
    while (!go) std::this_thread::yield();
  }));
  must(cudaStreamWaitEvent(b, e, 0));
  must(cudaEventRecord(e, a));  // b waits for the record before
  bool seen = false;
  must(run_in(b, [&] { seen = first; }));
  b.sync();
  CHECK(seen);
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  cudaGetLastError();
  go = true;
  must(cudaEventSynchronize(e));
  CHECK(cudaEventQuery(e) == cudaSuccess);
  CHECK(cudaStreamQuery(a) == cudaSuccess);
}

TEST_CASE("streams and events belong to a device; waits cross devices") {
  const machine_of_test m;
  const stream a;
  const event e;
  must(cudaSetDevice(1));
  const stream b;
  expect(cudaEventRecord(e, b), cudaErrorInvalidResourceHandle);
  int value = 0, seen = 0;
  must(run_in(a, [&] { value = 1; }));
  must(cudaEventRecord(e, a));
  must(cudaStreamWaitEvent(b, e, 0));
  must(run_in(b, [&] { seen = value; }));
  must(cudaDeviceSynchronize());
  CHECK(seen == 1);
}

TEST_CASE("the legacy stream waits for blocking streams and they for it; others do not") {
  const machine_of_test m;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    adjust({.seed = seed});
    const stream a(cudaStreamDefault), b(cudaStreamDefault);
    int value = 0, seen = 0;
    must(run_in(a, [&] { value = 1; }));
    must(run_in(nullptr, [&] { value *= 2; }));
    must(run_in(b, [&] { seen = value; }));
    b.sync();
    CHECK(seen == 2);
  }
  std::atomic<bool> go{false};
  const stream free;
  must(run_in(free, [&] {
    while (!go) std::this_thread::yield();
  }));
  must(cudaStreamSynchronize(nullptr));
  go = true;
  free.sync();
}

TEST_CASE("the work of a destroyed stream goes on") {
  const machine_of_test m;
  std::atomic<bool> done{false};
  {
    const stream s;
    must(run_in(s, [&] {
      std::this_thread::sleep_for(1ms);
      done = true;
    }));
  }
  must(cudaDeviceSynchronize());
  CHECK(done);
}

TEST_CASE("a host function may not call CUDA") {
  reset();
  const stream s;
  cudaError_t e = cudaSuccess;
  must(run_in(s, [&] { e = cudaMemsetAsync(nullptr, 0, 0, nullptr); }));
  s.sync();
  CHECK(e == cudaErrorNotPermitted);
  CHECK(report() == "cudaMemsetAsync was called by a host function of a stream\n");
}

TEST_CASE("a kernel that touches another device's memory without peer access breaks the device") {
  reset();
  const ints mine(10);
  CHECK(may_touch(0, mine.data(), 40));
  CHECK_FALSE(may_touch(0, mine.data() + 1, 40));
  reset();
  const ints again(10);
  must(cudaSetDevice(1));
  int can = 0;
  must(cudaDeviceCanAccessPeer(&can, 1, 0));
  CHECK(can == 1);
  must(cudaDeviceEnablePeerAccess(0, 0));
  CHECK(may_touch(1, again.data(), 40));
  expect(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  CHECK_FALSE(may_touch(2, again.data(), 40));
  CHECK(report() != "");
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);  // and from now on everything
  reset();
}

TEST_CASE("handles that are gone are refused") {
  const machine_of_test m;
  cudaStream_t s = nullptr;
  cudaEvent_t e = nullptr;
  must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  must(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  must(cudaStreamDestroy(s));
  must(cudaEventDestroy(e));
  expect(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  expect(cudaEventRecord(e, nullptr), cudaErrorInvalidResourceHandle);
  expect(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace cuda_on_cpu
