# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/cuda: the kernels. *_test.cpp run the bodies on the CPU (tests/cuda_on_cpu); *_kernels.cu are compiled by nvcc for
# the architectures below, and what it says of them is read by resources.cmake.
set(here ${CMAKE_CURRENT_LIST_DIR})
if(TARGET cuda_on_cpu)
  add_executable(seqpar_test_cuda ${files_cuda})
  set_target_properties(seqpar_test_cuda PROPERTIES OUTPUT_NAME cuda_tests)
  seqpar_own(seqpar_test_cuda)
  target_link_libraries(seqpar_test_cuda PRIVATE seqpar_test_main cuda_on_cpu)
  add_dependencies(room_tests seqpar_test_cuda)
  add_test(NAME cuda COMMAND seqpar_test_cuda)
  set_tests_properties(cuda PROPERTIES LABELS room TIMEOUT 1200 COST 60)
  file(GLOB mistakes CONFIGURE_DEPENDS ${here}/reject/*.cpp)
  foreach(file IN LISTS mistakes)
    get_filename_component(name ${file} NAME_WE)
    seqpar_add_script_test(
      cuda.reject.${name} ${here}/../reject/must_not_compile.cmake CXX=${CMAKE_CXX_COMPILER} SOURCE=${file}
      INCLUDE=${PROJECT_SOURCE_DIR}/include MORE=-I${SEQPAR_CUDA_INCLUDE_DIR})
  endforeach()
endif()

find_program(SEQPAR_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
find_program(SEQPAR_NVDISASM nvdisasm HINTS ${CUDAToolkit_BIN_DIR} ${PROJECT_SOURCE_DIR}/build/tools/nvidia/cu13/bin
                                           ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(SEQPAR_NVCC SEQPAR_NVDISASM)
set(why_not "")
if(NOT SEQPAR_CUDA)
  set(why_not "SEQPAR_CUDA is off")
elseif(NOT SEQPAR_NVCC)
  set(why_not "no nvcc; give -DSEQPAR_NVCC=…")
elseif(NOT SEQPAR_BENCH)
  set(why_not "a sanitized build says nothing new of them")
elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(why_not "nvcc compiles them alike under any host compiler; the builds with g++ do")
endif()
if(why_not)
  message(STATUS "Kernels are not compiled for GPUs: ${why_not}")
  return()
endif()

set(nvcc ${SEQPAR_NVCC} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}
    -Werror=all-warnings)
set(built ${CMAKE_CURRENT_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${built})
execute_process(COMMAND ${SEQPAR_NVCC} --list-gpu-arch OUTPUT_VARIABLE known)
set(architectures 80 90 100)
foreach(architecture IN LISTS architectures)
  if(NOT known MATCHES "compute_${architecture}\n")
    message(STATUS "Kernels are not compiled for sm_${architecture}: ${SEQPAR_NVCC} does not know it")
    list(REMOVE_ITEM architectures ${architecture})
  endif()
endforeach()
file(GLOB families CONFIGURE_DEPENDS ${here}/*_kernels.cu)
foreach(file IN LISTS families)
  get_filename_component(family ${file} NAME_WE)
  foreach(architecture IN LISTS architectures)
    set(stem ${built}/${family}_${architecture})
    list(JOIN nvcc "|" command)
    add_custom_command(
      OUTPUT ${stem}.txt
      COMMAND ${CMAKE_COMMAND} "-DNVCC=${command}|-arch=sm_${architecture}|-DSEQPAR_BUILT_FOR=${architecture}" -DSOURCE=${file} -DSTEM=${stem} -P
              ${here}/compile.cmake
      DEPENDS ${file} ${here}/compile.cmake
      DEPFILE ${stem}.d
      COMMENT "nvcc ${family} for sm_${architecture}"
      VERBATIM)
    list(APPEND outputs ${stem}.txt)
    seqpar_add_script_test(cuda.resources.${family}.sm_${architecture} ${here}/resources.cmake SOURCE=${file} STEM=${stem}
                           "NVDISASM=$<$<BOOL:${SEQPAR_NVDISASM}>:${SEQPAR_NVDISASM}>")
    set_tests_properties(cuda.resources.${family}.sm_${architecture} PROPERTIES LABELS cuda)
  endforeach()
endforeach()

add_custom_target(seqpar_kernels ALL DEPENDS ${outputs})
seqpar_add_script_test(
  cuda.reject.functor_of_the_host ${here}/../reject/must_not_compile.cmake CXX=${SEQPAR_NVCC}
  SOURCE=${here}/reject/functor_of_the_host.cu INCLUDE=${PROJECT_SOURCE_DIR}/include MORE=-arch=sm_80)

include(${PROJECT_SOURCE_DIR}/cmake/seqpar_gpu_program.cmake)
if(TARGET seqpar::nccl)
  seqpar_gpu_program(
    kernels_on_gpu LIBRARIES ${SEQPAR_NCCL_LIBRARY} SOURCES ${here}/on_gpu.cu ${here}/gpu_program.cu ${here}/apart.cu
                                                            ${here}/attention_test.cpp ${here}/decode_test.cpp
                                                            ${here}/exchange_test.cpp
    PLAIN ${here}/apart_program.cpp
    APART seqpar_test_apart)
endif()
