// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that are compiled in a file of their own, so that plans are written in plain C++: docs/gpu.md.
#pragma once

#include <seqpar/cuda/attention.hpp>

namespace seqpar::test {

// [snippet]
struct kernels_apart {
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params&, cudaStream_t);
  static int multiprocessors();
};
using on_device_apart = cuda::launched_by<kernels_apart>;
using attention_apart = cuda::attention<cuda::head_class<64>>;
// [/snippet]

}  // namespace seqpar::test
