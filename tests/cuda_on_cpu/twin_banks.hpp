// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared memory has 32 banks of 4 bytes; what the lanes of a warp want of one bank at once comes one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace seqpar::twin {

/// How many wavefronts more than its bytes need an access takes: lane i accesses `bytes` at offsets[i]. Lanes of one
/// phase are served together: 32 of them at 4 bytes or less, 16 at 8, 8 at 16. The same word counts once.
int bank_conflicts(std::span<const int> offsets, int bytes);

/// What a lane accessed since its warp last met.
class access_log {
 public:
  void add(int offset, int bytes) {
    if (entries_.size() < most) entries_.push_back({offset, bytes});
  }
  /// The conflicts of a warp's accesses, the nth of all lanes together; 0 where lanes did not do the same. Forgets
  /// them.
  static int settle(std::span<access_log* const, 32>);

 private:
  static constexpr std::size_t most = 1024;
  struct entry {
    int offset, bytes;
  };
  std::vector<entry> entries_;
};

}  // namespace seqpar::twin
