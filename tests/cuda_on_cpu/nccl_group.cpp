// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls that move data: collected by the group, connected, launched as one operation for each communicator.
#include <algorithm>

#include "tests/cuda_on_cpu/nccl.hpp"

namespace cuda_on_cpu {

namespace {

constexpr std::size_t every_rank = ~std::size_t{0};

struct group_state {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<deferred> later;
  std::vector<std::pair<comm_ptr, std::vector<part>>> launches;
};

group_state& this_group() {
  thread_local group_state g;
  return g;
}

// The connections that the parts need and that do not exist yet.
std::vector<meeting> connections(const ncclComm& c, const std::vector<part>& parts) {
  std::vector<meeting> places;
  for (const auto& p : parts) {
    meeting place{"first collective", c.all->size};
    if (p.what == part::verb::send || p.what == part::verb::recv) {
      if (p.peer == c.rank) continue;
      const bool sends = p.what == part::verb::send;
      place = {"connect " + std::to_string(sends ? c.rank : p.peer) + " to " + std::to_string(sends ? p.peer : c.rank),
               2};
    }
    if (!met(*c.all, place)) places.push_back(place);
  }
  return places;
}

// A message to oneself needs both ends in one group.
bool balanced_with_self(const ncclComm& c, const std::vector<part>& parts) {
  int open = 0;
  for (const auto& p : parts) {
    if (p.peer != c.rank) continue;
    if (p.what == part::verb::send) ++open;
    if (p.what == part::verb::recv) --open;
  }
  return open == 0;
}

// Puts a group into the streams that its calls named.
ncclResult_t enqueue_parts(const comm_ptr& c, const std::vector<part>& parts) {
  std::vector<cudaStream_t> streams;
  job what{"an NCCL operation of " + name_of(*c), {}, {}};
  const int device = std::exchange(this_thread().device, c->device);  // whose legacy stream is meant
  cudaError_t e = cudaSuccess;
  for (const auto& p : parts) {
    auto* s = resolve(p.stream, e);
    if (s != nullptr && s->device != c->device) e = cudaErrorInvalidResourceHandle;
    if (e != cudaSuccess) break;
    if (std::find(streams.begin(), streams.end(), s) == streams.end()) streams.push_back(s);
    for (const auto& memory : {p.from_memory, p.to_memory})
      if (memory) what.memory.push_back(memory);
  }
  this_thread().device = device;
  if (e == cudaSuccess) {
    std::shared_ptr<int> token;
    if (streams[0]->in) {
      token = c->in_graphs.lock();
      if (!token) c->in_graphs = token = std::make_shared<int>();
    }
    what.work = [c, parts, token] { run_parts(c, parts); };
    e = submit_across(streams, c->order, std::move(what));
  }
  if (e == cudaSuccess) return ncclSuccess;
  return fail(*c, ncclUnhandledCudaError, std::string("Cuda failure '") + cudaGetErrorString(e) + "'");
}

ncclResult_t launch(const comm_ptr& c, const std::vector<part>& parts) {
  if (!balanced_with_self(*c, parts)) {
    the_nccl().last_text = name_of(*c) + " sends to itself without a receive in the same group, or the reverse";
    return ncclInvalidUsage;
  }
  const auto places = connections(*c, parts);
  const bool captures = std::any_of(
      parts.begin(), parts.end(), [](const part& p) { return the_machine().streams.count(p.stream) && p.stream->in; });
  if (captures && !places.empty()) {
    const auto text = name_of(*c) + " meets a peer for the first time inside of a capture (" + places[0].name + ")";
    the_machine().note(text);
    the_nccl().last_text = text;
    return ncclInvalidUsage;
  }
  add_chore(c, {places, {}, [=] { return enqueue_parts(c, parts); }, {}});
  return ncclSuccess;
}

ncclResult_t end_group(guard& held) {
  auto& g = this_group();
  auto group = std::exchange(g, {});
  if (group.error != ncclSuccess) {
    for (const auto& d : group.later) d.settled(group.error);
    return group.error;
  }
  auto worst = ncclSuccess;
  const auto keep = [&](ncclResult_t r) {
    if (worst == ncclSuccess || worst == ncclInProgress) worst = r == ncclSuccess ? worst : r;
  };
  for (const auto& d : group.later) keep(d.post());
  for (const auto& [c, parts] : group.launches) keep(launch(c, parts));
  for (const auto& d : group.later) {
    const auto r = settle(held, d.comm);
    d.settled(r);
    keep(r);
  }
  for (const auto& [c, parts] : group.launches) keep(settle(held, c));
  return worst;
}

template <class Add>
ncclResult_t add_to_group(guard& held, Add add) {
  auto& g = this_group();
  ++g.depth;
  const auto r = add(g);
  if (r != ncclSuccess && g.error == ncclSuccess) g.error = r;
  if (--g.depth > 0) return r;
  return end_group(held);
}

// from_parts, to_parts: the size of the buffers in units of count.
ncclResult_t add_part(guard& held, ncclComm_t handle, part p, std::size_t from_parts, std::size_t to_parts) {
  return add_to_group(held, [&](group_state& g) {
    const auto c = find_comm(handle);
    if (!c) return ncclInvalidArgument;
    advance(c);
    if (c->error != ncclSuccess) return c->error;
    if (!c->chores.empty() || c->finalized) {
      the_machine().note(std::string(this_thread().calling) + " while " + name_of(*c) + " is still in progress");
      return ncclInvalidArgument;
    }
    const bool rooted = p.what == part::verb::broadcast, sends = p.what == part::verb::send;
    const bool paired = sends || p.what == part::verb::recv;
    if ((paired || rooted) && (p.peer < 0 || static_cast<std::size_t>(p.peer) >= c->all->size))
      return ncclInvalidArgument;
    if (bytes_of(p.type) == 0) return ncclInvalidArgument;
    if (rooted && p.peer != c->rank) from_parts = 0;
    cudaError_t e = cudaSuccess;
    const auto check = [&](const void* pointer, std::size_t parts, allocation_ptr& memory) {
      const auto bytes = bytes_of(p.type) * p.count * parts;
      if (bytes == 0) return true;
      memory = locate(pointer, bytes, e);
      return e == cudaSuccess && memory && memory->on_device() && memory->device == c->device;
    };
    const auto all = [&](std::size_t parts) { return parts == every_rank ? c->all->size : parts; };
    if (!check(p.from, all(from_parts), p.from_memory) || !check(p.to, all(to_parts), p.to_memory)) {
      the_nccl().last_text = std::string(this_thread().calling) + ": not memory of device " + std::to_string(c->device);
      return ncclInvalidArgument;
    }
    auto at = std::find_if(g.launches.begin(), g.launches.end(), [&](const auto& l) { return l.first == c; });
    if (at == g.launches.end()) at = g.launches.insert(g.launches.end(), {c, {}});
    at->second.push_back(std::move(p));
    return ncclSuccess;
  });
}

}  // namespace

ncclResult_t in_group(guard& held, deferred later) {
  return add_to_group(held, [&](group_state& g) {
    g.later.push_back(std::move(later));
    return ncclSuccess;
  });
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

ncclResult_t ncclGroupStart() {
  return nccl_api("ncclGroupStart", [](guard&) {
    ++this_group().depth;
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  return nccl_api("ncclGroupEnd", [](guard& held) {
    auto& g = this_group();
    if (g.depth == 0) return ncclInvalidUsage;
    if (--g.depth > 0) return ncclSuccess;
    return end_group(held);
  });
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s) {
  return nccl_api("ncclSend", [&](guard& held) {
    return add_part(held, comm, {part::verb::send, from, nullptr, count, type, peer, ncclSum, s, {}, {}}, 1, 0);
  });
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s) {
  return nccl_api("ncclRecv", [&](guard& held) {
    return add_part(held, comm, {part::verb::recv, nullptr, to, count, type, peer, ncclSum, s, {}, {}}, 0, 1);
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t s) {
  return nccl_api("ncclAllGather", [&](guard& held) {
    return add_part(held, comm, {part::verb::all_gather, from, to, count, type, -1, ncclSum, s, {}, {}}, 1, every_rank);
  });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t s) {
  return nccl_api("ncclReduceScatter", [&](guard& held) {
    return add_part(held, comm, {part::verb::reduce_scatter, from, to, count, type, -1, op, s, {}, {}}, every_rank, 1);
  });
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t s) {
  return nccl_api("ncclAllReduce", [&](guard& held) {
    return add_part(held, comm, {part::verb::all_reduce, from, to, count, type, -1, op, s, {}, {}}, 1, 1);
  });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s) {
  return nccl_api("ncclBroadcast", [&](guard& held) {
    return add_part(held, comm, {part::verb::broadcast, from, to, count, type, root, ncclSum, s, {}, {}}, 1, 1);
  });
}

}  // extern "C"
