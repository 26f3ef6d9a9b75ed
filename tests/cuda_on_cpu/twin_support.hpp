// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small bodies for tests of the twin: a lambda each.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/cuda_on_cpu/twin.hpp"

namespace seqpar::twin {

/// Code: a lambda (hw, pointer) without captures; `pointer` is to global memory.
template <class Code, int Threads = 64>
struct body_of {
  struct params {
    void* pointer;
  };
  static constexpr int threads = Threads, blocks_per_sm = 1, shared_bytes = 4096;
  template <class Hw>
  static void run(Hw& hw, const params& p) {
    Code{}(hw, p.pointer);
  }
};

/// What the twin says of a block, or of several; nothing if it is content.
template <int Threads = 64, class Code>
std::string found(Code, const options& how = {}, void* pointer = nullptr, index_t blocks = 1) {
  try {
    run<body_of<Code, Threads>>(blocks, {pointer}, how);
  } catch (const mistake& m) {
    return m.what();
  }
  return "";
}

/// Whether each of these seeds finds the mistake, and says so.
template <int Threads = 64, class Code>
void must_find(const char* what, Code code, const options& how = {}, void* pointer = nullptr) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    options o = how;
    o.seed = seed;
    const std::string text = found<Threads>(code, o, pointer);
    INFO("seed ", seed, ": ", text);
    CHECK(text.find(what) != std::string::npos);
  }
}
template <int Threads = 64, class Code>
void must_be_content(Code code, const options& how = {}, void* pointer = nullptr) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    options o = how;
    o.seed = seed;
    CHECK(found<Threads>(code, o, pointer) == "");
  }
}

}  // namespace seqpar::twin
