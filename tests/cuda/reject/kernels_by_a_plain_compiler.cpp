// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels, without nvcc.
// expect: [seqpar] <seqpar/cuda.cuh> has kernels: compile this file with nvcc
#ifdef TWIN
#include <seqpar/cuda.hpp>
#else
#include <seqpar/cuda.cuh>
#endif

int main() {
  return 0;
}
