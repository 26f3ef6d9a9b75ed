// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <tests/streams/engine.hpp>

template struct seqpar::attention_apart<float, seqpar::nccl::transport, seqpar::test::late_host,
                                        seqpar::test::late_kernel>;

namespace seqpar::test {

TEST_CASE("both axes of a mesh over NCCL in a loop, ranks late at random: no hang, and the same bits each time [O3]") {
  if (devices() < 4) return;
  for (const schedule how : {schedule::direct, schedule::pass_along, schedule::double_ring})
    on_nccl{}.run({.ranks = 4}, [&](nccl::transport t) {
      stream_rank<nccl::transport> rank(t, {2, 2}, {.passes = forward_backward, .schedule = how, .window = 1});
      if (!stays_the_same(rank, 100, t.rank())) raise(error(errc::invalid_argument, "another result"));
    });
}

}  // namespace seqpar::test
