// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every plan checks of the layouts and members it is given.
#pragma once

#include <string>

#include <seqpar/error.hpp>
#include <seqpar/layout/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

template <class L>
failure check_layout(const char* where, const char* name, const L& layout, int ranks) {
  if (const char* what = problem_of(layout)) return invalid(where, std::string(name) + ": " + what);
  if (layout.rank_count() != ranks)
    return invalid(where, std::string(name) + " is dealt over " + std::to_string(layout.rank_count()) +
                              " ranks, the mesh has " + std::to_string(ranks) + "; give both the same number");
  return {};
}

inline failure check_root(const char* where, int root, int ranks) {
  if (root >= 0 && root < ranks) return {};
  return invalid(where, "root " + std::to_string(root) + " is not one of " + std::to_string(ranks) + " members");
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
