// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks have beside the transport that is measured: words to each other, and memory.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <vector>

#include <seqpar/exchange/gather.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/space/host.hpp>

namespace seqpar::bench {

/// Numbers that ranks tell each other, by a transport of theirs for host memory. Every call waits for all ranks.
template <class Host>
class talk {
 public:
  explicit talk(const Host& world)
      : said_(static_cast<std::size_t>(world.size())),
        gather_(plan_gather(ring(world), contiguous{.tokens = world.size(), .ranks = world.size()},
                            {.row_bytes = sizeof(double), .passes = forward_only})) {
    gather_.prepare(memory{}, on_host{});
  }
  double largest(double x) {
    return over_all(x, [](double a, double b) { return a > b ? a : b; });
  }
  double total(double x) {
    return over_all(x, [](double a, double b) { return a + b; });
  }

 private:
  template <class Fold>
  double over_all(double x, Fold&& fold) {
    check(gather_.forward(&x, said_.data(), memory{}, on_host{}));
    double r = 0;
    for (double y : said_) r = fold(r, y);
    return r;
  }
  std::vector<double> said_;
  exchange<Host> gather_;
};

/// A rank with host memory: all that measure() asks for but the plain program.
template <class Host>
class host_site : public talk<Host> {
 public:
  explicit host_site(const Host& world) : talk<Host>(world) {}
  host_site(const host_site&) = delete;
  ~host_site() { give_back(); }
  on_host exec() const { return {}; }
  /// In large pages where the system has them, as engines' arenas are: else looking pages up is what limits copies.
  void* take(index_t bytes) {
    if (bytes == 0) return nullptr;
    constexpr index_t page = index_t{2} << 20;
    const auto size = static_cast<std::size_t>(round_up(bytes, bytes < page ? memory_alignment : page));
    void* p = std::aligned_alloc(static_cast<std::size_t>(bytes < page ? memory_alignment : page), size);
#ifdef MADV_HUGEPAGE
    if (bytes >= page) madvise(p, size, MADV_HUGEPAGE);
#endif
    return taken_.emplace_back(p);
  }
  void give_back() {
    for (void* p : taken_) std::free(p);
    taken_.clear();
  }
  void write(void* to, const void* from, index_t bytes) const {
    host_space{}.upload(to, from, bytes);
  }
  void read(void* to, const void* from, index_t bytes) const {
    host_space{}.upload(to, from, bytes);
  }
  void finish() const {}

 private:
  std::vector<void*> taken_;
};

}  // namespace seqpar::bench
