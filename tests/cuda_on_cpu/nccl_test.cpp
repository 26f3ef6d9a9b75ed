// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicators, messages, collectives and their faults.
#include <atomic>

#include "tests/cuda_on_cpu/fixture.hpp"

namespace cuda_on_cpu {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t n = 50;

bool says(const std::string& part) {
  return report().find(part) != std::string::npos;
}

ncclResult_t state_of(ncclComm_t c) {
  auto state = ncclSuccess;
  must(ncclCommGetAsyncError(c, &state));
  return state;
}

ncclResult_t settled(ncclComm_t c) {
  auto state = state_of(c);
  for (; state == ncclInProgress; state = state_of(c)) std::this_thread::sleep_for(50us);
  return state;
}

ncclResult_t swap(const ints& out, const ints& in, int to, int from, ncclComm_t c, cudaStream_t s) {
  must(ncclGroupStart());
  static_cast<void>(ncclSend(out.data(), out.size(), ncclInt32, to, c, s));
  static_cast<void>(ncclRecv(in.data(), in.size(), ncclInt32, from, c, s));
  return ncclGroupEnd();
}

void set(const ints& x, int value, cudaStream_t s) {
  must(run_in(s, [&x, value] { x.fill(value); }));
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

TEST_CASE("a ring shift brings the left neighbour's bytes, for any number of ranks") {
  for (const int ranks : {1, 2, 3, 5}) {
    const machine_of_test m;
    const auto id = new_id();
    on_ranks(ranks, [&](int r) {
      const comm c(id, ranks, r);
      int count = 0, rank = -1, device = -1;
      must(ncclCommCount(c, &count));
      must(ncclCommUserRank(c, &rank));
      must(ncclCommCuDevice(c, &device));
      if (count != ranks || rank != r || device != r) throw std::runtime_error("not my communicator");
      const stream s;
      const ints out(n), in(n), got(n, where::pinned);
      const int left = (r + ranks - 1) % ranks;
      for (int i = 0; i < 20; ++i) {
        set(out, 100 * r + i, s);
        must(swap(out, in, (r + 1) % ranks, left, c, s));
        must(cudaMemcpyAsync(got.data(), in.data(), in.bytes(), cudaMemcpyDeviceToHost, s));
        s.sync();
        if (!got.all(100 * left + i)) throw std::runtime_error("wrong bytes");
      }
    });
    if (ranks > 1) CHECK(moved(0, 1) == 20 * n * sizeof(int));
  }
}

TEST_CASE("messages of a pair arrive in order, and empty ones are matched like others") {
  const machine_of_test m;
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints x(3);
    if (r == 0) set(x, 4, s);
    must(ncclGroupStart());
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t count = i == 1 ? 0 : 1;
      must(r == 0 ? ncclSend(count ? x.data() + i : nullptr, count, ncclInt32, 1, c, s)
                  : ncclRecv(count ? x.data() + 2 - i : nullptr, count, ncclInt32, 0, c, s));
    }
    must(ncclGroupEnd());
    s.sync();
    if (r == 1 && (x[2] != 4 || x[0] != 4 || x[1] != -1)) throw std::runtime_error("wrong order");
  });
}

TEST_CASE("groups inside of groups are one group") {
  const machine_of_test m;
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints out(n), in(n);
    set(out, r, s);
    must(ncclGroupStart());
    must(ncclGroupStart());
    must(ncclSend(out.data(), n, ncclInt32, 1 - r, c, s));
    must(ncclGroupEnd());
    must(ncclRecv(in.data(), n, ncclInt32, 1 - r, c, s));
    must(ncclGroupEnd());
    s.sync();
    if (!in.all(1 - r)) throw std::runtime_error("wrong bytes");
  });
}

