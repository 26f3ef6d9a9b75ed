# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bench/two_nodes is one program of MPI, for scripts/two-nodes. ctest sees that results and traffic are right in a small
# size, and that the tests of mpi::transport pass there too; for numbers run it by hand: docs/two-nodes.md.
if(NOT TARGET seqpar::mpi)
  return()
endif()
add_executable(two_nodes ${CMAKE_CURRENT_LIST_DIR}/two_nodes.cpp)
seqpar_own(two_nodes)
target_link_libraries(two_nodes PRIVATE seqpar::mpi)

# seqpar_two_nodes_test(name wiring program argument…)
function(seqpar_two_nodes_test name wiring)
  add_test(NAME mpi.two_nodes.${name} COMMAND ${PROJECT_SOURCE_DIR}/scripts/two-nodes --wiring ${wiring} -- ${ARGN})
  set_tests_properties(mpi.two_nodes.${name} PROPERTIES LABELS mpi TIMEOUT 100 PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()
foreach(wiring shared rail)
  seqpar_two_nodes_test(${wiring} ${wiring} $<TARGET_FILE:two_nodes> --tokens 37 --batch 1 --repeat 1)
endforeach()
if(TARGET seqpar_test_mpi)
  seqpar_two_nodes_test(laws rail $<TARGET_FILE:seqpar_test_mpi> --no-colors)
endif()
