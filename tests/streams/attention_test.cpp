// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention on streams: the bits of attention on the host, whatever the mesh, layouts, masks and options.
#include <doctest/doctest.h>

#include <tests/attention/draw.hpp>
#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {

template <class T, class Engine>
std::string fault_on(const Engine& on, const problem& p) {
  const tensors in = recipe_tensors(p);
  const outcome<T> got = run_problem_on<T>(on, p, in, late_kernel{});
  const outcome<T> want = run_problem<T>(p, in, host_fast{});
  if (const std::string part = difference(got, want); !part.empty()) return "differs from the host: " + part;
  return fault_of(p, got, definition<T>(p, in));
}

template <class Engine>
void check_drawn(const Engine& on, int most_ranks, std::uint64_t first, int wanted) {
  int done = 0;
  for (std::uint64_t seed = first; done < wanted; ++seed) {
    problem_drawer drawer(seed);
    drawn_problem d = drawer.draw();
    if (std::max<index_t>(d.p.team.ring * d.p.team.all_to_all, d.p.world) > most_ranks) continue;
    d.p.options.joint_gradient = joint_gradient::complete;  // partial sums are added up by the test, not by seqpar
    ++done;
    CAPTURE(seed);
    CAPTURE(d.families);
    if (d.type == 2)
      CHECK(fault_on<bfloat16>(on, d.p) == "");
    else
      CHECK(fault_on<float>(on, d.p) == "");
  }
}
}  // namespace

TEST_CASE("attention over NCCL has the bits of attention on the host") {
  check_drawn(on_nccl{}, std::min(8, devices()), 1, 50);
}

TEST_CASE("attention over threads with streams has the bits of attention on the host") {
  check_drawn(on_device_threads{}, 8, 1001, 25);
  check_drawn(on_device_threads{.one_device = false}, 8, 2001, 25);
}

}  // namespace seqpar::test
