# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# seqpar::mpi: seqpar and an MPI; absent where no MPI is found. Its headers are installed in any case: an installed
# package defines the target itself, find_package(seqpar COMPONENTS mpi).
option(SEQPAR_MPI "Define seqpar::mpi where an MPI is found" ON)

add_library(seqpar_mpi INTERFACE)
target_sources(seqpar_mpi INTERFACE FILE_SET HEADERS BASE_DIRS include FILES ${seqpar_mpi_headers})
install(TARGETS seqpar_mpi FILE_SET HEADERS)

if(SEQPAR_MPI)
  find_package(MPI QUIET COMPONENTS CXX GLOBAL)
endif()
if(SEQPAR_MPI AND MPI_CXX_FOUND)
  target_link_libraries(seqpar_mpi INTERFACE seqpar MPI::MPI_CXX)
  # The C++ bindings that MPI 3 removed.
  target_compile_definitions(seqpar_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  add_library(seqpar::mpi ALIAS seqpar_mpi)
else()
  set_target_properties(seqpar_mpi PROPERTIES VERIFY_INTERFACE_HEADER_SETS OFF)
  if(SEQPAR_MPI)
    message(STATUS "seqpar::mpi and its tests are left out: no MPI for C++ was found")
  else()
    message(STATUS "seqpar::mpi and its tests are left out: SEQPAR_MPI is off")
  endif()
endif()
