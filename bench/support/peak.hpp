// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one core can do at most, measured beside what is compared with it: fp32 multiply-adds that touch no memory.
#pragma once

#include <benchmark/benchmark.h>

#include <ctime>

#include <seqpar/kernel/vector.hpp>

namespace seqpar::bench {

/// What the processor gave this thread, free of what others got meanwhile.
inline double thread_seconds() {
  std::timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double seconds_of(F&& f) {
  const double start = thread_seconds();
  f();
  benchmark::ClobberMemory();
  return thread_seconds() - start;
}

/// Independent multiply-adds in registers: nothing but the peak. More sums than latency × units.
inline constexpr int sums_at_once = vectors<native_vector_bytes>::registers == 32 ? 24 : 12;

[[gnu::noinline]] inline float multiply_adds(index_t rounds, float factor) {
  using V = vectors<native_vector_bytes>;
  V::floats sum[sums_at_once], total{};
#pragma GCC unroll 32
  for (int i = 0; i < sums_at_once; ++i) sum[i] = V::splat(static_cast<float>(i));
  const V::floats a = V::splat(factor), b = V::splat(1);
  for (index_t r = 0; r < rounds; ++r)
#pragma GCC unroll 32
    for (int i = 0; i < sums_at_once; ++i) sum[i] = sum[i] * a + b;
#pragma GCC unroll 32
  for (int i = 0; i < sums_at_once; ++i) total += sum[i];
  return total[0];
}

/// FLOP/s of a few milliseconds of multiply-adds.
inline double measured_peak() {
  index_t rounds = 400000;
  benchmark::DoNotOptimize(rounds);
  const double seconds = seconds_of([&] { benchmark::DoNotOptimize(multiply_adds(rounds, 0.5f)); });
  return static_cast<double>(rounds * sums_at_once * vectors<native_vector_bytes>::lanes * 2) / seconds;
}

}  // namespace seqpar::bench
