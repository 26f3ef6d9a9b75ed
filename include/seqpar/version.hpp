// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The library's version; the build reads it from here.
#pragma once

#define SEQPAR_VERSION_MAJOR 0
#define SEQPAR_VERSION_MINOR 1
#define SEQPAR_VERSION_PATCH 0
