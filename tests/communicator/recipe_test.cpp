// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <seqpar/communicator/mesh.hpp>
#include <seqpar/communicator/process_grid.hpp>
#include <seqpar/transport/threads.hpp>
#include <vector>

TEST_CASE("a process grid gives the ranks that a mesh is made of") {
  std::vector<std::vector<int>> groups(8);
  seqpar::run_ranks(8, [&](seqpar::threads::transport world) {
    // [snippet]
    const seqpar::process_grid grid{.data = 2, .sequence = 4, .tensor = 1};  // 8 ranks
    const seqpar::mesh team(world, {.ring = 2, .all_to_all = 2}, grid.group(seqpar::parallel::sequence, world.rank()));
    // ranks 0 … 3 are one team, 4 … 7 another; team.index() is this rank's place in its team
    // [/snippet]
    groups[static_cast<std::size_t>(world.rank())] = team.ranks();
  });
  CHECK(groups[2] == std::vector<int>{0, 1, 2, 3});
  CHECK(groups[5] == std::vector<int>{4, 5, 6, 7});
}
