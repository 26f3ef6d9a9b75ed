// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Division by a number that is known beforehand, for kernels: a multiplication instead of some hundred instructions.
#pragma once

#include <bit>
#include <cstdint>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// quotient(n) = ⌊n / by⌋ for 0 ≤ n, by ≥ 1: ⌊2n·m / 2^(64 + s)⌋ with s = ⌈log2 by⌉, m = ⌈2^(63 + s) / by⌉.
/// m errs by e < by ≤ 2^s at most, so that n·e < 2^(63 + s) and the quotient is exact (Granlund and Montgomery, 1994).
class divider {
 public:
  explicit divider(index_t by) : by_(by) {
    const auto d = static_cast<std::uint64_t>(by);
    shift_ = static_cast<std::int32_t>(std::bit_width(d - 1));
    const wide power = wide{1} << (63 + shift_);
    multiplier_ = static_cast<std::uint64_t>((power + d - 1) / d);
  }
  SEQPAR_HD index_t by() const { return by_; }
  SEQPAR_HD index_t quotient(index_t n) const {
    const wide product = static_cast<wide>(multiplier_) * (static_cast<std::uint64_t>(n) << 1);
    return static_cast<index_t>(static_cast<std::uint64_t>(product >> 64) >> shift_);
  }

 private:
  __extension__ typedef unsigned __int128 wide;
  index_t by_;
  std::uint64_t multiplier_;
  std::int32_t shift_;
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
