// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The GPU's side of the door (concept.hpp): the only place that names its instructions. Needs nvcc and sm_80.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include <seqpar/cuda/concept.hpp>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "[seqpar] the kernels need compute capability 8.0 or later: compile with -arch=sm_80 or above"
#endif

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// A place in shared memory: its 32-bit address, which costs half the registers of a pointer.
template <class T>
class gpu_shared {
 public:
  __device__ __forceinline__ explicit gpu_shared(std::uint32_t address) : address_(address) {}
  __device__ __forceinline__ T& operator[](int i) const {
    return *static_cast<T*>(__cvta_shared_to_generic((*this + i).address_));
  }
  __device__ __forceinline__ T& operator*() const { return (*this)[0]; }
  __device__ __forceinline__ gpu_shared operator+(int i) const {
    return gpu_shared(address_ + static_cast<std::uint32_t>(i * static_cast<int>(sizeof(T))));
  }
  __device__ __forceinline__ gpu_shared operator-(int i) const { return *this + -i; }
  __device__ __forceinline__ gpu_shared& operator+=(int i) { return *this = *this + i; }
  template <class U>
  __device__ __forceinline__ gpu_shared<U> cast() const {
    return gpu_shared<U>(address_);
  }
  /// What instructions call it.
  __device__ __forceinline__ std::uint32_t address() const { return address_; }

 private:
  std::uint32_t address_;
};

class gpu_hardware {
 public:
  __device__ __forceinline__ index_t block() const { return blockIdx.x; }
  __device__ __forceinline__ index_t blocks() const { return gridDim.x; }
  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int warp() const { return thread() >> 5; }
  __device__ __forceinline__ int lane() const { return thread() & 31; }
  template <class T>
  __device__ __forceinline__ gpu_shared<T> shared(int bytes) {
    extern __shared__ __align__(128) quad arena[];
    return gpu_shared<T>(static_cast<std::uint32_t>(__cvta_generic_to_shared(arena)) +
                         static_cast<std::uint32_t>(bytes));
  }

  __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ void sync_some(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void sync_warp() { __syncwarp(); }
  __device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(all, x, mask); }
  __device__ __forceinline__ int shuffle_xor(int x, int mask) { return __shfl_xor_sync(all, x, mask); }
  __device__ __forceinline__ float shuffle(float x, int lane) { return __shfl_sync(all, x, lane); }
  __device__ __forceinline__ int shuffle(int x, int lane) { return __shfl_sync(all, x, lane); }
  __device__ __forceinline__ bool any(bool x) { return __any_sync(all, x) != 0; }

  __device__ __forceinline__ float widen(float x) { return x; }
  __device__ __forceinline__ float widen(float16 x) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
    return f;
  }
  __device__ __forceinline__ float widen(bfloat16 x) {
    return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16);
  }
  template <class T>
  __device__ __forceinline__ T narrow(float f) {
    if constexpr (std::is_same_v<T, float>) {
      return f;
    } else {
      T x;
      if constexpr (std::is_same_v<T, float16>)
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x.bits) : "f"(f));
      else
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(x.bits) : "f"(f));
      return x;
    }
  }
  template <class T>
  __device__ __forceinline__ std::uint32_t pack(float lo, float hi) {
    std::uint32_t word;
    if constexpr (std::is_same_v<T, float16>)
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    else
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    return word;
  }
  __device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

  /// Not ld.global.nc: a body may write what it has read, and read it again.
  __device__ __forceinline__ quad load(const void* p) {
    quad x;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return x;
  }
  __device__ __forceinline__ void store(void* p, quad x) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(x.word[0]),
                 "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
                 : "memory");
  }

  template <class T>
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<T, float16>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  template <class T>
  __device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], gpu_shared<T> p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p.address())
                 : "memory");
  }
  template <class T>
  __device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], gpu_shared<T> p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p.address())
                 : "memory");
  }

  template <class T>
  __device__ __forceinline__ void copy_async(gpu_shared<T> to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address()),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int N>
  __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
  }

 private:
  static constexpr unsigned all = 0xffffffff;
};

static_assert(hardware<gpu_hardware>);

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
