# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/reject/*.cpp are mistakes that must not compile, and must be told in our words (the file's `// expect:` line).
# With TWIN defined each is the same code with the mistake mended, and must compile.
file(GLOB mistakes CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
foreach(file IN LISTS mistakes)
  get_filename_component(name ${file} NAME_WE)
  seqpar_add_script_test(reject.${name} ${CMAKE_CURRENT_LIST_DIR}/must_not_compile.cmake CXX=${CMAKE_CXX_COMPILER}
                         SOURCE=${file} INCLUDE=${PROJECT_SOURCE_DIR}/include)
endforeach()
