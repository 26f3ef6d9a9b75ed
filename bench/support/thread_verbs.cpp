// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <bench/support/thread_verbs.hpp>

#include <bench/support/sites.hpp>
#include <seqpar/transport/threads.hpp>

namespace seqpar::bench {
namespace {

struct site : host_site<threads::transport> {
  using host_site::host_site;
  std::function<void()> plain(const ask& a, const route&, int rank, const void*, void* out) {
    if (sums(a.what)) return {};
    const index_t bytes = bytes_of(a.wants(rank), a);
    void* from = take(bytes);
    std::memset(from, 1, static_cast<std::size_t>(bytes));
    return [=] { host_space{}.upload(out, from, bytes); };
  }
};

}  // namespace

void measure_threads(const std::vector<ask>& asks, const effort& e,
                     const std::function<void(const ask&, const figures&)>& tell) {
  if (asks.empty()) return;
  run_ranks(asks.front().ranks, [&](const threads::transport& world) {
    site mine(world);
    for (const ask& a : asks) {
      const figures f = measure(world, mine, a, e);
      if (world.rank() == 0) tell(a, f);
    }
  });
}

}  // namespace seqpar::bench
