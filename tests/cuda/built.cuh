// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a *_kernels.cu names the bodies that nvcc is to compile; cuda.cmake says what is then read from the compiler.
#pragma once

#include <seqpar/cuda/launch.cuh>
#include <tests/cuda/room.hpp>

namespace seqpar::test {

/// `template struct built<body, …>;`
template <class... Bodies>
struct built {
  static_assert((cuda::kernel_body<Bodies> && ...));
  static_assert((leaves_room<Bodies>(SEQPAR_BUILT_FOR) && ...), "so many blocks do not fit on a multiprocessor");
  static void all() { (use(&cuda::kernel<Bodies>), ...); }

 private:
  template <class Kernel>
  static void use(Kernel*) {}
};

}  // namespace seqpar::test
