// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sorting by a key.
#pragma once

#include <algorithm>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// Sorts so that key(x) ascends; quick where it does already. No constexpr, unlike std::sort: what calls it from a
/// template is not compiled before that is (see when_used).
template <class List, class Key>
void sort_by(List&& list, Key&& key) {
  const auto before = [&](const auto& a, const auto& b) { return key(a) < key(b); };
  if (!std::is_sorted(list.begin(), list.end(), before)) std::sort(list.begin(), list.end(), before);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
