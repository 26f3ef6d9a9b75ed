# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What the headers take from and leave in a user's file: macros, and this project's own text.
set(here ${CMAKE_CURRENT_LIST_DIR})

# std_headers.hpp: the standard headers that seqpar includes, so that a test can see them before it plants macros.
set(std_includes "")
foreach(header IN LISTS seqpar_headers)
  file(STRINGS ${header} lines REGEX "^#include <[a-z_]+>$")
  list(APPEND std_includes ${lines})
endforeach()
list(REMOVE_DUPLICATES std_includes)
list(SORT std_includes)
list(JOIN std_includes "\n" std_includes)
set(std_dir ${CMAKE_CURRENT_BINARY_DIR}/hygiene)
file(CONFIGURE OUTPUT ${std_dir}/std_headers.hpp CONTENT "#pragma once\n@std_includes@\n" @ONLY)

# Builds with the macros that other people's headers define.
add_library(seqpar_hostile_macros OBJECT ${here}/hostile_macros.cpp)
seqpar_own(seqpar_hostile_macros)
target_include_directories(seqpar_hostile_macros PRIVATE ${std_dir})

seqpar_add_script_test(hygiene.macros ${here}/macros.cmake CXX=${CMAKE_CXX_COMPILER} STD=${std_dir}
                       INCLUDE=${PROJECT_SOURCE_DIR}/include DIR=${std_dir})

# clang-format's opinion changes with its version; it is asked only where it is the one that formatted these files.
find_program(SEQPAR_CLANG_FORMAT NAMES clang-format-14 clang-format)
mark_as_advanced(SEQPAR_CLANG_FORMAT)
if(SEQPAR_CLANG_FORMAT)
  execute_process(COMMAND ${SEQPAR_CLANG_FORMAT} --version OUTPUT_VARIABLE version)
  if(version MATCHES "version 14\\.")
    seqpar_add_script_test(hygiene.format ${here}/format.cmake CLANG_FORMAT=${SEQPAR_CLANG_FORMAT} ROOT=${PROJECT_SOURCE_DIR})
  endif()
endif()

seqpar_add_script_test(hygiene.snippets ${PROJECT_SOURCE_DIR}/cmake/check_snippets.cmake ROOT=${PROJECT_SOURCE_DIR})
