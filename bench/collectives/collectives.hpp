// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the program and its transports say to each other. Transports whose SDK is absent have no measure_….
#pragma once

#include <bench/support/verbs.hpp>

namespace seqpar::bench {

using report = std::function<void(const ask&, const figures&)>;

struct command {
  std::string transport = "threads";
  std::vector<verb> verbs;
  index_t min = 1 << 10, max = index_t{64} << 20, factor = 4;
  int ranks = 0;  ///< 0: as many as the transport has, 2 threads
  effort work{};

  std::vector<ask> asks(int of_ranks) const {
    std::vector<ask> all;
    for (verb v : verbs)
      for (index_t size = min; size <= max; size *= factor) all.push_back(ask_for(v, of_ranks, size));
    return all;
  }
};

void measure_mpi(const command& c, const report& tell);
void measure_nccl(const command& c, const report& tell);

}  // namespace seqpar::bench
