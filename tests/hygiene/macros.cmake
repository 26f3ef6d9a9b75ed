# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The umbrella leaves at most six macros behind, and all begin with SEQPAR_.
cmake_minimum_required(VERSION 3.25)
function(macros_after text result)
  file(WRITE ${DIR}/unit.cpp "${text}")
  execute_process(COMMAND ${CXX} -std=c++20 -dM -E -I${STD} -I${INCLUDE} ${DIR}/unit.cpp OUTPUT_VARIABLE all
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "#define [A-Za-z_0-9]+" names "${all}")
  set(${result} "${names}" PARENT_SCOPE)
endfunction()
macros_after("#include <std_headers.hpp>\n" before)
macros_after("#include <std_headers.hpp>\n#include <seqpar/seqpar.hpp>\n" left)
list(REMOVE_ITEM left ${before})
list(LENGTH left count)
message("left behind: ${left}")
list(FILTER left EXCLUDE REGEX "#define SEQPAR_")
if(count GREATER 6 OR left)
  message(FATAL_ERROR "the umbrella leaves ${count} macros; six that begin with SEQPAR_ are allowed; others: ${left}")
endif()
