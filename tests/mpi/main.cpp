// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The main function of tests that mpirun starts: every rank runs the same tests. What rank 0 says is shown, and what
// any rank says where a test failed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <tests/mpi/engine.hpp>

#include <iostream>
#include <optional>
#include <sstream>

namespace {

std::optional<seqpar::mpi::world> shared;

/// What a world says that is made now; "" when it is made.
std::string refusal() {
  try {
    seqpar::mpi::world world(MPI_COMM_WORLD);
    return "";
  } catch (const seqpar::error& e) {
    return e.what();
  }
}
std::string early;

}  // namespace

seqpar::mpi::transport mpi_test::here() {
  return seqpar::mpi::transport(*shared);
}

TEST_CASE("a world before MPI_Init is refused") {
  CHECK(early == "[seqpar] mpi::world: MPI is not initialised; call MPI_Init first");
}

int main(int argc, char** argv) {
  early = refusal();
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  // A rank that left a test early leaves the others waiting: a failure too.
  shared.emplace(MPI_COMM_WORLD, seqpar::mpi::options{.deadline = std::chrono::seconds(100)});
  doctest::Context context(argc, argv);
  std::ostringstream said;
  const int rank = shared->rank();
  if (rank != 0) context.setCout(&said);
  int failed = context.run();
  if (failed && rank != 0) std::cerr << "rank " + std::to_string(rank) + " failed:\n" + said.str() << std::flush;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  shared.reset();  // a world may outlive MPI
  if (refusal() != "[seqpar] mpi::world: MPI is already finalised") {
    std::cerr << "a world was made after MPI_Finalize\n";
    return 1;
  }
  return failed;
}
