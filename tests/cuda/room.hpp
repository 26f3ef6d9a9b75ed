// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the blocks that a body wants on a multiprocessor find room there.
#pragma once

#include <seqpar/cuda/choices.hpp>

namespace seqpar::test {

/// Each block takes 1 KiB of the shared memory for itself.
template <class Body>
constexpr bool leaves_room(int architecture) {
  const cuda::shared_memory there = cuda::shared_memory_of(architecture);
  return (Body::shared_bytes + 1024) * Body::blocks_per_sm <= there.multiprocessor &&
         Body::shared_bytes <= there.block &&
         Body::threads * Body::blocks_per_sm <= (there.block < 128 * 1024 ? 1536 : 2048);
}

}  // namespace seqpar::test
