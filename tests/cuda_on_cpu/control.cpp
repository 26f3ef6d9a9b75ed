// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/control.hpp"

#include "tests/cuda_on_cpu/machine.hpp"

namespace cuda_on_cpu {

void adjust(const settings& to) {
  guard held;
  the_machine().set = to;
}

std::string report() {
  guard held;
  std::string all;
  for (const auto& line : the_machine().found) all += line + '\n';
  return all;
}

std::string leaks() {
  guard held;
  auto& m = the_machine();
  std::string all;
  for (auto* s : m.streams)
    if (!s->closed && m.legacy[s->device] != s) all += "stream " + std::to_string(s->name) + '\n';
  for (const auto& [at, a] : m.memory)
    all += std::to_string(a->bytes) + " bytes of " + (a->on_device() ? "device" : "pinned") + " memory\n";
  for (auto* e : m.events) all += "event of device " + std::to_string(e->device) + '\n';
  for (std::size_t i = 0; i < m.graphs.size(); ++i) all += "graph\n";
  for (std::size_t i = 0; i < m.graph_execs.size(); ++i) all += "executable graph\n";
  return m.nccl_leaks ? all + m.nccl_leaks() : all;
}

std::size_t calls(const char* function) {
  guard held;
  return the_machine().calls[function];
}

std::size_t moved(int from, int to) {
  guard held;
  return the_machine().links[{from, to}];
}

std::size_t pending() {
  guard held;
  std::size_t all = 0;
  for (auto* s : the_machine().streams) all += s->queue.size();
  return all;
}

bool may_touch(int device, const void* pointer, std::size_t bytes) {
  guard held;
  auto& m = the_machine();
  cudaError_t e = cudaSuccess;
  const auto a = locate(pointer, bytes, e);
  const auto kernel = "a kernel of device " + std::to_string(device) + " touched ";
  if (e != cudaSuccess || !a) {
    m.note(kernel + "memory that no device can see");
  } else if (a->on_device() && a->device != device && !m.peers.count({device, a->device})) {
    m.note(kernel + "memory of device " + std::to_string(a->device) + " without peer access");
  } else {
    return true;
  }
  m.broken = cudaErrorIllegalAddress;
  return false;
}

void reset(const settings& to) {
  guard held;
  auto& m = the_machine();
  if (m.end_nccl) m.end_nccl();
  m.set.delay = {};
  for (auto* s : m.streams) {
    s->closed = true;
    s->filled.notify_one();
  }
  m.changed.wait(held.lock, [&] { return m.streams.empty(); });
  m.join_ended();
  if (m.forget_nccl) m.forget_nccl();
  for (auto* e : m.events) delete e;
  m.events.clear();
  m.legacy.clear();
  forget_graphs();
  for (auto& [at, a] : m.memory) a->freed = true;
  m.memory.clear();
  m.captures.clear();
  m.peers.clear();
  m.calls.clear();
  m.links.clear();
  m.found.clear();
  m.broken = cudaSuccess;
  m.made = 0;
  m.set = to;
  this_thread() = {};
}

}  // namespace cuda_on_cpu
