// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// planted NAME: does something right with many seeds, and says so, then with a mistake, which must be found: by a wrong
// value or the report ("found: …"), or by a sanitizer before that.
#include <algorithm>
#include <cstdio>
#include <map>

#include "tests/cuda_on_cpu/support.hpp"

namespace {

using namespace cuda_on_cpu;
using namespace std::chrono_literals;

constexpr std::size_t n = 64;

enum class done { right, wrong };

// Each returns whether its result is right.

[[gnu::noinline]] void give_stack_memory(cudaStream_t s, int* out) {
  int local[n];
  for (auto& x : local) x = 7;
  struct arguments {
    int* from;
    int* to;
  };
  static arguments a;
  a = {local, out};
  must(cudaLaunchHostFunc(
      s,
      [](void* p) {
        const auto& args = *static_cast<arguments*>(p);
        for (std::size_t i = 0; i < n; ++i) args.to[i] = args.from[i];
      },
      &a));
}

[[gnu::noinline]] void use_the_stack() {
  volatile int other[8 * n];
  for (auto& x : other) x = 9;
}

bool host_function_reads_the_stack(done how) {
  const stream s;
  const ints out(n);
  if (how == done::wrong) {
    give_stack_memory(s, out.data());
    use_the_stack();
  } else {
    must(run_in(s, [to = out.data(), from = std::vector<int>(n, 7)] { std::copy(from.begin(), from.end(), to); }));
  }
  s.sync();
  return out.all(7);
}

bool pinned_source_changes(done how) {
  const stream s;
  const ints host(n, where::pinned), device(n);
  host.fill(1);
  must(cudaMemcpyAsync(device.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, s));
  if (how == done::right) s.sync();
  host.fill(2);
  s.sync();
  return device.all(1);
}

bool pinned_result_is_read_early(done how) {
  const stream s;
  const ints host(n, where::pinned), device(n);
  must(cudaMemsetAsync(device.data(), 0, device.bytes(), s));
  must(cudaMemcpyAsync(host.data(), device.data(), host.bytes(), cudaMemcpyDeviceToHost, s));
  if (how == done::right) s.sync();
  const bool right = host.all(0);
  s.sync();
  return right;
}

bool stream_does_not_wait(done how) {
  const stream compute, exchange;
  const ints a(n), b(n);
  must(run_in(compute, [p = a.data()] { std::fill(p, p + n, 5); }));
  if (how == done::right) order(compute, exchange);
  must(cudaMemcpyAsync(b.data(), a.data(), a.bytes(), cudaMemcpyDeviceToDevice, exchange));
  exchange.sync();
  compute.sync();
  return b.all(5);
}

bool stream_waits_before_the_record(done how) {
  const stream compute, exchange;
  const event e;
  const ints a(n), b(n);
  must(run_in(compute, [p = a.data()] { std::fill(p, p + n, 5); }));
  if (how == done::wrong) must(cudaStreamWaitEvent(exchange, e, 0));
  must(cudaEventRecord(e, compute));
  if (how == done::right) must(cudaStreamWaitEvent(exchange, e, 0));
  must(cudaMemcpyAsync(b.data(), a.data(), a.bytes(), cudaMemcpyDeviceToDevice, exchange));
  exchange.sync();
  compute.sync();
  return b.all(5);
}

bool memory_is_freed_early(done how) {
  const stream s;
  int* p = nullptr;
  must(cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(int)));
  must(cudaMemsetAsync(p, 0, n * sizeof(int), s));
  if (how == done::right) s.sync();
  must(cudaFree(p));
  static_cast<void>(cudaStreamSynchronize(s));
  return true;  // the report says it
}

bool graph_lacks_an_edge(done how) {
  const stream a, b;
  const ints x(n), y(n);
  auto write = [p = x.data()] { std::fill(p, p + n, p[0] == 5 ? 6 : 5); };
  auto read = [from = x.data(), to = y.data()] { std::copy(from, from + n, to); };
  must(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  order(a, b);
  must(run_often_in(a, write));
  if (how == done::right) order(a, b);
  must(run_often_in(b, read));
  order(b, a);
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(a, &graph));
  cudaGraphExec_t exec = nullptr;
  must(cudaGraphInstantiate(&exec, graph, 0));
  bool right = true;
  for (int i = 0; i < 3; ++i) {
    must(cudaGraphLaunch(exec, a));
    a.sync();
    right = right && y.all(i % 2 == 0 ? 5 : 6);
  }
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  return right;
}

bool capture_synchronizes(done how) {
  const stream s;
  const ints x(n);
  must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  must(cudaMemsetAsync(x.data(), 0, x.bytes(), s));
  if (how == done::wrong) static_cast<void>(cudaStreamSynchronize(s));
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(s, &graph) != cudaSuccess) return false;
  must(cudaGraphDestroy(graph));
  return true;
}

