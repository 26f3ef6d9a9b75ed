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

# cuDNN builds kernels for a device that is only described, but wants a libcuda: the toolkit's stub will do.
find_library(SEQPAR_CUDA_STUB cuda PATHS ${CUDAToolkit_LIBRARY_DIR}/stubs NO_DEFAULT_PATH)
mark_as_advanced(SEQPAR_CUDA_STUB)
if(SEQPAR_CUDA_STUB)
  set(stub_dir ${CMAKE_CURRENT_BINARY_DIR}/libcuda_stub)
  file(MAKE_DIRECTORY ${stub_dir})
  file(CREATE_LINK ${SEQPAR_CUDA_STUB} ${stub_dir}/libcuda.so.1 SYMBOLIC)
  add_test(NAME cudnn.graphs COMMAND seqpar_cudnn_graphs)
  set_tests_properties(cudnn.graphs PROPERTIES LABELS cuda TIMEOUT 300 ENVIRONMENT
                       "LD_LIBRARY_PATH=${stub_dir}:${CUDAToolkit_LIBRARY_DIR}")
endif()
