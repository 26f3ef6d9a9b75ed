// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What depends on the compiler: host/device marking and how an error leaves a function. Nothing else tests the
// compiler.
#pragma once

#if defined(SEQPAR_VERSION_IN_ONE_FILE)
#error "[seqpar] seqpar is here already, in one file; mpi.hpp, nccl.hpp, cuda.hpp need the folder in its place"
#endif

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L && !defined(__cpp_concepts)
#error "[seqpar] seqpar needs C++20: compile with -std=c++20"
#endif

#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // `#pragma GCC …` is for the host's compiler
#define SEQPAR_HD __host__ __device__
#define SEQPAR_DEVICE __device__ __forceinline__
namespace seqpar::inline v0_1::detail {
constexpr bool for_the_device = true;
}
#else
#define SEQPAR_HD
#define SEQPAR_DEVICE inline
namespace seqpar::inline v0_1::detail {
constexpr bool for_the_device = false;
}
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#include <exception>
#define SEQPAR_THROW(e) throw(e)
namespace seqpar {
inline namespace v0_1 {
namespace detail {
/// Calls body(); an E that it throws goes to handler(e) and no further.
template <class E, class Body, class Handler>
void on_throw(Body&& body, Handler&& handler) {
  try {
    body();
  } catch (const E& e) {
    handler(e);
  }
}
/// Calls body(); after whatever it throws, calls handler(what it says).
template <class Body, class Handler>
void on_any_throw(Body&& body, Handler&& handler) {
  try {
    body();
  } catch (const std::exception& e) {
    handler(e.what());
  } catch (...) {
    handler("threw something that is no std::exception");
  }
}
}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
#else
#include <cstdio>
#include <cstdlib>
/// Without exceptions the same text is printed and the process ends; the try_… forms return the error instead.
#define SEQPAR_THROW(e) (::std::fprintf(stderr, "%s\n", (e).what()), ::std::abort())
namespace seqpar {
inline namespace v0_1 {
namespace detail {
template <class E, class Body, class Handler>
void on_throw(Body&& body, Handler&&) {
  body();
}
template <class Body, class Handler>
void on_any_throw(Body&& body, Handler&&) {
  body();
}
}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
#endif
