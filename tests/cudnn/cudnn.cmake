# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/cudnn: cuDNN's attention through rectangles. cudnn_on_gpu is for scripts/gpu-check; without a GPU it says so.
if(NOT TARGET seqpar::cudnn OR NOT SEQPAR_BENCH)  # not under sanitizers
  return()
endif()
foreach(program graphs attention)
  add_executable(seqpar_cudnn_${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cpp)
  seqpar_own(seqpar_cudnn_${program})
  target_link_libraries(seqpar_cudnn_${program} PRIVATE seqpar::cudnn)
endforeach()
set_target_properties(seqpar_cudnn_attention PROPERTIES OUTPUT_NAME cudnn_on_gpu)
add_test(NAME cudnn.attention COMMAND seqpar_cudnn_attention)
set_tests_properties(cudnn.attention PROPERTIES LABELS cuda TIMEOUT 120)

# cuDNN compiles kernels for a device that is only described, but gives them to a libcuda.
set(driver_dir ${CMAKE_CURRENT_BINARY_DIR}/described_driver)
add_library(seqpar_described_driver SHARED ${CMAKE_CURRENT_LIST_DIR}/described_driver.cpp)
set_target_properties(seqpar_described_driver PROPERTIES PREFIX "" OUTPUT_NAME libcuda.so SUFFIX .1 NO_SONAME ON
                                                         LIBRARY_OUTPUT_DIRECTORY ${driver_dir})
seqpar_own(seqpar_described_driver)
add_test(NAME cudnn.graphs COMMAND seqpar_cudnn_graphs)
set_tests_properties(cudnn.graphs PROPERTIES LABELS cuda TIMEOUT 300 ENVIRONMENT
                     "LD_LIBRARY_PATH=${driver_dir}:${CUDAToolkit_LIBRARY_DIR}")
