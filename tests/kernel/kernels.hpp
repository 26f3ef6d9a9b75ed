// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels that every kernel test is run with.
#pragma once

// g++ warns of passing vectors that the processor lacks; nothing here crosses a translation unit.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/kernel/host_reference.hpp>

/// The widths that the processor lacks are put together from what it has: slow, but the same lines of code.
#define EVERY_KERNEL                                                                          \
  seqpar::host_reference<float>, seqpar::host_reference<double>, seqpar::basic_host_fast<16>, \
      seqpar::basic_host_fast<32>, seqpar::basic_host_fast<64>
