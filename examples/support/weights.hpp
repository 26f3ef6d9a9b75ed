// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradients of a model's groups of weights, by name, and all of them in one piece, so that one sum will do.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "layer.hpp"

namespace demo {

using named_gradients = std::vector<std::pair<std::string, numbers>>;

inline numbers joined(const named_gradients& groups) {
  numbers all;
  for (const auto& [name, g] : groups) all.insert(all.end(), g.begin(), g.end());
  return all;
}

/// What `joined` put together, in groups again.
inline void split(const numbers& all, named_gradients& groups) {
  auto from = all.begin();
  for (auto& [name, g] : groups) {
    std::copy_n(from, g.size(), g.begin());
    from += static_cast<std::ptrdiff_t>(g.size());
  }
}

}  // namespace demo
