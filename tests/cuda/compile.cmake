# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compiles SOURCE by the command NVCC (its words joined by |) into STEM.cubin; leaves its PTX in STEM.ptx, what ptxas says of
# resources in STEM.txt, what it read in STEM.d.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "|" ";" nvcc "${NVCC}")
get_filename_component(directory ${STEM} DIRECTORY)
get_filename_component(name ${SOURCE} NAME_WE)
file(MAKE_DIRECTORY ${STEM})
execute_process(
  COMMAND ${nvcc} -MD -MT ${STEM}.txt -MF ${STEM}.d -cubin -Xptxas -v --keep --keep-dir ${STEM} ${SOURCE} -o ${STEM}.cubin
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "${said}")
endif()
file(RENAME ${STEM}/${name}.ptx ${STEM}.ptx)
file(REMOVE_RECURSE ${STEM})
file(WRITE ${STEM}.txt "${said}")