TEST_CASE("collectives compute what they say") {
  const machine_of_test m;
  const auto id = new_id();
  constexpr int ranks = 3;
  on_ranks(ranks, [&](int r) {
    const comm c(id, ranks, r);
    const stream s;
    const ints one(n), all(n * ranks);
    const auto check = [&](bool right, const char* what) {
      if (!right) throw std::runtime_error(what);
    };
    set(one, r + 1, s);
    must(ncclAllGather(one.data(), all.data(), n, ncclInt32, c, s));
    s.sync();
    for (std::size_t i = 0; i < n * ranks; ++i) check(all[i] == static_cast<int>(i / n) + 1, "all-gather");
    must(ncclReduceScatter(all.data(), one.data(), n, ncclInt32, ncclSum, c, s));
    s.sync();
    check(one.all(3 * (r + 1)), "reduce-scatter");
    must(ncclAllReduce(one.data(), one.data(), n, ncclInt32, ncclMax, c, s));
    s.sync();
    check(one.all(9), "all-reduce");
    set(one, r, s);
    must(ncclBroadcast(one.data(), one.data(), n, ncclInt32, 2, c, s));
    s.sync();
    check(one.all(2), "broadcast");
  });
}

TEST_CASE("a split gives communicators by colour, ordered by key") {
  const machine_of_test m;
  const auto id = new_id();
  on_ranks(4, [&](int r) {
    const comm all(id, 4, r);
    ncclComm_t half = nullptr;
    must(ncclCommSplit(all, r % 2, -r, &half, nullptr));
    int rank = -1;
    must(ncclCommUserRank(half, &rank));
    if (rank != (r < 2 ? 1 : 0)) throw std::runtime_error("wrong rank");
    const stream s;
    const ints x(1);
    set(x, r, s);
    must(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, half, s));
    s.sync();
    if (x[0] != 2 + 2 * (r % 2)) throw std::runtime_error("wrong sum");
    must(ncclCommDestroy(half));
    ncclComm_t none = all;
    must(ncclCommSplit(all, r == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
    if ((none == nullptr) != (r != 0)) throw std::runtime_error("not for me");
    must(ncclCommDestroy(none));
  });
}

TEST_CASE("a send and a receive outside of a group wait for each other in their stream") {
  reset({.patience = 1s});
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints out(n), in(n);
    set(out, 1, s);
    must(swap(out, in, 1 - r, 1 - r, c, s));  // connects both ways
    s.sync();
    static_cast<void>(ncclSend(out.data(), n, ncclInt32, 1 - r, c, s));
    static_cast<void>(ncclRecv(in.data(), n, ncclInt32, 1 - r, c, s));
    s.sync();
  });
  CHECK(says("nothing moves any more"));
  CHECK(says("rank 0 of communicator 2 waits for rank 1 to receive 50 elements"));
  reset();
}

TEST_CASE("the first message of a pair keeps the host until the peer comes too") {
  reset({.patience = 1s});
  const auto id = new_id();
  std::atomic<bool> came{false};
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints x(n);
    set(x, 1, s);
    if (r == 1) {
      std::this_thread::sleep_for(20ms);
      came = true;
    }
    must(r == 0 ? ncclSend(x.data(), n, ncclInt32, 1, c, s) : ncclRecv(x.data(), n, ncclInt32, 0, c, s));
    if (!came) throw std::runtime_error("did not wait");
    s.sync();
    if (r == 0) expect(ncclRecv(x.data(), n, ncclInt32, 1, c, s), ncclInternalError);  // nobody sends
  });
  CHECK(says("waits for its peers: (connect 1 to 0)"));
  reset();
}

TEST_CASE("a first message inside of a capture is refused; a connected pair captures and replays") {
  reset();
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints out(n), in(n);
    must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    expect(swap(out, in, 1 - r, 1 - r, c, s), ncclInvalidUsage);
    cudaGraph_t g = nullptr;
    must(cudaStreamEndCapture(s, &g));
    must(cudaGraphDestroy(g));
    set(out, 1, s);
    must(swap(out, in, 1 - r, 1 - r, c, s));
    must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    must(swap(out, in, 1 - r, 1 - r, c, s));
    must(cudaStreamEndCapture(s, &g));
    cudaGraphExec_t exec = nullptr;
    must(cudaGraphInstantiate(&exec, g, 0));
    must(cudaGraphDestroy(g));
    for (int i = 0; i < 10; ++i) {
      set(out, 10 * i + r, s);
      must(cudaGraphLaunch(exec, s));
      s.sync();
      if (!in.all(10 * i + 1 - r)) throw std::runtime_error("wrong replay");
    }
    must(cudaGraphExecDestroy(exec));
  });
  CHECK(says("meets a peer for the first time inside of a capture"));
  reset();
}

