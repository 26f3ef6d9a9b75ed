// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How long a wait may last.
#pragma once

#include <chrono>
#include <optional>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

using clock = std::chrono::steady_clock;
/// None: never.
using instant = std::optional<clock::time_point>;

/// That long from now; none when so far away that the clock would overflow.
template <class = when_used>
instant after(std::optional<std::chrono::nanoseconds> duration) {
  if (!duration || *duration > std::chrono::hours(24 * 365)) return {};
  return clock::now() + *duration;
}
inline bool passed(const instant& until) {
  return until && clock::now() >= *until;
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
