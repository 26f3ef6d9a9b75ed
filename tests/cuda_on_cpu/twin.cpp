// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin.hpp"

#include <list>
#include <mutex>
#include <numeric>

#include "tests/cuda_on_cpu/machine.hpp"

namespace seqpar::twin {

report run_blocks(index_t blocks, int threads, int shared_bytes, const options& how, block::body body,
                  const void* params) {
  block one(threads, shared_bytes, how, body, params);
  std::vector<index_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), index_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[one.random() % i]);
  for (const index_t b : order) one.run(b, blocks);
  return one.did;
}

namespace {

struct book {
  std::mutex mutex;
  std::list<std::function<void(const options&)>> kept;  // a captured launch may run again at any time
  report did;
  std::uint64_t launches = 0;
};
book& the_book() {
  static auto& b = *new book;
  return b;
}

void run_noted(void* work) {
  options how;
  {
    cuda_on_cpu::guard held;
    auto& m = cuda_on_cpu::the_machine();
    how.seed = m.set.seed + ++the_book().launches;
    for (const auto& [at, a] : m.memory)
      if (a->bytes > 0) how.memory.push_back({reinterpret_cast<const std::byte*>(at), a->bytes});
  }
  try {
    (*static_cast<std::function<void(const options&)>*>(work))(how);
  } catch (const std::exception& e) {
    cuda_on_cpu::guard held;
    cuda_on_cpu::the_machine().note(std::string("a kernel: ") + e.what());
  }
}

}  // namespace

cudaError_t launch_on(cudaStream_t stream, std::function<void(const options&)> work) {
  std::function<void(const options&)>* closure = nullptr;
  {
    const cuda_on_cpu::unseen quiet;
    const std::lock_guard lock(the_book().mutex);
    closure = &the_book().kept.emplace_back(std::move(work));
  }
  return cudaLaunchHostFunc(stream, &run_noted, closure);
}

void add_to_report(const report& r) {
  const cuda_on_cpu::unseen quiet;
  const std::lock_guard lock(the_book().mutex);
  the_book().did += r;
}

report take_report() {
  const cuda_on_cpu::unseen quiet;
  const std::lock_guard lock(the_book().mutex);
  return std::exchange(the_book().did, {});
}

}  // namespace seqpar::twin
