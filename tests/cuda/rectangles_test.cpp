// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over many ranks by a third party's kernel: plans give it rectangles, what does not fit is ours.
#include <doctest/doctest.h>

#include <atomic>

#include <seqpar/cuda/by_rectangles.hpp>
#include <tests/attention/draw.hpp>
#include <tests/cuda/engine.hpp>
#include <tests/cuda/plain_sdpa.hpp>

namespace seqpar::test {
namespace {

std::atomic<int>& runs_of_third_party() {
  static std::atomic<int> count = 0;
  return count;
}
struct plain_sdpa {
  static constexpr index_t workspace_bytes = 64;
  template <class T, class Exec>
  bool ready(const cuda::sdpa_call<T>&, const Exec&) const {
    return true;
  }
  template <class T, class Exec>
  status run(const cuda::sdpa_call<T>& call, const Exec& exec) const {
    ++runs_of_third_party();
    if (const cudaError_t e = cudaStreamSynchronize(exec.compute); e != cudaSuccess) return cuda::status_of(e, "plain");
    attend_plainly(call);
    return {};
  }
};
using kernel = cuda::by_rectangles<plain_sdpa, cuda::attention<cuda::head_class<32>>>;

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
  CHECK(runs_of_third_party() > 50);
}

}  // namespace seqpar::test
