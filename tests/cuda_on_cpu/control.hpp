// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The knobs and the notebook of a pretended machine: libcudart and libnccl on the CPU, no kinder than the real ones.
//
// Streams are threads that run late. "Device" memory is host memory in a table, filled with 0xff (NaN, -1) when new.
// "Kernels" are closures given to cudaLaunchHostFunc. Bytes move at the last moment that CUDA and NCCL allow. Nothing
// but what CUDA orders is ordered for TSan: the stand-in hides its own locks from it. What the real libraries would
// answer with a crash, a hang or a wrong number is noted in report(), and a right program leaves it empty.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

struct settings {
  std::uint64_t seed = 1;
  std::chrono::microseconds delay{100};       // of one task in three: up to this, now and then 8 times as much; 0: none
  int devices = 8;                            // ordinals; read by cudaGetDeviceCount
  bool peer_access = true;                    // between all devices
  int nccl_version = 0;                       // what ncclGetVersion says; 0: that of nccl.h
  std::chrono::milliseconds patience{30000};  // NCCL waits and nothing at all moved for so long: reported and ended
};

/// What happens to the communicators of one rank, from its nth operation after now (a group is one, counted from 0) on.
enum class fault {
  error,  // the operation does not end, and ncclCommGetAsyncError says ncclRemoteError
  death   // the operation does not end, and nobody says anything
};

/// Ends all work, frees all that was forgotten, clears counters and report, and starts over with these settings.
void reset(const settings& = {});
/// Replaces the settings in the middle of things.
void adjust(const settings&);
void inject(fault, int rank, int nth);

/// Mistakes found so far, one a line.
std::string report();
/// Streams, events, memory, graphs and communicators not given back, one a line.
std::string leaks();

/// How often a function was called ("cudaMalloc").
std::size_t calls(const char* function);
/// Bytes moved from one device to another, by copies and by NCCL; -1 is the host.
std::size_t moved(int from, int to);
/// Operations waiting in, or running on, all streams.
std::size_t pending();

/// For "kernels": notes a mistake unless [pointer, pointer + bytes) is memory that this device may touch.
bool may_touch(int device, const void* pointer, std::size_t bytes);

}  // namespace cuda_on_cpu
