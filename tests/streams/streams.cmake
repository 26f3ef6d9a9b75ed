# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests/streams: the library on streams. Run here on the stand-in of tests/cuda_on_cpu; the same tests without those that
# command the stand-in are streams_on_gpu, which scripts/gpu-check runs where there is a GPU.
if(TARGET cuda_on_cpu)
  set(of_stand_in ${files_streams})
  list(FILTER of_stand_in INCLUDE REGEX "(faults|gather)_test\\.cpp$")
  set(files ${files_streams})
  list(REMOVE_ITEM files ${of_stand_in})
  add_library(seqpar_streams OBJECT ${files})  # the same objects, whichever libraries they meet
  seqpar_own(seqpar_streams)
  target_link_libraries(seqpar_streams PUBLIC seqpar_test_main)
  target_include_directories(seqpar_streams SYSTEM PUBLIC ${SEQPAR_CUDA_INCLUDE_DIR} ${SEQPAR_NCCL_INCLUDE_DIR})
  add_executable(seqpar_test_streams ${of_stand_in})
  set_target_properties(seqpar_test_streams PROPERTIES OUTPUT_NAME streams_tests)
  seqpar_own(seqpar_test_streams)
  target_link_libraries(seqpar_test_streams PRIVATE seqpar_streams seqpar_test_main cuda_on_cpu)
  add_dependencies(room_tests seqpar_test_streams)
  add_dependencies(rank_tests seqpar_test_streams)
  add_test(NAME streams COMMAND seqpar_test_streams)
  set_tests_properties(streams PROPERTIES LABELS "room;ranks" TIMEOUT 600 COST 50)
endif()
if(TARGET seqpar_streams AND TARGET seqpar::nccl AND SEQPAR_BENCH)  # not under sanitizers
  add_executable(streams_on_gpu)
  seqpar_own(streams_on_gpu)
  target_link_libraries(streams_on_gpu PRIVATE seqpar_streams seqpar_test_main seqpar::nccl)
endif()
