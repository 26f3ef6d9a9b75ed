// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the benches of kernels share: device memory, random numbers, times, and the two ceilings of the card.
#pragma once

#include <dlfcn.h>
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <seqpar/cuda.cuh>

namespace bench {

using seqpar::index_t;

inline void must(cudaError_t e) {
  seqpar::check(seqpar::cuda::status_of(e, "bench: a call of the runtime failed"));
}

/// Device memory, full of NaN.
template <class T>
class array {
 public:
  explicit array(index_t count) : count_(count) {
    must(cudaMalloc(&data_, bytes() + 1));
    poison();
  }
  array(const array&) = delete;
  ~array() { cudaFree(data_); }
  void poison() { must(cudaMemset(data_, 0xff, bytes())); }
  T* data() const { return static_cast<T*>(data_); }
  index_t size() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

 private:
  void* data_ = nullptr;
  index_t count_;
};

/// A plan's memory on the device.
class device_memory {
 public:
  explicit device_memory(const seqpar::memory_sizes& n)
      : tables_(n.tables), scratch_(n.scratch), exchange_(n.exchange), saved_(n.saved) {}
  operator seqpar::memory() const {
    const auto all = [](const array<std::byte>& a) { return seqpar::region{a.data(), a.size()}; };
    return {all(tables_), all(scratch_), all(exchange_), all(saved_)};
  }

 private:
  array<std::byte> tables_, scratch_, exchange_, saved_;
};

/// Numbers of mean 0 and variance 1.
template <class T>
__global__ void random_numbers(T* to, index_t count, unsigned long long seed) {
  seqpar::cuda::gpu_hardware hw;
  for (index_t i = hw.block() * blockDim.x + hw.thread(); i < count; i += hw.blocks() * blockDim.x) {
    unsigned long long z = (static_cast<unsigned long long>(i) + seed) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    float sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<float>((z >> (16 * part)) & 0xffff) / 65536.f;
    to[i] = hw.narrow<T>((sum - 2) * 1.7320508f);
  }
}
template <class T>
void randomize(const array<T>& a, unsigned long long seed) {
  random_numbers<<<1024, 256>>>(a.data(), a.size(), seed << 40);
  must(cudaGetLastError());
  must(cudaDeviceSynchronize());
}

/// The median time of work(turn), which gives a turn's work to the stream; in seconds, by events. The host runs ahead,
/// so that its calls are not in the numbers unless they take longer than the work.
template <class F>
double median(cudaStream_t stream, F&& work, double seconds = 0.15) {
  std::vector<cudaEvent_t> marks(2);
  for (cudaEvent_t& mark : marks) must(cudaEventCreate(&mark));
  const auto between = [&](std::size_t i) {
    float ms = 0;
    must(cudaEventElapsedTime(&ms, marks[i], marks[i + 1]));
    return static_cast<double>(ms) / 1000;
  };
  int turn = 0;
  work(turn++);
  must(cudaEventRecord(marks[0], stream));
  work(turn++);
  must(cudaEventRecord(marks[1], stream));
  must(cudaEventSynchronize(marks[1]));
  const auto turns = static_cast<std::size_t>(std::clamp(seconds / (between(0) + 1e-9), 5., 200.));
  while (marks.size() < turns + 1) must(cudaEventCreate(&marks.emplace_back()));
  work(turn++);
  must(cudaEventRecord(marks[0], stream));
  for (std::size_t i = 1; i <= turns; ++i) {
    work(turn++);
    must(cudaEventRecord(marks[i], stream));
  }
  must(cudaEventSynchronize(marks[turns]));
  std::vector<double> all;
  for (std::size_t i = 0; i < turns; ++i) all.push_back(between(i));
  for (const cudaEvent_t mark : marks) must(cudaEventDestroy(mark));
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(turns / 2), all.end());
  return all[turns / 2];
}

/// Bytes read and written in a second by a large copy within the device.
inline double copy_ceiling(cudaStream_t stream) {
  const array<std::byte> from(index_t{1} << 30), to(index_t{1} << 30);
  return 2 * static_cast<double>(to.bytes()) / median(stream, [&](int) {
           must(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, stream));
         });
}

/// Operations in a second of a large bf16 matrix product by cuBLAS; 0 where that is not here.
inline double product_ceiling(cudaStream_t stream) {
#ifdef CUBLAS_VER_MAJOR
  void* library = dlopen(("libcublas.so." + std::to_string(CUBLAS_VER_MAJOR)).c_str(), RTLD_NOW);
  if (!library) return 0;
  const auto create = reinterpret_cast<decltype(&cublasCreate_v2)>(dlsym(library, "cublasCreate_v2"));
  const auto destroy = reinterpret_cast<decltype(&cublasDestroy_v2)>(dlsym(library, "cublasDestroy_v2"));
  const auto set_stream = reinterpret_cast<decltype(&cublasSetStream_v2)>(dlsym(library, "cublasSetStream_v2"));
  using product = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                 const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                 cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  const auto multiply = reinterpret_cast<product*>(dlsym(library, "cublasGemmEx"));
  cublasHandle_t handle;
  if (!create || !destroy || !set_stream || !multiply || create(&handle) != CUBLAS_STATUS_SUCCESS) return 0;
  set_stream(handle, stream);
  constexpr int n = 8192;
  const array<seqpar::bfloat16> a(index_t{n} * n), b(index_t{n} * n), c(index_t{n} * n);
  randomize(a, 1);
  randomize(b, 2);
  const float one = 1, zero = 0;
  bool fine = true;
  const double time = median(stream, [&](int) {
    fine =
        multiply(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.data(), CUDA_R_16BF, n, b.data(), CUDA_R_16BF, n,
                 &zero, c.data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS &&
        fine;
  });
  destroy(handle);
  return fine ? 2.0 * n * n * n / time : 0;
#else
  static_cast<void>(stream);
  return 0;
#endif
}

/// The card's name, or that there is none.
inline bool gpu_here() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU here; nothing was measured");
    return false;
  }
  cudaDeviceProp p;
  must(cudaGetDeviceProperties(&p, 0));
  std::printf("%s, compute capability %d.%d, %d multiprocessors\n", p.name, p.major, p.minor, p.multiProcessorCount);
  return true;
}

}  // namespace bench