TEST_CASE("a communicator that ends before its graph is found") {
  reset();
  {
    const auto id = new_id();
    comm c(id, 1, 0);
    const stream s;
    const ints out(n), in(n);
    must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    must(swap(out, in, 0, 0, c, s));
    cudaGraph_t g = nullptr;
    must(cudaStreamEndCapture(s, &g));
    c.abort();
    must(cudaGraphDestroy(g));
  }
  CHECK(says("ended before a graph that uses it"));
  reset();
}

TEST_CASE("two ranks on one device are refused by all [J8]") {
  const machine_of_test m;
  const auto id = new_id();
  on_ranks(3, [&](int r) {
    must(cudaSetDevice(r / 2));
    ncclComm_t c = nullptr;
    expect(ncclCommInitRank(&c, 3, id, r), ncclInvalidUsage);
    if (c != nullptr) throw std::runtime_error("a communicator all the same");
  });
  CHECK(std::string(ncclGetLastError(nullptr)) == "ranks 0 and 1 are both on device 0");
}

TEST_CASE("a rank that never comes, or an id that nobody made, is waited for") {
  reset({.patience = 100ms});
  const auto id = new_id();
  ncclComm_t c = nullptr;
  expect(ncclCommInitRank(&c, 2, id, 0), ncclInternalError);
  CHECK(says("waits for its peers: (init)"));
  reset();
  auto config = non_blocking();
  ncclUniqueId unknown = {};
  expect(ncclCommInitRankConfig(&c, 1, unknown, 0, &config), ncclInProgress);
  std::this_thread::sleep_for(20ms);
  CHECK(state_of(c) == ncclInProgress);
  must(ncclCommAbort(c));
  CHECK(leaks() == "");
}

TEST_CASE("a non-blocking communicator is polled, and takes a group only when it says so") {
  const machine_of_test m({.delay = 300us});
  const auto id = new_id();
  std::atomic<int> early{0}, busy{0};
  on_ranks(2, [&](int r) {
    auto config = non_blocking();
    ncclComm_t c = nullptr;
    expect(ncclCommInitRankConfig(&c, 2, id, r, &config), ncclInProgress);
    must(settled(c));
    const stream s;
    const ints out(n), in(n);
    for (int i = 0; i < 10; ++i) {
      set(out, 10 * i + r, s);
      s.sync();
      expect(swap(out, in, 1 - r, 1 - r, c, s), ncclInProgress);
      if (state_of(c) == ncclInProgress) ++busy;
      s.sync();  // before the communicator has settled
      if (!in.all(10 * i + 1 - r)) ++early;
      must(settled(c));
      s.sync();
      if (!in.all(10 * i + 1 - r)) throw std::runtime_error("wrong bytes");
    }
    auto r1 = ncclCommFinalize(c);
    CHECK(r1 == ncclInProgress);
    must(settled(c));
    must(ncclCommDestroy(c));
  });
  CHECK(busy > 10);
  CHECK(early >= busy);
}

TEST_CASE("sizes that differ are found, and end the communicator on both sides [J6]") {
  reset();
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints out(4 + static_cast<std::size_t>(r)), in(4 + static_cast<std::size_t>(r));
    must(cudaMemsetAsync(out.data(), 0, out.bytes(), s));
    must(swap(out, in, 1 - r, 1 - r, c, s));
    s.sync();
    expect(settled(c), ncclInvalidUsage);
    expect(swap(out, in, 1 - r, 1 - r, c, s), ncclInvalidUsage);
  });
  CHECK(says("(16 bytes)"));
  CHECK(says("(20 bytes)"));
}

