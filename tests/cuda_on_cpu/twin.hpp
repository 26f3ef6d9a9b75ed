// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernel bodies on the CPU: `twin::run<Body>(blocks, params)` at once, `twin::launcher` in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include <seqpar/cuda/concept.hpp>

#include "tests/cuda_on_cpu/twin_block.hpp"
#include "tests/cuda_on_cpu/twin_hardware.hpp"

namespace seqpar::twin {

/// Runs the blocks one after the other, in an order that the seed chooses; throws `mistake`.
report run_blocks(index_t blocks, int threads, int shared_bytes, const options&, block::body, const void* params);

template <class Body>
report run(index_t blocks, const typename Body::params& params, const options& how = {}) {
  static_assert(cuda::kernel_body<Body>);
  static_assert(Body::threads % 32 == 0 && 0 < Body::threads && Body::threads <= 1024, "whole warps, at most 1024");
  static_assert(Body::shared_bytes <= 227 * 1024, "a block has 227 KiB");
  return run_blocks(
      blocks, Body::threads, Body::shared_bytes, how,
      [](hardware& hw, const void* p) { Body::run(hw, *static_cast<const typename Body::params*>(p)); }, &params);
}

/// Gives the work to the stream, with all that the device of now can see as its memory; mistakes go to the notebook of
/// cuda_on_cpu::report().
cudaError_t launch_on(cudaStream_t, std::function<void(const options&)>);

/// What the runs of launchers did since the last call.
report take_report();
void add_to_report(const report&);

struct launcher {
  static int multiprocessors() { return 3; }
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params& params, cudaStream_t stream) {
    return launch_on(stream, [=](const options& how) { add_to_report(run<Body>(blocks, params, how)); });
  }
};

}  // namespace seqpar::twin
