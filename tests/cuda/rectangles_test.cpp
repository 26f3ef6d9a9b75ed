// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over many ranks by a third party's kernel: plans give it rectangles, what does not fit is ours.
#include <doctest/doctest.h>

#include <atomic>

#include <seqpar/cuda/by_rectangles.hpp>
#include <seqpar/seqpar.hpp>
#include <tests/attention/draw.hpp>
#include <tests/cuda/engine.hpp>
#include <tests/cuda/plain_sdpa.hpp>

namespace seqpar::test {
namespace {

struct tally {
  std::atomic<int> ran = 0, unprepared = 0;
};
tally& seen() {
  static tally t;
  return t;
}
/// Like cuDNN, it builds while it is prepared, and a copy starts with nothing.
struct plain_sdpa {
  static constexpr index_t workspace_bytes = 64;
  plain_sdpa() = default;
  plain_sdpa(const plain_sdpa&) {}
  plain_sdpa(plain_sdpa&&) = default;
  plain_sdpa& operator=(plain_sdpa other) {
    std::swap(prepared, other.prepared);
    return *this;
  }

  template <class T, class Exec>
  void prepare(const cuda::sdpa_call<T>& call, const Exec&) {
    prepared.add(call);
  }
  template <class T, class Exec>
  bool ready(const cuda::sdpa_call<T>& call, const Exec&) const {
    const bool known = prepared.has(call);
    seen().unprepared += !known;
    return known;
  }
  template <class T, class Exec>
  status run(const cuda::sdpa_call<T>& call, const Exec& exec) const {
    ++seen().ran;
    if (const cudaError_t e = cudaStreamSynchronize(exec.compute); e != cudaSuccess) return cuda::status_of(e, "plain");
    attend_plainly(call);
    return {};
  }
  prepared_calls prepared;
};
using kernel = cuda::by_rectangles<plain_sdpa, cuda::attention<cuda::head_class<32>>>;
static_assert(requires(const on_kernels& exec) {
  kernel::load<bfloat16, bfloat16, by_intervals>(exec,
                                                 forward_backward);  // its fallback's bodies, too, before a capture
});

/// P and dS rounded to T, and one partial result or two.
constexpr double roundings = 3;

template <class T, class Engine>
std::string fault_on(const Engine& on, const problem& p) {
  const tensors in = recipe_tensors(p);
  const outcome<T> got = run_problem_on<T>(on, p, in, kernel{});
  if (const std::string found = complaints(); !found.empty()) return found;
  return fault_of(p, got, definition<T>(p, in), roundings);
}
}  // namespace

TEST_CASE("attention by a third party's kernel through rectangles is right: any layout, mesh and mask of intervals") {
  int done = 0;
  for (std::uint64_t seed = 2001; done < 12; ++seed) {
    problem_drawer drawer(seed);
    drawn_problem d = drawer.draw();
    if (std::max<index_t>(d.p.team.ring * d.p.team.all_to_all, d.p.world) > 4 || !fits_in_intervals(d.p)) continue;
    d.p.options.joint_gradient = joint_gradient::complete;
    ++done;
    CAPTURE(seed);
    CAPTURE(d.families);
    CHECK(fault_on<bfloat16>(device_threads<on_kernels>{}, d.p) == "");
  }
  CHECK(seen().ran > 50);
  CHECK(seen().unprepared == 0);
}

TEST_CASE("a plan that was moved or updated meets nothing in its runs that was not built before") {
  const int ran = seen().ran, unprepared = seen().unprepared;
  device_threads<on_kernels> engine;
  engine.run({.ranks = 2}, [&](threads::device_transport t) {
    auto&& site = engine.site(t);
    const mesh team = ring(t);
    const auto layout_of = [](index_t tokens) { return zigzag{.tokens = tokens, .ranks = 2}; };
    const auto mask_of = [](const std::vector<index_t>& bounds) { return seqpar::within{documents{bounds}, causal{}}; };
    std::vector<index_t> bounds = pack({20, 28});
    auto planned = plan_attention<bfloat16>(team, layout_of(bounds.back()), mask_of(bounds),
                                            {.batch = 1, .heads = 2, .kv_heads = 1, .head_dim = 16},
                                            {.capacity = {.tokens_per_rank = 40}}, kernel{});
    guarded_memory memory(planned.memory(), site.memory);
    planned.prepare(memory, site.exec);
    auto plan = std::move(planned);
    for (int step = 0; step < 2; ++step) {
      const index_t n = plan.q_rows();
      const auto made = [&](index_t heads) {
        return std::pmr::vector<bfloat16>(static_cast<std::size_t>(n * heads * 16), bfloat16(0.5f), site.memory);
      };
      auto q = made(2), out = made(2), k = made(1), v = made(1);
      std::pmr::vector<float> lse(static_cast<std::size_t>(n * 2), 0.f, site.memory);
      const auto view = [&](auto& x, index_t heads) { return dense_view(x.data(), {1, n, heads, 16}); };
      check(plan.forward({.q = view(q, 2),
                          .k = view(k, 1),
                          .v = view(v, 1),
                          .out = view(out, 2),
                          .lse = dense_heads(lse.data(), {1, 2, n})},
                         memory, site.exec));
      site.settle();
      for (const bfloat16 x : out)  // all values are one half
        if (static_cast<float>(x) != 0.5f) raise(error(errc::invalid_argument, "a mean of equal values is another"));
      bounds = pack({36, 8, 20});
      plan.update(layout_of(bounds.back()), mask_of(bounds), memory, site.exec);
    }
  });
  CHECK(complaints() == "");
  CHECK(seen().ran > ran);
  CHECK(seen().unprepared == unprepared);
}

}  // namespace seqpar::test
