// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams: what needs the CUDA runtime's headers and library, and no nvcc.
#pragma once

#include <seqpar/seqpar.hpp>
#include <seqpar/space/cuda.hpp>
#include <seqpar/transport/threads_cuda.hpp>
