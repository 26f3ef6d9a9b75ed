// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whose kernels a test of streams runs: the twin's where a plain C++ compiler reads it, the GPU's where nvcc does. So
// one file is a test here and, in kernels_on_gpu, there.
#pragma once

#include <seqpar/cuda/attention.hpp>
#include <tests/streams/engine.hpp>

#ifdef __CUDACC__
#include <seqpar/cuda.cuh>
#else
#include <tests/cuda_on_cpu/control.hpp>
#include <tests/cuda_on_cpu/twin.hpp>
#endif

namespace seqpar::test {

#ifdef __CUDACC__
using on_kernels = cuda::on_device;
/// What the machine has to say against the program.
inline std::string complaints() {
  const cudaError_t e = cudaDeviceSynchronize();
  return e == cudaSuccess ? "" : cudaGetErrorString(e);
}
#else
using on_kernels = cuda::launched_by<twin::launcher>;
inline std::string complaints() {
  return cuda_on_cpu::report();
}
#endif

}  // namespace seqpar::test
