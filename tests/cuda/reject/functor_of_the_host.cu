// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask that only the host can ask.
// expect: calling a __host__ function("every_other::allows(long, long) const") from a __device__ function
#include <seqpar/cuda.cuh>

using namespace seqpar;

struct every_other {
#ifdef TWIN
  SEQPAR_HD
#endif
  bool allows(index_t q, index_t k) const {
    return (q + k) % 2 == 0;
  }
};
using body = cuda::attend_forward_plain<float, float, every_other>;
template __global__ void cuda::kernel<body>(const __grid_constant__ body::params);
