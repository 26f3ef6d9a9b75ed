// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An attention problem drawn from one number: any layout, mask, mesh, shape and options that plans accept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tests/support/attention_apart.hpp>

namespace seqpar::test {

struct drawn_problem {
  problem p;
  int type;              ///< 0 float, 1 float16, 2 bfloat16
  bool reference;        ///< by the reference kernel
  std::string families;  ///< what it is of, for those who count
};

/// Owns the tables that a drawn problem's layouts and masks view: keep it while the problem is used.
class problem_drawer {
 public:
  explicit problem_drawer(std::uint64_t seed);
  ~problem_drawer();
  drawn_problem draw();

 private:
  class drawing;  // in draw.cpp: all those types are compiled once
  std::unique_ptr<drawing> self_;
};

}  // namespace seqpar::test
