// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicators: who has arrived where, what is posted, who waits for whom. Held by the machine's lock.
#pragma once

#include <nccl.h>

#include <list>

#include "tests/cuda_on_cpu/machine.hpp"

namespace cuda_on_cpu {

/// One call inside of a group.
struct part {
  enum class verb { send, recv, all_gather, reduce_scatter, all_reduce, broadcast } what;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int peer;  // or root
  ncclRedOp_t op;
  cudaStream_t stream;
  allocation_ptr from_memory, to_memory;
};

/// A part that runs.
struct posted {
  const part* what;
  int rank;
  int device;
  bool taken = false;  // bytes are moving
  bool done = false;
  edge ready, moved;
};

/// A place that some ranks must all have reached.
struct meeting {
  std::string name;
  std::size_t needed;
};

struct split_choice {
  int color, key;
  std::shared_ptr<ncclComm> comm;
};

/// The ranks of one communicator.
struct clique {
  std::string name;
  std::size_t size = 0;
  bool has_root = true;  // its unique id came from ncclGetUniqueId
  bool failed = false;
  std::map<int, int> devices;                                       // of the ranks that arrived
  std::map<std::string, std::set<int>> arrived;                     // by meeting
  std::map<std::pair<int, int>, std::deque<posted*>> sends, recvs;  // by (from, to)
  std::map<std::size_t, std::map<int, posted*>> collectives;        // by round
  std::map<int, std::map<int, split_choice>> splits;
};

/// What a communicator still has to do before its state is no longer ncclInProgress.
struct chore {
  std::vector<meeting> places;
  std::function<bool()> ready;         // besides; may be empty
  std::function<ncclResult_t()> then;  // may be empty
  std::chrono::steady_clock::time_point earliest;
};

}  // namespace cuda_on_cpu

struct ncclComm {
  std::shared_ptr<cuda_on_cpu::clique> all;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool aborted = false;
  bool finalized = false;
  bool busy = false;  // an operation runs: one at a time
  ncclResult_t error = ncclSuccess;
  std::string text;
  std::deque<cuda_on_cpu::chore> chores;
  CUevent_st order{};                      // the operations so far
  std::weak_ptr<int> in_graphs;            // alive while captured operations are
  std::size_t operations = 0, rounds = 0;  // that have run
  int splits = 0, windows = 0;
};

namespace cuda_on_cpu {

using comm_ptr = std::shared_ptr<ncclComm>;

struct planned_fault {
  fault what;
  int rank;
  std::size_t at;
};

/// What is waited for, in words, while it is.
struct waiter {
  comm_ptr comm;
  std::function<std::string()> what;
};

struct nccl_state {
  std::map<ncclComm_t, comm_ptr> comms;
  std::map<ncclComm_t, comm_ptr> gone;                     // destroyed or aborted: kept so that use is found
  std::map<std::string, std::shared_ptr<clique>> cliques;  // by unique id
  std::set<std::string> ids;
  std::map<std::uintptr_t, comm_ptr> windows;  // by handle
  std::vector<planned_fault> faults;
  std::list<waiter> waiters;
  std::string last_text;
  std::uint64_t made = 0;
};
nccl_state& the_nccl();

std::string name_of(const ncclComm&);
/// From here on its handle is dead.
void bury(comm_ptr);
ncclResult_t fail(ncclComm&, ncclResult_t, std::string text);
/// Ends the whole clique for a mistake that the real library would hang on.
void fail_all(clique&, ncclResult_t, const std::string& mistake);
/// True when `over` holds; false when the communicator is aborted or failed, or nothing at all moves any more.
bool wait_patiently(guard&, const comm_ptr&, const std::function<bool()>& over, std::function<std::string()> what);
/// Adds a chore; a blocking communicator is then settled, the other left for ncclCommGetAsyncError.
void add_chore(const comm_ptr&, chore);
ncclResult_t settle(guard&, const comm_ptr&);
void advance(const comm_ptr&);
bool met(const clique&, const meeting&);

/// Runs in a stream: the parts of one group on one communicator.
void run_parts(const comm_ptr&, const std::vector<part>&);
void move_collective(const std::map<int, posted*>&);
std::size_t bytes_of(ncclDataType_t);

/// Something that the outermost ncclGroupEnd of this thread does, or this call if there is none: post it, settle the
/// communicator, hand out the result.
struct deferred {
  comm_ptr comm;
  std::function<ncclResult_t()> post;
  std::function<void(ncclResult_t)> settled;
};
ncclResult_t in_group(guard&, deferred);

/// The live communicator of a handle.
comm_ptr find_comm(ncclComm_t);

template <class Body>
ncclResult_t nccl_api(const char* function, Body body) {
  guard held;
  ++the_machine().calls[function];
  this_thread().calling = function;
  if (this_thread().in_host_function) {
    the_machine().note(std::string(function) + " was called by a host function of a stream");
    return ncclInvalidUsage;
  }
  return body(held);
}

}  // namespace cuda_on_cpu
