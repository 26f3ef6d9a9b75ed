// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What depends on the compiler: host/device marking and how an error leaves a function. Nothing else tests the
// compiler.
#pragma once

#if defined(__CUDACC__)
#define SEQPAR_HD __host__ __device__
#else
#define SEQPAR_HD
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define SEQPAR_THROW(e) throw(e)
#else
#include <cstdio>
#include <cstdlib>
/// Without exceptions the same text is printed and the process ends; the try_… forms return the error instead.
#define SEQPAR_THROW(e) (::std::fprintf(stderr, "%s\n", (e).what()), ::std::abort())
#endif
