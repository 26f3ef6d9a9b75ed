# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Copies seqpar to DIR/include and builds SOURCE against it with one compiler line, as a user without CMake does.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${DIR})
file(MAKE_DIRECTORY ${DIR}/include)
if(RENAME)
  file(COPY ${COPY} DESTINATION ${DIR}/include/${RENAME})
else()
  file(COPY ${COPY} DESTINATION ${DIR}/include)
endif()
execute_process(COMMAND ${CXX} -std=c++20 ${FLAGS} -I${DIR}/include ${SOURCE} -o ${DIR}/consumer COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${DIR}/consumer COMMAND_ERROR_IS_FATAL ANY)