TEST_CASE("collectives that differ are found") {
  reset();
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream s;
    const ints x(2 * n);
    must(cudaMemsetAsync(x.data(), 0, x.bytes(), s));
    must(ncclAllReduce(x.data(), x.data(), n + static_cast<std::size_t>(r), ncclInt32, ncclSum, c, s));
    s.sync();
    expect(settled(c), ncclInvalidUsage);
  });
  CHECK(says("disagree on a collective"));
}

TEST_CASE("calls that make no sense are refused before anything is sent") {
  const machine_of_test m;
  const auto id = new_id();
  const comm c(id, 1, 0);
  const stream s;
  const ints x(n), pinned(n, where::pinned);
  expect(ncclSend(x.data(), n, ncclInt32, 1, c, s), ncclInvalidArgument);
  expect(ncclSend(x.data(), n + 1, ncclInt32, 0, c, s), ncclInvalidArgument);
  expect(ncclSend(pinned.data(), n, ncclInt32, 0, c, s), ncclInvalidArgument);
  expect(ncclSend(x.data(), n, ncclInt32, 0, c, s), ncclInvalidUsage);  // to itself, alone
  expect(ncclGroupEnd(), ncclInvalidUsage);
  must(ncclGroupStart());
  expect(ncclSend(x.data(), n, ncclInt32, 7, c, s), ncclInvalidArgument);
  expect(ncclGroupEnd(), ncclInvalidArgument);
  must(swap(x, x, 0, 0, c, s));
  s.sync();
}

TEST_CASE("abort frees streams that wait, and what comes after it is found") {
  reset();
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    comm c(id, 2, r);
    const stream s;
    const ints out(n), in(n);
    must(cudaMemsetAsync(out.data(), 0, out.bytes(), s));
    must(swap(out, in, 1 - r, 1 - r, c, s));
    s.sync();
    if (r == 1) return;
    const ncclComm_t handle = c;
    must(swap(out, in, 1, 1, c, s));  // rank 1 has left
    std::this_thread::sleep_for(5ms);
    expect(cudaStreamQuery(s), cudaErrorNotReady);
    c.abort();
    s.sync();
    CHECK(report() == "");
    expect(ncclSend(out.data(), n, ncclInt32, 1, handle, s), ncclInvalidArgument);
  });
  CHECK(report() == "ncclSend after rank 0 of communicator 2 was aborted\n");
}

TEST_CASE("a fault hangs from its operation on, with or without an error to poll, until abort") {
  for (const auto what : {fault::error, fault::death}) {
    reset();
    inject(what, 1, 2);
    const auto id = new_id();
    on_ranks(2, [&](int r) {
      comm c(id, 2, r);
      const stream s;
      const ints out(n), in(n);
      must(cudaMemsetAsync(out.data(), 0, out.bytes(), s));
      for (int i = 0; i < 2; ++i) must(swap(out, in, 1 - r, 1 - r, c, s));
      s.sync();
      must(swap(out, in, 1 - r, 1 - r, c, s));
      std::this_thread::sleep_for(20ms);
      expect(cudaStreamQuery(s), cudaErrorNotReady);
      expect(state_of(c), r == 1 && what == fault::error ? ncclRemoteError : ncclSuccess);
      c.abort();
      s.sync();
    });
    CHECK(report() == "");
  }
}

TEST_CASE("windows of memory of ncclMemAlloc are registered by all ranks and given back") {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  const machine_of_test m;
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const ints usual(n), pinned(n, where::pinned);
    void* x = nullptr;
    must(ncclMemAlloc(&x, usual.bytes()));
    ncclWindow_t w = nullptr;
    for (int* other : {usual.data(), pinned.data()})
      expect(ncclCommWindowRegister(c, other, usual.bytes(), &w, NCCL_WIN_COLL_SYMMETRIC), ncclInvalidArgument);
    must(ncclCommWindowRegister(c, x, usual.bytes(), &w, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(w != nullptr);
    must(ncclCommWindowDeregister(c, w));
    expect(ncclCommWindowDeregister(c, w), ncclInvalidArgument);
    must(ncclMemFree(x));
  });
#endif
}

}  // namespace
}  // namespace cuda_on_cpu
