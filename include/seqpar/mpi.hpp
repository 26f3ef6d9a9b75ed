// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// seqpar.hpp, and ranks of MPI: needs an MPI of standard 3.0 or newer.
#pragma once

#include <seqpar/seqpar.hpp>

#include <seqpar/transport/mpi.hpp>
#include <seqpar/transport/mpi_types.hpp>
#include <seqpar/transport/mpi_world.hpp>
