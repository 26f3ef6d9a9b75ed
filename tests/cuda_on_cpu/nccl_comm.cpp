// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Making, asking, splitting and ending communicators.
#include <cstring>

#include "tests/cuda_on_cpu/nccl.hpp"

using namespace cuda_on_cpu;

namespace {

constexpr const char* known_id = "cuda_on_cpu ";

std::string text_of(const ncclUniqueId& id) {
  return {id.internal, sizeof id.internal};
}

// All ranks are here: is this a communicator?
ncclResult_t open_for_business(ncclComm& c) {
  std::map<int, int> owner;
  for (const auto& [rank, device] : c.all->devices)
    if (!owner.insert({device, rank}).second)
      return fail(c, ncclInvalidUsage,
                  "ranks " + std::to_string(owner[device]) + " and " + std::to_string(rank) + " are both on device " +
                      std::to_string(device));
  return ncclSuccess;
}

ncclResult_t join(const comm_ptr& c, const ncclUniqueId& id, int size) {
  auto& n = the_nccl();
  auto& all = n.cliques[text_of(id)];
  if (!all) {
    all = std::make_shared<clique>();
    all->name = std::to_string(++n.made);
    all->size = static_cast<std::size_t>(size);
    all->has_root = n.ids.count(text_of(id)) != 0;
  }
  c->all = all;
  if (all->size != static_cast<std::size_t>(size) || !all->devices.insert({c->rank, c->device}).second)
    fail_all(*all, ncclInvalidUsage, "ranks of communicator " + all->name + " disagree on its size, or came twice");
  add_chore(c, {{{"init", all->size}}, [all] { return all->has_root; }, [c] { return open_for_business(*c); }, {}});
  return ncclSuccess;
}

ncclResult_t check_config(const ncclConfig_t* config, bool& blocking) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t)) return ncclInvalidArgument;
  if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
    return ncclInvalidArgument;
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) blocking = config->blocking == 1;
  return ncclSuccess;
}

