// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stands between the program and MPI, by MPI's profiling interface: counts datatypes made, and plants an error. Include
// it in one file of a program only.
#pragma once

#include <mpi.h>

namespace {
int types_made = 0;
bool sends_fail = false;
}  // namespace

extern "C" int MPI_Type_commit(MPI_Datatype* type) {
  ++types_made;
  return PMPI_Type_commit(type);
}
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (sends_fail && tag == 0) return MPI_ERR_INTERN;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
