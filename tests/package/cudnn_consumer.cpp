// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The smallest user of cuDNN's attention: a kernel for plans, made without a GPU.
#include <cstdio>
#include <seqpar/cuda/cudnn.hpp>
#include <seqpar/kernel/host_reference.hpp>

int main() {
  using kernel = seqpar::cuda::cudnn_attention<seqpar::host_reference<float>>;
  static_assert(seqpar::block_kernel<kernel>);
  const kernel by_cudnn;
  std::printf("cuDNN %zu, in calls of at most %d rectangles\n", cudnnGetVersion(),
              static_cast<int>(by_cudnn.most_rectangles));
  return cudnnGetVersion() >= 91300 ? 0 : 1;
}
