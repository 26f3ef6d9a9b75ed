// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What <seqpar/cuda.hpp> has, and kernels. Needs nvcc with -std=c++20. (<seqpar/cuda/reduce.cuh>, which brings CUB and
// its namespace ::cuda, is apart.)
#pragma once

#include <seqpar/config.hpp>
static_assert(seqpar::detail::for_the_device, "[seqpar] <seqpar/cuda.cuh> has kernels: compile this file with nvcc");

#include <seqpar/cuda.hpp>
#include <seqpar/cuda/attention.hpp>
#include <seqpar/cuda/launch.cuh>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// Two streams of the current device, and the kernels for all that a run asks of them.
using on_device = launched_by<gpu>;
static_assert(executor<on_device> && launcher<gpu>);

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
