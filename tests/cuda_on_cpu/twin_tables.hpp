// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What warps do together, by the fragment tables of the PTX manual. Each is what one lane gives and gets.
#pragma once

#include <cstdint>
#include <span>

#include <seqpar/types.hpp>

namespace seqpar::twin {

class block;
using lanes = std::span<void* const, 32>;  // what each gave

/// mma.m16n8k16. With g = lane / 4 and t = lane % 4, register r of A holds of row g + 8·(r % 2) the columns
/// 2t + 8·(r / 2) and the next; of B, of column g the rows 2t + 8r and the next; the sums are of row g + 8·(r / 2),
/// column 2t + r % 2. T: float16, bfloat16.
template <class T>
struct multiplied {
  float* d;
  const std::uint32_t *a, *b;
  static void run(block&, lanes);
};
extern template struct multiplied<float16>;
extern template struct multiplied<bfloat16>;

/// ldmatrix.x4: lane i names row i % 8 of matrix i / 8, and gets in register m, of matrix m, elements 2·(i % 4) and the
/// next of row i / 4.
struct loaded {
  std::uint32_t* r;
  int row;
  static void run(block&, lanes);
};
/// ldmatrix.x4.trans: columns for rows.
struct loaded_transposed {
  std::uint32_t* r;
  int row;
  static void run(block&, lanes);
};

/// shfl.sync: a lane gets what lane `from` % 32 gives. T: float, int.
template <class T>
struct exchanged {
  T given, got;
  int from;
  static void run(block&, lanes);
};
extern template struct exchanged<float>;
extern template struct exchanged<int>;

/// vote.sync.any
struct voted {
  bool given, got;
  static void run(block&, lanes);
};

/// bar.warp.sync
struct met {
  static void run(block&, lanes);
};

}  // namespace seqpar::twin
