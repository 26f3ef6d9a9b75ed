# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every source is as clang-format leaves it.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE sources ${ROOT}/include/*.hpp ${ROOT}/tests/*.hpp ${ROOT}/tests/*.cpp ${ROOT}/bench/*.hpp
     ${ROOT}/bench/*.cpp ${ROOT}/examples/*.hpp ${ROOT}/examples/*.cpp)
execute_process(COMMAND ${CLANG_FORMAT} --dry-run -Werror ${sources} RESULT_VARIABLE failed ERROR_VARIABLE said)
if(failed)
  string(REGEX MATCHALL "[^\n:]+:[0-9]+:[0-9]+: error" places "${said}")
  list(JOIN places "\n" places)
  message(FATAL_ERROR "clang-format -i these files:\n${places}")
endif()
