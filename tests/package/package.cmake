# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every way of getting seqpar builds and runs the same ten-line consumer.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(there ${CMAKE_CURRENT_BINARY_DIR}/package)
set(components "")
foreach(part mpi cudnn)
  if(TARGET seqpar::${part})
    list(APPEND components ${part})
  endif()
endforeach()

# With CMake, from an installed copy and from a source folder. --fresh, so that nothing is remembered from an earlier run.
add_test(NAME package.install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${there}/prefix)
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP installed)
foreach(from find_package add_subdirectory)
  add_test(
    NAME package.${from}
    COMMAND
      ${CMAKE_CTEST_COMMAND} --build-and-test ${here} ${there}/${from} --build-generator ${CMAKE_GENERATOR}
      --build-options --fresh -DFROM=${from} -DCMAKE_PREFIX_PATH=${there}/prefix -DSEQPAR_VERSION=${PROJECT_VERSION}
      -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} "-DCOMPONENTS=${components}" --test-command consumer)
endforeach()
set_tests_properties(package.find_package PROPERTIES FIXTURES_REQUIRED installed)

# seqpar_absent(component says [how…]): a component that is not there, too old, or misspelt, is named with the remedy.
function(seqpar_absent component says)
  string(REPLACE ";" "." says "${says}")  # else two expressions, either of which would do
  set(name package.absent.${component})
  set(how -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
  if(ARGN)
    set(name package.older.${component})
    set(how ${ARGN})
  endif()
  add_test(
    NAME ${name}
    COMMAND
      ${CMAKE_COMMAND} --fresh -S ${here} -B ${there}/${name} -G ${CMAKE_GENERATOR} -DFROM=find_package
      -DCMAKE_PREFIX_PATH=${there}/prefix -DSEQPAR_VERSION=${PROJECT_VERSION} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
      -DCOMPONENTS=${component} ${how})
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED installed PASS_REGULAR_EXPRESSION
                                          "component ${component}: ${says}")
endfunction()
seqpar_absent(mpi "no MPI for C.. was found; give -DMPI_CXX_COMPILER=… or -DMPI_HOME=…")
seqpar_absent(cuda "no CUDA Toolkit was found; give -DCUDAToolkit_ROOT=…")
seqpar_absent(nccl "no CUDA Toolkit, or no nccl.h and libnccl of 2.18 or later, was found; give")
seqpar_absent(cudnn "no CUDA Toolkit, or no cudnn.h and libcudnn of 9.13 or later, was found; give")
file(WRITE ${there}/older/cudnn_version.h "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 12\n")
seqpar_absent(cudnn "no CUDA Toolkit, or no cudnn.h and libcudnn of 9.13 or later, was found; give"
              -DSEQPAR_CUDNN_INCLUDE_DIR=${there}/older)
seqpar_absent(mpy "there is none of this name; there are mpi, cuda, nccl, cudnn")

# The project itself does without the SDKs, and says so.
seqpar_add_script_test(
  package.without_sdks ${here}/without_sdks.cmake ROOT=${PROJECT_SOURCE_DIR} DIR=${there}/without_sdks
  CXX=${CMAKE_CXX_COMPILER} GENERATOR=${CMAKE_GENERATOR})

# A compiler that is told an older language hears so in one sentence.
add_test(NAME package.older_language COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -fsyntax-only
                                             -I${PROJECT_SOURCE_DIR}/include ${here}/consumer.cpp)
set_tests_properties(package.older_language PROPERTIES PASS_REGULAR_EXPRESSION
                                                       "seqpar needs C..20: compile with -std=c..20")

# With one compiler line, from a copied include folder and from the single header.
add_test(NAME package.single_header.make COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target single_header)
set_tests_properties(package.single_header.make PROPERTIES FIXTURES_SETUP single_header)
seqpar_add_script_test(
  package.copied_include ${here}/one_line.cmake CXX=${CMAKE_CXX_COMPILER} SOURCE=${here}/consumer.cpp DIR=${there}/copied
  COPY=${PROJECT_SOURCE_DIR}/include/seqpar)
seqpar_add_script_test(
  package.single_header ${here}/one_line.cmake CXX=${CMAKE_CXX_COMPILER} SOURCE=${here}/consumer.cpp DIR=${there}/single
  COPY=${seqpar_single_header} RENAME=seqpar)
get_filename_component(single_dir ${seqpar_single_header} DIRECTORY)
seqpar_add_script_test(
  package.single_and_folder ${here}/../reject/must_not_compile.cmake CXX=${CMAKE_CXX_COMPILER}
  SOURCE=${here}/single_and_folder.cpp INCLUDE=${PROJECT_SOURCE_DIR}/include MORE=-I${single_dir})
set_tests_properties(package.single_header package.single_and_folder PROPERTIES FIXTURES_REQUIRED single_header)
seqpar_add_script_test(
  package.no_exceptions ${here}/one_line.cmake CXX=${CMAKE_CXX_COMPILER} SOURCE=${here}/consumer.cpp
  DIR=${there}/no_exceptions COPY=${PROJECT_SOURCE_DIR}/include/seqpar FLAGS=-fno-exceptions)
seqpar_add_script_test(
  package.no_exceptions.disagree ${here}/one_line.cmake CXX=${CMAKE_CXX_COMPILER} SOURCE=${here}/disagree.cpp
  DIR=${there}/no_exceptions_disagree COPY=${PROJECT_SOURCE_DIR}/include/seqpar FLAGS=-fno-exceptions)

# Two translation units that include everything link: no definition is doubled.
add_executable(seqpar_two_units ${here}/consumer.cpp ${here}/other_unit.cpp)
seqpar_own(seqpar_two_units)
add_test(NAME package.two_units COMMAND seqpar_two_units)

# Attention that is compiled apart is not compiled where it is used. What another compiler or a sanitizer makes of that is
# no news.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND SEQPAR_BENCH)
  add_library(seqpar_apart_program OBJECT ${here}/apart_program.cpp)
  seqpar_own(seqpar_apart_program)
  add_executable(seqpar_apart ${here}/apart.cpp)
  seqpar_own(seqpar_apart)
  target_link_libraries(seqpar_apart PRIVATE seqpar_apart_program)
  add_test(NAME package.apart COMMAND seqpar_apart)
  seqpar_add_script_test(package.apart.missing ${here}/apart.cmake CXX=${CMAKE_CXX_COMPILER}
                         OBJECT=$<TARGET_OBJECTS:seqpar_apart_program> DIR=${there}/apart)
endif()

get_property(all DIRECTORY PROPERTY TESTS)
list(FILTER all INCLUDE REGEX "^package")
set_tests_properties(${all} PROPERTIES LABELS package TIMEOUT 300)
