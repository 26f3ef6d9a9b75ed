# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every source is as clang-format leaves it.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE sources ${ROOT}/include/*.hpp ${ROOT}/include/*.cuh ${ROOT}/tests/*.hpp ${ROOT}/tests/*.cpp
     ${ROOT}/tests/*.cu ${ROOT}/tests/*.cuh ${ROOT}/bench/*.hpp ${ROOT}/bench/*.cpp ${ROOT}/bench/*.cu
     ${ROOT}/bench/*.cuh ${ROOT}/examples/*.hpp ${ROOT}/examples/*.cpp)
execute_process(COMMAND ${CLANG_FORMAT} --dry-run -Werror ${sources} RESULT_VARIABLE failed ERROR_VARIABLE said)
if(failed)
  string(REGEX MATCHALL "[^\n:]+:[0-9]+:[0-9]+: error" places "${said}")
  list(JOIN places "\n" places)
  message(FATAL_ERROR "clang-format -i these files:\n${places}")
endif()