// A ring of two; what each rank got. `slot` is sent and then filled anew by another stream.
bool slot_is_overwritten(done how) {
  bool right[2] = {};
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream compute, exchange;
    const ints slot(n), got(n);
    must(run_in(compute, [p = slot.data()] { std::fill(p, p + n, 1); }));
    order(compute, exchange);
    must(ncclGroupStart());
    must(ncclSend(slot.data(), n, ncclInt32, 1 - r, c, exchange));
    must(ncclRecv(got.data(), n, ncclInt32, 1 - r, c, exchange));
    must(ncclGroupEnd());
    if (how == done::right) order(exchange, compute);
    must(run_in(compute, [p = slot.data()] { std::fill(p, p + n, 2); }));
    compute.sync();
    exchange.sync();
    right[r] = got.all(1);
  });
  return right[0] && right[1];
}

bool received_is_used_early(done how) {
  bool right[2] = {};
  const auto id = new_id();
  on_ranks(2, [&](int r) {
    const comm c(id, 2, r);
    const stream compute, exchange;
    const ints mine(n), got(n), used(n);
    must(cudaMemsetAsync(mine.data(), 0, mine.bytes(), exchange));
    must(ncclAllReduce(mine.data(), got.data(), n, ncclInt32, ncclSum, c, exchange));
    if (how == done::right) order(exchange, compute);
    must(run_in(compute, [from = got.data(), to = used.data()] { std::copy(from, from + n, to); }));
    compute.sync();
    exchange.sync();
    right[r] = used.all(0);
  });
  return right[0] && right[1];
}

// Two plans, each with a communicator of its own, or both with one.
bool plans_in_another_order(done how, int communicators) {
  const ncclUniqueId ids[2] = {new_id(), new_id()};
  on_ranks(2, [&](int r) {
    const comm first(ids[0], 2, r), second(ids[1], 2, r);
    const stream s;
    const ints out(3 * n), in(3 * n);
    must(cudaMemsetAsync(out.data(), 0, out.bytes(), s));
    const auto plan = [&](std::size_t which) {
      const ncclComm_t c = which == 1 && communicators == 2 ? second : first;
      const std::size_t first_int = which * n, count = (which + 1) * n;
      static_cast<void>(ncclGroupStart());
      static_cast<void>(ncclSend(out.data() + first_int, count, ncclInt32, 1 - r, c, s));
      static_cast<void>(ncclRecv(in.data() + first_int, count, ncclInt32, 1 - r, c, s));
      static_cast<void>(ncclGroupEnd());
    };
    for (std::size_t which = 0; which < 2; ++which)
      plan(which);  // all pairs are connected: later calls do not wait on the host
    static_cast<void>(cudaStreamSynchronize(s));
    const std::size_t begin = how == done::wrong && r == 1 ? 1 : 0;
    plan(begin);
    plan(1 - begin);
    static_cast<void>(cudaStreamSynchronize(s));
  });
  return true;  // the report says it
}

bool one_communicator(done how) {
  return plans_in_another_order(how, 1);
}
bool two_communicators(done how) {
  return plans_in_another_order(how, 2);
}

const std::map<std::string, bool (*)(done)> mistakes = {
    {"host_function_reads_the_stack", host_function_reads_the_stack},
    {"pinned_source_changes", pinned_source_changes},
    {"pinned_result_is_read_early", pinned_result_is_read_early},
    {"stream_does_not_wait", stream_does_not_wait},
    {"stream_waits_before_the_record", stream_waits_before_the_record},
    {"memory_is_freed_early", memory_is_freed_early},
    {"graph_lacks_an_edge", graph_lacks_an_edge},
    {"capture_synchronizes", capture_synchronizes},
    {"slot_is_overwritten", slot_is_overwritten},
    {"received_is_used_early", received_is_used_early},
    {"plans_in_another_order_on_one_communicator", one_communicator},
    {"plans_in_another_order_on_two_communicators", two_communicators},
};

}  // namespace

int main(int count, char** arguments) {
  const auto at = count == 2 ? mistakes.find(arguments[1]) : mistakes.end();
  if (at == mistakes.end()) {
    std::puts("planted NAME, one of");
    for (const auto& [name, f] : mistakes) std::puts(name.c_str());
    return 2;
  }
  const auto body = at->second;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    reset({.seed = seed});
    if (body(done::right) && report().empty() && leaks().empty()) continue;
    std::printf("a false alarm at seed %d: %s%s\n", static_cast<int>(seed), report().c_str(), leaks().c_str());
    return 1;
  }
  std::puts("right without the mistake");
  std::fflush(stdout);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    reset({.seed = seed, .patience = 300ms});
    const bool right = body(done::wrong);
    const auto said = report();
    if (right && said.empty()) continue;
    std::printf("found: seed %d, %s\n", static_cast<int>(seed), said.empty() ? "a wrong value" : said.c_str());
    reset();
    return 0;
  }
  std::puts("missed");
  return 1;
}
