// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams and NCCL: what needs the headers and libraries of both, and no nvcc.
#pragma once

#include <seqpar/cuda.hpp>
#include <seqpar/transport/nccl.hpp>