ncclResult_t init(guard& held, ncclComm_t* out, int size, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config) {
  if (out == nullptr || size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
  *out = nullptr;
  if (this_thread().device >= the_machine().set.devices) return ncclUnhandledCudaError;
  auto c = std::make_shared<ncclComm>();
  if (const auto r = check_config(config, c->blocking); r != ncclSuccess) return r;
  c->rank = rank;
  c->device = c->order.device = this_thread().device;
  the_nccl().comms[c.get()] = c;
  if (!c->blocking) *out = c.get();
  return in_group(held, {c, [=] { return join(c, id, size); },
                         [=](ncclResult_t r) {
                           if (r == ncclSuccess) *out = c.get();
                           if (r == ncclSuccess || r == ncclInProgress || !(c->blocking || !c->all)) return;
                           *out = nullptr;
                           bury(c);
                         }});
}

// All ranks chose: those of my colour, by key and then by rank, are the new communicator.
ncclResult_t split_off(const comm_ptr& parent, int nth) {
  const auto& choices = parent->all->splits[nth];
  const auto& mine = choices.at(parent->rank);
  if (mine.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::map<std::pair<int, int>, const split_choice*> members;
  for (const auto& [rank, choice] : choices)
    if (choice.color == mine.color) members[{choice.key, rank}] = &choice;
  if (mine.comm->all) return ncclSuccess;  // a peer has done it for all of us
  auto& n = the_nccl();
  auto all = std::make_shared<clique>();
  all->name = std::to_string(++n.made);
  all->size = members.size();
  int rank = 0;
  for (const auto& [order, choice] : members) {
    choice->comm->all = all;
    choice->comm->rank = rank;
    all->devices[rank++] = choice->comm->device;
  }
  the_machine().progress();
  return ncclSuccess;
}

void check_graphs(const ncclComm& c) {
  if (!c.in_graphs.expired()) the_machine().note(name_of(c) + " ended before a graph that uses it");
}

template <class T, class Read>
ncclResult_t ask(const char* function, ncclComm_t handle, T* out, Read read) {
  return nccl_api(function, [&](guard&) {
    const auto c = find_comm(handle);
    if (!c || out == nullptr) return ncclInvalidArgument;
    advance(c);
    if (!c->chores.empty()) return ncclInvalidArgument;
    *out = read(*c);
    return ncclSuccess;
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return nccl_api("ncclGetVersion", [&](guard&) {
    if (version == nullptr) return ncclInvalidArgument;
    const int asked = the_machine().set.nccl_version;
    *version = asked ? asked : NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* out) {
  return nccl_api("ncclGetUniqueId", [&](guard&) {
    if (out == nullptr) return ncclInvalidArgument;
    *out = {};
    const auto text = known_id + std::to_string(++the_nccl().made);
    std::memcpy(out->internal, text.data(), text.size());
    the_nccl().ids.insert(text_of(*out));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return nccl_api("ncclCommInitRank", [&](guard& held) { return init(held, out, size, id, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return nccl_api("ncclCommInitRankConfig", [&](guard& held) { return init(held, out, size, id, rank, config); });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* out) {
  return ask("ncclCommCount", comm, out, [](const ncclComm& c) { return static_cast<int>(c.all->size); });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* out) {
  return ask("ncclCommUserRank", comm, out, [](const ncclComm& c) { return c.rank; });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* out) {
  return ask("ncclCommCuDevice", comm, out, [](const ncclComm& c) { return c.device; });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* out) {
  return nccl_api("ncclCommGetAsyncError", [&](guard&) {
    const auto c = find_comm(comm);
    if (!c || out == nullptr) return ncclInvalidArgument;
    advance(c);
    *out = c->error != ncclSuccess ? c->error : c->chores.empty() ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  return nccl_api("ncclCommSplit", [&](guard& held) {
    const auto parent = find_comm(comm);
    if (!parent || out == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) return ncclInvalidArgument;
    *out = nullptr;
    auto c = std::make_shared<ncclComm>();
    c->blocking = parent->blocking;
    if (const auto r = check_config(config, c->blocking); r != ncclSuccess) return r;
    c->device = c->order.device = parent->device;
    const bool member = color != NCCL_SPLIT_NOCOLOR;
    if (member) the_nccl().comms[c.get()] = c;
    if (member && !c->blocking) *out = c.get();
    const auto post = [=] {
      const int nth = parent->splits++;
      parent->all->splits[nth][parent->rank] = {color, key, c};
      add_chore(
          parent,
          {{{"split " + std::to_string(nth), parent->all->size}}, {}, [=] { return split_off(parent, nth); }, {}});
      if (member) c->chores.push_back({{}, [c] { return c->all != nullptr; }, {}, {}});
      return ncclSuccess;
    };
    return in_group(held, {parent, post, [=](ncclResult_t r) {
                             if (member && r == ncclSuccess) {
                               advance(c);
                               *out = c.get();
                             }
                             if (r != ncclSuccess && c->blocking) bury(c);
                           }});
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return nccl_api("ncclCommFinalize", [&](guard& held) {
    const auto c = find_comm(comm);
    if (!c || c->finalized) return ncclInvalidArgument;
    c->finalized = true;
    add_chore(c, {{{"finalize", c->all->size}}, [c] { return !c->order.last || c->order.last->done; }, {}, {}});
    return settle(held, c);
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return nccl_api("ncclCommDestroy", [&](guard& held) {
    if (comm == nullptr) return ncclSuccess;
    const auto c = find_comm(comm);
    if (!c) return ncclInvalidArgument;
    check_graphs(*c);
    wait_patiently(
        held, c, [&] { return !c->order.last || c->order.last->done; },
        [] { return "its operations, to be destroyed"; });
    bury(c);
    return c->error;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return nccl_api("ncclCommAbort", [&](guard& held) {
    if (comm == nullptr) return ncclSuccess;
    const auto c = find_comm(comm);
    if (!c) return ncclInvalidArgument;
    check_graphs(*c);
    c->aborted = true;
    the_machine().progress();
    the_machine().changed.wait(held.lock, [&] { return !c->busy; });
    bury(c);
    return ncclSuccess;
  });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
ncclResult_t ncclMemAlloc(void** out, size_t bytes) {
  return nccl_api("ncclMemAlloc", [&](guard&) {
    if (allocate(out, bytes, allocation::kind::device) != cudaSuccess) return ncclUnhandledCudaError;
    if (*out != nullptr) the_machine().memory[static_cast<char*>(*out)]->for_windows = true;
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* p) {
  return nccl_api("ncclMemFree",
                  [&](guard&) { return release(p, true) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; });
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* pointer, size_t bytes, ncclWindow_t* out, int flags) {
  return nccl_api("ncclCommWindowRegister", [&](guard& held) {
    const auto c = find_comm(comm);
    cudaError_t e = cudaSuccess;
    const auto memory = locate(pointer, bytes, e);
    if (!c || out == nullptr || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0 || e != cudaSuccess || !memory ||
        !memory->for_windows || memory->device != c->device)
      return ncclInvalidArgument;
    *out = nullptr;
    const auto post = [=] {
      add_chore(c, {{{"window " + std::to_string(c->windows++) + " of " + std::to_string(bytes), c->all->size}},
                    {},
                    [=] {
                      const auto handle = static_cast<std::uintptr_t>(++the_nccl().made);
                      the_nccl().windows[handle] = c;
                      *out = reinterpret_cast<ncclWindow_t>(handle);
                      return ncclSuccess;
                    },
                    {}});
      return ncclSuccess;
    };
    return in_group(held, {c, post, [](ncclResult_t) {}});
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return nccl_api("ncclCommWindowDeregister", [&](guard&) {
    const auto handle = reinterpret_cast<std::uintptr_t>(window);
    return find_comm(comm) && the_nccl().windows.erase(handle) != 0 ? ncclSuccess : ncclInvalidArgument;
  });
}
#endif

const char* ncclGetErrorString(ncclResult_t r) {
  switch (r) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  guard held;
  auto& n = the_nccl();
  const auto at = n.comms.find(comm);
  return at != n.comms.end() ? at->second->text.c_str() : n.last_text.c_str();
}

}  // extern "C"
