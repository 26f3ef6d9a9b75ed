// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks of mpirun as the engine of bodies that are written for any.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include <seqpar/transport/mpi.hpp>
#include <tests/support/engine.hpp>

namespace mpi_test {

/// This process's rank in a world of all; made and ended by main.cpp.
seqpar::mpi::transport here();

/// Every rank calls run() with the same arguments. What a rank throws ends the job, told with the test's name.
struct on_mpi {
  using transport = seqpar::mpi::transport;

  template <class F>
  void run(const seqpar::threads::options& o, F&& f) const {
    const transport world = here();
    if (o.ranks > world.size())
      throw seqpar::error(seqpar::errc::invalid_argument, "test: more ranks than mpirun started");
    if (world.rank() >= o.ranks) return;
    try {
      f(world);
    } catch (const std::exception& e) {
      world.abort({seqpar::errc::peer_failed, "a rank threw"},
                  std::string(e.what()) + ", in: " + doctest::getContextOptions()->currentTest->m_name);
    }
  }
  static seqpar::test::host_site site(const transport&) { return {}; }
  template <class T>
  void combine(std::vector<T>& x, const T& before) const {
    std::vector<unsigned char> changes(x.size() * sizeof(T));
    const auto changed = [&] {
      for (std::size_t i = 0; i < changes.size(); ++i) {
        unsigned char byte = 0;
        std::memcpy(&byte, reinterpret_cast<const unsigned char*>(&before) + i % sizeof(T), 1);
        changes[i] ^= byte;
      }
    };
    if (x.empty()) return;
    std::memcpy(changes.data(), x.data(), changes.size());
    changed();
    MPI_Allreduce(MPI_IN_PLACE, changes.data(), static_cast<int>(changes.size()), MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
    changed();
    std::memcpy(static_cast<void*>(x.data()), changes.data(), changes.size());
  }
};

}  // namespace mpi_test
