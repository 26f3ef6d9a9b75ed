// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Under which sanitizer a test runs: how often it repeats what says nothing new there.
#pragma once

namespace seqpar::test {

#if !defined(__has_feature)
#define SEQPAR_TEST_HAS_FEATURE(x) 0
#else
#define SEQPAR_TEST_HAS_FEATURE(x) __has_feature(x)
#endif
#if defined(__SANITIZE_THREAD__) || SEQPAR_TEST_HAS_FEATURE(thread_sanitizer)
constexpr bool under_tsan = true;
#else
constexpr bool under_tsan = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || SEQPAR_TEST_HAS_FEATURE(address_sanitizer)
constexpr bool under_asan = true;
#else
constexpr bool under_asan = false;
#endif
#undef SEQPAR_TEST_HAS_FEATURE

}  // namespace seqpar::test
