// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The smallest user of MPI ranks: every rank gathers what all ranks hold.
// [snippet]
#include <cstdio>
#include <seqpar/mpi.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    seqpar::mpi::world world(MPI_COMM_WORLD, {.deadline = std::chrono::minutes(2)});  // or a communicator of yours
    const auto team = seqpar::ring(seqpar::mpi::transport(world));
    const auto layout = seqpar::zigzag{.tokens = 1000, .ranks = team.size()};
    auto plan = seqpar::plan_gather(team, layout, {.row_bytes = sizeof(float)});
    const seqpar::host_memory memory(plan.memory());
    plan.prepare(memory, seqpar::on_host{});
    std::vector<float> own, all(1000);
    for (int i = 0; i < layout.count_of(team.index()); ++i)
      own.push_back(static_cast<float>(layout.global_of(team.index(), i)));
    const auto done = plan.forward(own.data(), all.data(), memory, seqpar::on_host{});
    std::printf("rank %d: %s, token 999 is %g\n", team.index(), done.message().c_str(), all[999]);
  }
  MPI_Finalize();
}
// [/snippet]
