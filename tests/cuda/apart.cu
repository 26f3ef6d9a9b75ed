// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of apart_program.cpp.
// [snippet]
#include <seqpar/cuda/apart.cuh>

using namespace seqpar::cuda;
template struct seqpar::cuda::kernels_apart<attention<head_class<64>>, seqpar::bfloat16>;
// [/snippet]
