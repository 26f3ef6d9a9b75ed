// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a test begins and ends, and how it expects an error.
#pragma once

#include <doctest/doctest.h>

#include "tests/cuda_on_cpu/support.hpp"

namespace cuda_on_cpu {

// A machine that starts clean and must end without findings, and with everything given back.
struct machine_of_test {
  explicit machine_of_test(const settings& s = {}) { reset(s); }
  machine_of_test(const machine_of_test&) = delete;
  ~machine_of_test() {
    CHECK(report() == "");
    CHECK(leaks() == "");
    reset();
  }
};

// The last error is taken, so that it does not reach the next test.
inline void expect(cudaError_t e, cudaError_t wanted) {
  CHECK(std::string(cudaGetErrorName(e)) == cudaGetErrorName(wanted));
  CHECK(cudaPeekAtLastError() == wanted);
  CHECK(cudaGetLastError() == wanted);
}

inline void expect(ncclResult_t r, ncclResult_t wanted) {
  CHECK(std::string(ncclGetErrorString(r)) == ncclGetErrorString(wanted));
}

}  // namespace cuda_on_cpu
