# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bench/cuda: the kernels beside what the card can do. Without a GPU they say so; ctest sees that they are built.
include(${PROJECT_SOURCE_DIR}/cmake/seqpar_gpu_program.cmake)
if(SEQPAR_NVCC AND TARGET seqpar::cuda AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  seqpar_gpu_program(attend_bench BUILT_FOR OPTIONS -O1 SOURCES ${CMAKE_CURRENT_LIST_DIR}/attend_bench.cu)
  seqpar_gpu_program(space_bench SOURCES ${CMAKE_CURRENT_LIST_DIR}/space_bench.cu)
endif()
