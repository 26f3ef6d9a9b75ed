// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The single header, and behind it a header of the folder that it was made from.
// expect: [seqpar] seqpar is here already, in one file; mpi.hpp, nccl.hpp, cuda.hpp need the folder in its place
#include <seqpar.hpp>
#ifndef TWIN
#include <seqpar/transport/self.hpp>
#endif

int main() {
  return seqpar::self{}.rank();
}
