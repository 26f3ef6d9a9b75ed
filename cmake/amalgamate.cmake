# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Writes the umbrella and all that it includes as one header: cmake -DINCLUDE=include -DOUT=seqpar.hpp -P amalgamate.cmake
# Each <seqpar/…> include is replaced by the file's text, the first time only.
cmake_minimum_required(VERSION 3.25)
function(expand header)
  get_property(seen GLOBAL PROPERTY seen)
  if(header IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY seen ${header})
  file(READ ${INCLUDE}/seqpar/${header} rest)
  string(REPLACE "#pragma once\n" "" rest "${rest}")
  file(APPEND ${OUT}.new "\n// ---- seqpar/${header}\n")
  while(rest MATCHES "(^|\n)(#include <seqpar/([^>]+)>[^\n]*\n)")
    set(line "${CMAKE_MATCH_2}")
    set(nested "${CMAKE_MATCH_3}")
    string(FIND "${rest}" "${line}" at)
    string(LENGTH "${line}" length)
    string(SUBSTRING "${rest}" 0 ${at} before)
    math(EXPR at "${at} + ${length}")
    string(SUBSTRING "${rest}" ${at} -1 rest)
    file(APPEND ${OUT}.new "${before}")
    expand(${nested})
  endwhile()
  file(APPEND ${OUT}.new "${rest}")
endfunction()

file(WRITE ${OUT}.new "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// seqpar in one file; made from include/seqpar by cmake/amalgamate.cmake.
#pragma once
#if defined(SEQPAR_HD)
#error \"[seqpar] seqpar is included twice: from the folder include/seqpar and in one file; take one of the two\"
#endif
")
expand(seqpar.hpp)
# Tells config.hpp, which every header of the folder includes.
file(APPEND ${OUT}.new "\n#define SEQPAR_VERSION_IN_ONE_FILE 1\n")
file(RENAME ${OUT}.new ${OUT})
