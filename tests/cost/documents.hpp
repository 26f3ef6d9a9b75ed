// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Documents of lognormal lengths, drawn once: 2048 tokens for 4, 8 and 16 ranks.
#pragma once

#include <vector>

#include <seqpar/types.hpp>

namespace seqpar::test {

inline std::vector<index_t> document_lengths(int ranks) {
  if (ranks == 4)
    return {200, 242, 46, 17, 11, 44, 12, 7, 54, 50, 82, 14, 42, 39, 7, 81, 62, 512, 54, 35, 187, 54, 127, 27, 42};
  if (ranks == 8)
    return {145, 98,  49, 11, 72, 46, 101, 55,  157, 40,  54, 94, 11, 26,
            23,  459, 38, 93, 89, 30, 6,   135, 26,  100, 8,  25, 57};
  return {237, 8,   8,  40,  102, 51, 61, 13, 86, 162, 25, 7,  17, 106, 5,  38, 12, 36, 31,
          43,  258, 70, 211, 36,  23, 67, 4,  40, 51,  9,  74, 21, 4,   33, 13, 22, 24};
}

}  // namespace seqpar::test
