// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that a file of their own holds, so that plans are compiled as plain C++: cuda/apart.cuh is for that file.
#pragma once

#include <seqpar/cuda/attention.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// The launcher of kernels that are compiled apart. The linker names a body that is not.
struct apart {
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params&, cudaStream_t);
  template <class Body>
  static cudaError_t load_one();
  /// As gpu::load.
  template <class... Bodies>
  static cudaError_t load() {
    cudaError_t e = cudaSuccess;
    (void)((e = load_one<Bodies>(), e == cudaSuccess) && ...);
    return e;
  }
  static int multiprocessors() { return cuda::multiprocessors(); }
};

/// To be used as on_device is.
using on_device_apart = launched_by<apart>;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
