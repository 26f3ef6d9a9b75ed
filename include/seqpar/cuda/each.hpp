// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loop that is surely unrolled: what it indexes can stay in registers.
#pragma once

#include <cstddef>
#include <utility>

#include <seqpar/config.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// As the bound of an array: g++ warns of signed ones where they depend on a template.
template <int N>
inline constexpr std::size_t times = static_cast<std::size_t>(N);

template <class F, int... I>
SEQPAR_DEVICE void each_of(std::integer_sequence<int, I...>, F& f) {
  (f(I), ...);
}

/// f(0), f(1), …, f(N − 1)
template <int N, class F>
SEQPAR_DEVICE void each(F&& f) {
  each_of(std::make_integer_sequence<int, N>{}, f);
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
