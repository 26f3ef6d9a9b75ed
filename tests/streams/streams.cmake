# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/streams: the library on streams. Run here on the stand-in of tests/cuda_on_cpu; the same tests without those that
# command the stand-in are streams_on_gpu, which scripts/gpu-check runs where there is a GPU.
if(TARGET cuda_on_cpu)
  add_executable(seqpar_test_streams ${files_streams})
  set_target_properties(seqpar_test_streams PROPERTIES OUTPUT_NAME streams_tests)
  seqpar_own(seqpar_test_streams)
  target_link_libraries(seqpar_test_streams PRIVATE seqpar_test_main cuda_on_cpu)
  add_dependencies(room_tests seqpar_test_streams)
  add_dependencies(rank_tests seqpar_test_streams)
  add_test(NAME streams COMMAND seqpar_test_streams)
  set_tests_properties(streams PROPERTIES LABELS "room;ranks" TIMEOUT 600 COST 50)
endif()
if(TARGET seqpar::nccl AND SEQPAR_BENCH)  # not under sanitizers
  set(files ${files_streams})
  list(FILTER files EXCLUDE REGEX "faults_test\\.cpp$")
  add_executable(streams_on_gpu ${files})
  seqpar_own(streams_on_gpu)
  target_link_libraries(streams_on_gpu PRIVATE seqpar_test_main seqpar::nccl)
endif()
