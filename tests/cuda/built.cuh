// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a *_kernels.cu names the bodies that nvcc is to compile; cuda.cmake says what is then read from the compiler.
#pragma once

#include <seqpar/cuda/launch.cuh>
#include <seqpar/cuda/tiles.hpp>

namespace seqpar::test {

/// On a multiprocessor of the architecture built for, of whose shared memory each block takes 1 KiB for itself.
template <class Body>
constexpr bool leaves_room() {
  constexpr cuda::shared_memory there = cuda::shared_memory_of(SEQPAR_BUILT_FOR);
  return (Body::shared_bytes + 1024) * Body::blocks_per_sm <= there.multiprocessor &&
         Body::shared_bytes <= there.block && Body::threads * Body::blocks_per_sm <= 2048;
}

/// `template struct built<body, …>;`
template <class... Bodies>
struct built {
  static_assert((cuda::kernel_body<Bodies> && ...));
  static_assert((leaves_room<Bodies>() && ...), "so many blocks do not fit on a multiprocessor");
  static void all() { (use(&cuda::kernel<Bodies>), ...); }

 private:
  template <class Kernel>
  static void use(Kernel*) {}
};

}  // namespace seqpar::test
