// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Starting a kernel body on the GPU. Needs nvcc.
#pragma once

#include <cuda_runtime.h>

#include <seqpar/cuda/hardware.cuh>
#include <seqpar/cuda/space.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// One thread of a body.
template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::blocks_per_sm)
    kernel(const __grid_constant__ typename Body::params p) {
  gpu_hardware hw;
  Body::run(hw, p);
}

/// The launcher of the current device. Launches may be captured; none waits for the device.
struct gpu {
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params& p, cudaStream_t stream) {
    if (const cudaError_t e = allow_shared<Body>(); e != cudaSuccess) return e;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(Body::threads);
    config.dynamicSmemBytes = Body::shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, &kernel<Body>, p);
  }
  /// Puts the bodies on the device before their first launch, which may stand in a capture or beside a kernel that
  /// waits for a peer; else the first launch does so. For prepare. Fails: the program has no code for this device.
  template <class... Bodies>
  static cudaError_t load() {
    cudaError_t first = cudaSuccess;
    const auto note = [&](cudaError_t e) {
      if (first == cudaSuccess) first = e;
    };
    cudaFuncAttributes found;
    (note(cudaFuncGetAttributes(&found, &kernel<Bodies>)), ...);
    (note(allow_shared<Bodies>()), ...);
    return first;
  }
  static int multiprocessors() { return cuda::multiprocessors(); }

 private:
  /// More than 48 KiB must be asked for, on each device; a call of some ten nanoseconds.
  template <class Body>
  static cudaError_t allow_shared() {
    if constexpr (Body::shared_bytes > 48 * 1024)
      return cudaFuncSetAttribute(&kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, Body::shared_bytes);
    else
      return cudaSuccess;
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
