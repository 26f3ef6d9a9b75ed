// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of apart.hpp: all that attention of bfloat16 asks for on one rank or several.
#include <seqpar/cuda.cuh>
#include <tests/cuda/apart.hpp>

namespace seqpar::test {

// [snippet]
template <class Body>
cudaError_t kernels_apart::launch(index_t blocks, const typename Body::params& p, cudaStream_t stream) {
  return cuda::gpu::launch<Body>(blocks, p, stream);
}
int kernels_apart::multiprocessors() {
  return cuda::gpu::multiprocessors();
}

template <class... Bodies>
struct given {
  static inline void* const launches[] = {reinterpret_cast<void*>(&kernels_apart::launch<Bodies>)...};
};
using seqpar::bfloat16;
using namespace seqpar::cuda;
using wide = head_class<64>;
template struct given<attend_forward<bfloat16, bfloat16, wide, by_intervals>,  //
                      attend_backward_keys<bfloat16, wide, by_intervals>,
                      attend_backward_queries<bfloat16, wide, by_intervals>>;
template struct given<attend_forward_plain<bfloat16, bfloat16, by_intervals>,
                      attend_backward_plain_keys<bfloat16, by_intervals>,
                      attend_backward_plain_queries<bfloat16, by_intervals>>;
template struct given<copy_body<1>, copy_body<2>, copy_body<4>, copy_body<8>, copy_body<16>>;
template struct given<fill_body<1>, fill_body<2>, fill_body<4>, fill_body<8>, fill_body<16>>;
template struct given<store_body<float, float, 4>, store_body<float, float, 1>, store_body<bfloat16, float, 8>,
                      store_body<bfloat16, float, 1>, store_body<bfloat16, bfloat16, 8>,
                      store_body<bfloat16, bfloat16, 1>, row_dots_body<bfloat16, bfloat16, 8>,
                      row_dots_body<bfloat16, bfloat16, 1>>;
// [/snippet]

}  // namespace seqpar::test
