# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# How this project's own programs are built and run. Nothing here touches seqpar::seqpar or its users.
find_package(Threads REQUIRED)

# A program of ours: every warning is an error, and threads are at hand.
function(seqpar_own target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror
                         -Wno-psabi)  # tests take kernels wider than the machine; inline, so no ABI is crossed
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE seqpar::seqpar Threads::Threads)
endfunction()

# Sorts <folder>/<room>/*_<kind>.cpp by room: sets `rooms`, and `files_<room>` for each.
macro(seqpar_collect_rooms kind)
  file(GLOB collected CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*_${kind}.cpp)
  set(rooms "")
  foreach(file IN LISTS collected)
    get_filename_component(room ${file} DIRECTORY)
    get_filename_component(room ${room} NAME)
    list(APPEND rooms ${room})
    list(APPEND files_${room} ${file})
  endforeach()
  list(REMOVE_DUPLICATES rooms)
endmacro()

# A test that is a CMake script: seqpar_add_script_test(name script.cmake KEY=value…)
function(seqpar_add_script_test name script)
  list(TRANSFORM ARGN PREPEND -D)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} ${ARGN} -P ${script})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()
