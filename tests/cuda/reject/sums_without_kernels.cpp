// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sum on streams that have no kernels.
// expect: needs kernels: give it cuda::on_device of
#include <seqpar/cuda.hpp>

int main() {
  seqpar::run_ranks({.ranks = 1}, [](seqpar::threads::transport t) {
    const auto team = seqpar::ring(seqpar::threads::device_transport(t));
    const seqpar::contiguous blocks{.tokens = 4, .ranks = 1};
    const seqpar::striped stripes{.tokens = 4, .ranks = 1};
    const auto move = seqpar::plan_reshard(team, blocks, stripes, {.row_bytes = 4});
    const seqpar::cuda::on_stream exec;
    float* const none = nullptr;
#ifdef TWIN
    seqpar::check(move.forward(none, none, seqpar::memory{}, exec));
#else
    seqpar::check(move.adjoint<float>(none, none, seqpar::memory{}, exec));
#endif
  });
}
