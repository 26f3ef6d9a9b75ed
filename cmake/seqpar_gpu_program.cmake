# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Programs that nvcc makes for scripts/gpu-check: kernels_on_gpu of tests/cuda, the benches of bench/cuda. They are built
# for one architecture, with PTX that later ones translate when they load it; without a GPU they say so and end well.
include_guard(GLOBAL)
find_program(SEQPAR_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
set(SEQPAR_GPU_ARCHITECTURE sm_80 CACHE STRING "nvcc's -arch of programs that run on a GPU: sm_80, sm_90, …")
mark_as_advanced(SEQPAR_NVCC SEQPAR_GPU_ARCHITECTURE)

# seqpar_gpu_program(name SOURCES… [PLAIN…] [APART…] [LIBRARIES…] [OPTIONS…] [BUILT_FOR]): <name> in the current build folder,
# target seqpar_<name>, test cuda.<name>. PLAIN sources are plain C++, APART are static libraries of this build. With BUILT_FOR they can read SEQPAR_BUILT_FOR: 80, 90, …
function(seqpar_gpu_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "BUILT_FOR" "" "SOURCES;PLAIN;APART;LIBRARIES;OPTIONS")
  set(program ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(MAKE_DIRECTORY ${program}.dir)
  set(compile ${SEQPAR_NVCC} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -arch=${SEQPAR_GPU_ARCHITECTURE}
              -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR} -Werror=all-warnings ${arg_OPTIONS})
  if(arg_BUILT_FOR)
    string(REGEX MATCH "[0-9]+" number ${SEQPAR_GPU_ARCHITECTURE})
    list(APPEND compile -DSEQPAR_BUILT_FOR=${number})
  endif()
  set(objects "")
  foreach(source IN LISTS arg_SOURCES arg_PLAIN)
    set(language -x cu)
    if(source IN_LIST arg_PLAIN)
      set(language -x c++)
    endif()
    get_filename_component(stem ${source} NAME_WE)
    set(stem ${program}.dir/${stem})
    add_custom_command(
      OUTPUT ${stem}.o
      COMMAND ${compile} ${language} -c -MD -MT ${stem}.o -MF ${stem}.d -o ${stem}.o ${source}
      DEPENDS ${source}
      DEPFILE ${stem}.d
      COMMENT "nvcc ${source}"
      VERBATIM)
    list(APPEND objects ${stem}.o)
  endforeach()
  foreach(library IN LISTS arg_APART)
    list(APPEND objects $<TARGET_FILE:${library}>)
  endforeach()
  set(libraries ${arg_LIBRARIES})
  foreach(library IN LISTS arg_LIBRARIES)
    get_filename_component(directory ${library} DIRECTORY)
    list(APPEND libraries -Xlinker -rpath=${directory})
  endforeach()
  add_custom_command(
    OUTPUT ${program}
    COMMAND ${SEQPAR_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -o ${program} ${objects} ${libraries} -ldl
    DEPENDS ${objects}
    COMMENT "nvcc ${name}"
    VERBATIM)
  add_custom_target(seqpar_${name} ALL DEPENDS ${program})
  add_test(NAME cuda.${name} COMMAND ${program})
  set_tests_properties(cuda.${name} PROPERTIES LABELS cuda TIMEOUT 600)
endfunction()
