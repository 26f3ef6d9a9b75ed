// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The umbrella compiles under the macros of windows.h (NOMINMAX assumed), X.h, complex.h, termios.h and sysmacros.h.
#include <std_headers.hpp>

#define major(dev) hostile(dev)
#define minor(dev) hostile(dev)
#define I hostile
#define small hostile
#define near hostile
#define far hostile
#define interface hostile
#define IN hostile
#define OUT hostile
#define ERROR hostile
#define NO_ERROR hostile
#define DELETE hostile
#define TRUE hostile
#define FALSE hostile
#define B0 hostile
#define B1 hostile
#define Status hostile
#define Bool hostile
#define None hostile
#define Success hostile
#define Always hostile
#define unix hostile
#define linux hostile

#include <seqpar/seqpar.hpp>
