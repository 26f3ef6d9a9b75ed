// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The door to the hardware: what a kernel body may do. The GPU's is hardware.cuh; bodies compile as plain C++ too.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// 16 bytes, the widest access to memory.
struct alignas(16) quad {
  std::uint32_t word[4];
};

/// What one thread of a block may do. `shared<T>` is a place in the block's shared memory: p[i] reads and writes,
/// p + i moves it, `template cast<U>()` sees it as another type; quads must lie on 16 bytes.
///
///   block(), blocks()            which block of how many, 64-bit
///   thread(), warp(), lane()     int; lane 0 … 31
///   shared<T>(bytes)             the place `bytes` into the block's dynamic shared memory
///   sync()                       all threads of the block; orders shared and global memory among them
///   sync_some(id, threads)       as many threads of whole warps, 1 ≤ id ≤ 15
///   sync_warp()                  the 32 lanes
///   shuffle_xor(x, mask), shuffle(x, lane)   float or int32, all 32 lanes
///   any(x)                       whether x holds in any lane
///
///   widen(x), narrow<T>(f)       T ↔ float, rounding to nearest even; pack<T>(lo, hi): two of them in a word
///   exp2(x)                      within 2 ulp; 2^−∞ = 0
///   load(p), store(p, quad)      global memory, 16 bytes at a time; p on 16 bytes
///
///   mma<T>(d, a, b)              d += a·b, m16n8k16, T 16-bit, fp32 sums; fragments as the PTX manual has them
///   load_matrices<T>(r, p)       ldmatrix.x4: lane i names row i % 8 of matrix i / 8, 16 bytes at p
///   load_matrices_transposed<T>(r, p)
///   copy_async(to, from, there)  cp.async of 16 bytes, global → shared; zeros where !there (from is not read)
///   commit_copies()              closes a group of them
///   wait_copies<n>()             until at most n groups of this thread are under way; others' need sync() too
template <class Hw>
concept hardware = requires(Hw& hw, int n, float x, std::uint32_t (&four)[4], const std::uint32_t (&two)[2],
                            float (&sums)[4], quad* p) {
  { hw.block() } -> std::same_as<index_t>;
  { hw.blocks() } -> std::same_as<index_t>;
  { hw.thread() } -> std::same_as<int>;
  { hw.warp() } -> std::same_as<int>;
  { hw.lane() } -> std::same_as<int>;
  hw.template shared<float>(n)[n];
  hw.sync();
  hw.sync_some(n, n);
  hw.sync_warp();
  { hw.shuffle_xor(x, n) } -> std::same_as<float>;
  { hw.shuffle(n, n) } -> std::same_as<int>;
  { hw.any(true) } -> std::same_as<bool>;
  { hw.widen(bfloat16{}) } -> std::same_as<float>;
  { hw.template narrow<float16>(x) } -> std::same_as<float16>;
  { hw.template pack<float16>(x, x) } -> std::same_as<std::uint32_t>;
  { hw.exp2(x) } -> std::same_as<float>;
  { hw.load(p) } -> std::same_as<quad>;
  hw.store(p, quad{});
  hw.template mma<bfloat16>(sums, four, two);
  hw.template load_matrices<bfloat16>(four, hw.template shared<bfloat16>(n));
  hw.template load_matrices_transposed<bfloat16>(four, hw.template shared<bfloat16>(n));
  hw.copy_async(hw.template shared<bfloat16>(n), p, true);
  hw.commit_copies();
  hw.template wait_copies<1>();
};

/// A kernel body: a type with
///
///   params                       trivially copyable, at most 4 KiB: what the kernel is given
///   threads, blocks_per_sm       static constexpr int: the size of a block; how many must fit on a multiprocessor
///   shared_bytes                 static constexpr int: dynamic shared memory of a block
///   run(hw, params)              static, a template over Hw, SEQPAR_DEVICE: the code of one thread
///
/// It walks its work by `for (index_t w = hw.block(); w < work; w += hw.blocks())`: any number of blocks is right.
template <class B>
concept kernel_body =
    std::is_trivially_copyable_v<typename B::params> && sizeof(typename B::params) <= 4096 && requires {
  { B::threads } -> std::convertible_to<int>;
  { B::blocks_per_sm } -> std::convertible_to<int>;
  { B::shared_bytes } -> std::convertible_to<int>;
};

/// A list of them.
template <class... Bodies>
struct bodies {};
template <class... A, class... B>
constexpr bodies<A..., B...> operator+(bodies<A...>, bodies<B...>) {
  return {};
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
