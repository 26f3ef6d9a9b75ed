// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What runs start is on the device before: a first launch may stand in a capture, or beside a kernel that waits.
#include <doctest/doctest.h>

#include <mutex>
#include <set>

#include <seqpar/cuda/attention.hpp>
#include <tests/cuda_on_cpu/control.hpp>
#include <tests/streams/engine.hpp>

using namespace seqpar;

namespace {

/// Starts nothing, and knows what was loaded and what was to be started all the same.
struct noting {
  static inline std::mutex mutex;
  static inline std::set<const void*> loaded;
  static inline int started = 0, unknown = 0;

  template <class Body>
  static inline const char name = 0;
  template <class... Bodies>
  static cudaError_t load() {
    const std::lock_guard lock(mutex);
    (loaded.insert(&name<Bodies>), ...);
    return cudaSuccess;
  }
  template <class Body>
  static cudaError_t launch(index_t, const typename Body::params&, cudaStream_t) {
    const std::lock_guard lock(mutex);
    ++started;
    unknown += loaded.count(&name<Body>) == 0;
    return cudaSuccess;
  }
  static int multiprocessors() { return 2; }
};

}  // namespace

TEST_CASE("prepare loads every kernel that runs of attention start") {
  cuda_on_cpu::reset();
  const test::device_threads<cuda::launched_by<noting>> engine{};
  for (const index_t dim : {32, 7})
    engine.run({.ranks = 4}, [&](threads::device_transport t) {
      const mesh team{t, {.ring = 2, .all_to_all = 2}};
      auto plan = plan_attention<bfloat16>(
          team, contiguous{.tokens = 40, .ranks = 4}, causal{}, {.heads = 3, .kv_heads = 3, .head_dim = dim},
          {.passes = forward_backward, .moves = {.forward = side::queries, .backward = side::queries}},
          cuda::attention<cuda::head_class<32>>{});
      auto&& site = engine.site(t);
      const test::guarded_memory memory(plan.memory(), site.memory);
      plan.prepare(memory, site.exec);
      std::pmr::vector<bfloat16> room(static_cast<std::size_t>(8 * 10 * 3 * dim), bfloat16(0), site.memory);
      std::pmr::vector<float> sums(30, 0.f, site.memory);
      index_t next = 0;
      const auto tensor = [&] { return dense_view(room.data() + 10 * 3 * dim * next++, {1, 10, 3, dim}); };
      const auto q = tensor(), k = tensor(), v = tensor(), out = tensor(), dout = tensor(), dq = tensor(),
                 dk = tensor(), dv = tensor();
      const auto lse = dense_heads(sums.data(), {1, 3, 10});
      check(plan.forward({.q = q, .k = k, .v = v, .out = out, .lse = lse}, memory, site.exec));
      check(plan.backward({.q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
                          memory, site.exec));
      site.settle();
    });
  CHECK(noting::started > 20);
  CHECK(noting::unknown == 0);
  cuda_on_cpu::reset();
}
