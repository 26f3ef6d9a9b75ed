# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/mpi is one program that mpirun starts with 1, 2, 3, 4 and 8 ranks, and one whose ranks come to grief.
if(NOT TARGET seqpar::mpi)
  return()
endif()
add_executable(seqpar_test_mpi ${files_mpi} ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
set_target_properties(seqpar_test_mpi PROPERTIES OUTPUT_NAME mpi_tests)
add_executable(seqpar_mpi_faults ${CMAKE_CURRENT_LIST_DIR}/faults.cpp)
add_executable(seqpar_mpi_consumer ${CMAKE_CURRENT_SOURCE_DIR}/package/mpi_consumer.cpp)
foreach(target seqpar_test_mpi seqpar_mpi_faults seqpar_mpi_consumer)
  seqpar_own(${target})
  target_link_libraries(${target} PRIVATE seqpar::mpi doctest::doctest)
endforeach()
target_link_libraries(seqpar_test_mpi PRIVATE seqpar_test_apart)

foreach(ranks 1 2 3 4 8)
  add_test(NAME mpi.${ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:seqpar_test_mpi>
                                     --no-colors)
endforeach()

add_test(NAME mpi.consumer COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:seqpar_mpi_consumer>)

# seqpar_mpi_fault(how times regex): VICTIM in the regex stands for the rank.
function(seqpar_mpi_fault how times says)
  seqpar_add_script_test(
    mpi.fault.${how} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/faults.cmake MPIRUN=${MPIEXEC_EXECUTABLE}
    PROGRAM=$<TARGET_FILE:seqpar_mpi_faults> HOW=${how} TIMES=${times} "SAYS=${says}")
endfunction()
seqpar_mpi_fault(kill 5 "rank VICTIM with PID")  # the message is mpirun's
seqpar_mpi_fault(stop 5 "timed out: .*rank [0-3] waits for .*, round [0-9]+.*rank VICTIM does not answer")
seqpar_mpi_fault(leave 3 "timed out: .*(, round [0-9]+.*rank VICTIM has left|rank VICTIM has left.*, round [0-9]+)")
seqpar_mpi_fault(unwind 3 "rank VICTIM left its world by an exception")
seqpar_mpi_fault(throw 3 "rank VICTIM gave up .its last messages: .*, round [0-9]+.: attention: the kernel or the mask threw: planted")
seqpar_mpi_fault(short 3 "rank VICTIM sends 1 B to rank [0-3], which expects [0-9]+ B .*, round [0-9]+")

get_property(all DIRECTORY PROPERTY TESTS)
list(FILTER all INCLUDE REGEX "^mpi")
# For OpenMPI: as root too, more ranks than cores, and ranks that wait leave their core to others.
set_tests_properties(
  ${all} PROPERTIES LABELS mpi TIMEOUT 200 PROCESSORS 2
  ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;OMPI_MCA_mpi_yield_when_idle=1")
