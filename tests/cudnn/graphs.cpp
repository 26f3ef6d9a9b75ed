// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Does cuDNN build plans for full, causal and window rectangles, in the workspace that a run has? Asked for devices
// that are only described, over described_driver.cpp: no GPU is needed.
#include <cstdio>
#include <cstring>
#include <string>

#include <seqpar/cuda/cudnn.hpp>

namespace {

using namespace seqpar;
using cuda::sdpa_shape;

/// A device as cuDNN writes one down.
std::string described(int version, int multiprocessors) {
  return "{\"deviceVer\":" + std::to_string(version) + ",\"multiProcessorCount\":" + std::to_string(multiprocessors) +
         ",\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":80000000000,"
         "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
         "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" +
         (version == 800 ? "166912" : "232448") +
         ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
         "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
         "\"supportCoopLaunch\":1,\"smClockRateKHz\":1500000,\"memClockRateKHz\":2000000,\"l2CacheSize\":41943040,"
         "\"deviceName\":\"described\"}";
}

sdpa_shape shape(index_t q_rows, index_t k_rows, index_t dim, std::int32_t left, std::int32_t right) {
  sdpa_shape n{CUDNN_DATA_BFLOAT16, 2, 8, 2, q_rows, k_rows, dim, dim, {}, {}, {}, {}, left, right};
  n.q = n.out = {8 * dim * q_rows, 8 * dim, dim};
  n.k = n.v = {2 * dim * k_rows, 2 * dim, dim};
  return n;
}

}  // namespace

int main() {
  constexpr std::int32_t open = rectangle::open;
  int known = 0, asked = 0;
  for (const auto& [version, multiprocessors] : {std::pair{800, 108}, {900, 132}, {1000, 148}}) {
    const std::string text = described(version, multiprocessors);
    cuda::cudnn_descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(text));
    device.finalize();
    if (!device.ok()) return std::printf("cuDNN does not take a described device: %d\n", int{device.said()}), 1;
    const struct {
      const char* name;
      sdpa_shape n;
    } cases[] = {{"full", shape(512, 1024, 128, open, open)},
                 {"causal", shape(1024, 1024, 128, open, 0)},
                 {"causal, keys before", shape(512, 1024, 128, open, 512)},
                 {"causal, queries behind", shape(1024, 512, 128, open, 0)},
                 {"causal, D = 64", shape(1024, 1024, 64, open, 0)},
                 {"window", shape(1024, 1024, 128, 255, 0)},
                 {"window, both ways", shape(1024, 1024, 128, 100, 28)},
                 {"ragged", shape(77, 131, 128, open, 54)},
                 {"left only", shape(512, 1024, 128, 256, open)}};
    for (const auto& [name, n] : cases) {
      ++asked;
      const cuda::sdpa_plan built = cuda::build_sdpa({nullptr, device.get()}, n, cuda::cudnn_sdpa::workspace_bytes);
      known += built.plan.ok();
      std::printf("sm_%d %-22s %s %s\n", version / 10, name,
                  built.plan.ok() ? "has a plan" : "NONE:", built.refused.c_str());
    }
  }
  std::printf("cuDNN %zu has plans for %d of %d graphs\n", cudnnGetVersion(), known, asked);
  return known == asked ? 0 : 1;
}
