# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bench/collectives is one program for all transports whose SDK is found; the others it refuses by name.
add_executable(collectives collectives/collectives.cpp)
seqpar_own(collectives)
target_link_libraries(collectives PRIVATE seqpar_thread_verbs)
foreach(sdk mpi nccl)
  if(TARGET seqpar::${sdk})
    string(TOUPPER ${sdk} name)
    target_sources(collectives PRIVATE collectives/${sdk}.cpp)
    target_link_libraries(collectives PRIVATE seqpar::${sdk})
    target_compile_definitions(collectives PRIVATE COLLECTIVES_${name})
  endif()
endforeach()

set(briefly --min 1K --max 64K --factor 64 --rounds 1)
add_test(NAME bench.collectives COMMAND collectives --ranks 3 ${briefly})
set_tests_properties(bench.collectives PROPERTIES LABELS bench TIMEOUT 100)
add_test(NAME bench.collectives.refuses COMMAND collectives --min 1G --max 4K)
set_tests_properties(bench.collectives.refuses PROPERTIES LABELS bench PASS_REGULAR_EXPRESSION "more than --max 4096")
if(TARGET seqpar::nccl)
  add_test(NAME bench.collectives.nccl COMMAND collectives --transport nccl ${briefly})
  set_tests_properties(bench.collectives.nccl PROPERTIES LABELS bench TIMEOUT 100 SKIP_REGULAR_EXPRESSION "skipped:")
endif()
if(TARGET seqpar::mpi)
  add_test(NAME mpi.collectives COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:collectives>
                                        --transport mpi ${briefly})
  set_tests_properties(
    mpi.collectives
    PROPERTIES LABELS mpi TIMEOUT 100 PROCESSORS 2 ENVIRONMENT
               "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;OMPI_MCA_mpi_yield_when_idle=1")
endif()
