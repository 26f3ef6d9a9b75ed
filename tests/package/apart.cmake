# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What is declared apart is not compiled where it is used: without its definitions OBJECT does not link, and the linker
# names each of them. cmake -DCXX=… -DOBJECT=… -DDIR=… -P apart.cmake
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${DIR})
execute_process(COMMAND ${CXX} ${OBJECT} -pthread -o ${DIR}/alone RESULT_VARIABLE failed ERROR_VARIABLE said)
if(NOT failed)
  message(FATAL_ERROR "${OBJECT} links alone: it has compiled what is apart")
endif()
foreach(name "planning_apart<[^\n]*>::check\\(" "planning_apart<[^\n]*>::setup\\(" "planning_apart<[^\n]*>::say\\("
             "attention_apart<float, [^\n]*>::prepare\\(" "attention_apart<float, [^\n]*>::forward\\("
             "attention_apart<float, [^\n]*>::backward\\(")
  if(NOT said MATCHES "undefined reference to `seqpar::v0_1::${name}")
    message(FATAL_ERROR "the linker does not miss ${name}:\n${said}")
  endif()
endforeach()
