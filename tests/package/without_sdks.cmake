# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Without MPI and the CUDA Toolkit the project is configured all the same, says what is left out and why, and keeps the
# core's tests: cmake -DROOT=… -DDIR=… -DCXX=… -DGENERATOR=… -P without_sdks.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(
  COMMAND ${CMAKE_COMMAND} --fresh -S ${ROOT} -B ${DIR} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DSEQPAR_BENCH=OFF
          -DSEQPAR_EXAMPLES=OFF -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  OUTPUT_VARIABLE said ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
foreach(line "seqpar::mpi and its tests are left out: no MPI for C\\+\\+ was found"
             "seqpar::cuda is left out: no CUDA Toolkit was found; give -DCUDAToolkit_ROOT="
             "seqpar::nccl is left out: no CUDA Toolkit was found; give -DCUDAToolkit_ROOT="
             "seqpar::cudnn is left out: no CUDA Toolkit was found; give -DCUDAToolkit_ROOT=")
  if(NOT said MATCHES "${line}")
    message(FATAL_ERROR "it does not say: ${line}\n${said}")
  endif()
endforeach()
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} -N --test-dir ${DIR} OUTPUT_VARIABLE tests COMMAND_ERROR_IS_FATAL ANY)
foreach(room layout mask transport communicator exchange kernel attention)
  if(NOT tests MATCHES ": ${room}\n")
    message(FATAL_ERROR "the tests of ${room} are left out, too:\n${tests}")
  endif()
endforeach()
if(tests MATCHES ": mpi\\.")
  message(FATAL_ERROR "tests of MPI without MPI:\n${tests}")
endif()
