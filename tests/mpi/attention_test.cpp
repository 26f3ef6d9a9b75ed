// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over MPI: the bits of thread ranks, whatever the mesh, layouts, masks and options.
#include <tests/mpi/engine.hpp>

#include <tests/attention/draw.hpp>
#include <tests/support/placed_meshes.hpp>

namespace seqpar::test {
namespace {

/// Rank 0 runs the threads, and the definition, and tells.
template <class T, class Kernel>
std::string fault_in(const problem& p, Kernel kernel) {
  const tensors in = recipe_tensors(p);
  const outcome<T> got = run_problem_on<T>(mpi_test::on_mpi{}, p, in, kernel);
  if (mpi_test::here().rank() != 0) return "";
  if (const std::string part = difference(got, run_problem<T>(p, in, kernel)); !part.empty())
    return "differs from threads: " + part;
  return fault_of(p, got, definition<T>(p, in));
}

}  // namespace

TEST_CASE("meshes and shares placed by hand give over MPI what they give over threads [O2] [O4]") {
  for (const problem& p : placed_meshes(mpi_test::here().size())) CHECK(fault_in<float>(p, host_fast{}) == "");
}

TEST_CASE("attention over MPI has the bits of attention over threads") {
  const int ranks = mpi_test::here().size();
  const int wanted = 50;
  for (std::uint64_t seed = 1, done = 0; done < static_cast<std::uint64_t>(wanted); ++seed) {
    problem_drawer drawer(seed + 1000 * static_cast<std::uint64_t>(ranks));
    drawn_problem d = drawer.draw();
    problem& p = d.p;
    const index_t members = p.team.ring * p.team.all_to_all;
    if (std::max<index_t>(members, p.world) > ranks || members < ranks / 2) continue;
    ++done;
    p.options.joint_gradient = joint_gradient::complete;  // partial sums are added up by the test, not by seqpar
    CAPTURE(seed);
    CAPTURE(d.families);
    if (d.type == 2)
      CHECK(fault_in<bfloat16>(p, host_fast{}) == "");
    else
      CHECK(fault_in<float>(p, host_fast{}) == "");
  }
}

}  // namespace seqpar::test
