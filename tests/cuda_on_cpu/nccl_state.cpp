// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What communicators do between calls: meet, wait, fail.
#include <algorithm>

#include "tests/cuda_on_cpu/nccl.hpp"

namespace cuda_on_cpu {

using std::chrono::steady_clock;

nccl_state& the_nccl() {
  static nccl_state& n = *[] {
    auto* made = new nccl_state;
    auto& m = the_machine();
    m.end_nccl = [made] {
      for (auto& [handle, c] : made->comms) c->aborted = true;
      the_machine().progress();
    };
    m.forget_nccl = [made] {
      while (!made->comms.empty()) bury(made->comms.begin()->second);
      *made = {};
    };
    m.nccl_leaks = [made] {
      std::string all;
      for (auto& [handle, c] : made->comms) all += name_of(*c) + '\n';
      for (auto& [handle, c] : made->windows) all += "window of " + name_of(*c) + '\n';
      return all;
    };
    return made;
  }();
  return n;
}

void bury(comm_ptr c) {
  auto& n = the_nccl();
  n.comms.erase(c.get());
  n.gone[c.get()] = c;
  c->chores.clear();  // they hold the communicator
}

std::string name_of(const ncclComm& c) {
  return "rank " + std::to_string(c.rank) + " of communicator " + (c.all ? c.all->name : "not yet split");
}

ncclResult_t fail(ncclComm& c, ncclResult_t error, std::string text) {
  if (c.error == ncclSuccess) {
    c.error = error;
    c.text = the_nccl().last_text = std::move(text);
  }
  the_machine().progress();
  return error;
}

void fail_all(clique& all, ncclResult_t error, const std::string& mistake) {
  if (all.failed) return;
  all.failed = true;
  the_machine().note(mistake);
  for (auto& [handle, c] : the_nccl().comms)
    if (c->all.get() == &all) fail(*c, error, mistake);
}

comm_ptr find_comm(ncclComm_t handle) {
  auto& n = the_nccl();
  if (const auto at = n.comms.find(handle); at != n.comms.end()) return at->second;
  if (const auto at = n.gone.find(handle); at != n.gone.end())
    the_machine().note(std::string(this_thread().calling) + " after " + name_of(*at->second) +
                       (at->second->aborted ? " was aborted" : " was destroyed"));
  return {};
}

bool met(const clique& all, const meeting& place) {
  const auto at = all.arrived.find(place.name);
  return at != all.arrived.end() && at->second.size() >= place.needed;
}

namespace {

// Everybody who waits is told why, and nobody waits any longer.
void give_up_everywhere() {
  std::string all = "nothing moves any more:";
  for (const auto& w : the_nccl().waiters) all += " " + name_of(*w.comm) + " waits for " + w.what() + ";";
  the_machine().note(all);
  for (const auto& w : the_nccl().waiters) {
    if (w.comm->all) w.comm->all->failed = true;
    fail(*w.comm, ncclInternalError, all);
    w.comm->aborted = w.comm->aborted || !w.comm->all;
  }
}

bool gave_up(const ncclComm& c) {
  return c.aborted || (c.all && c.all->failed);
}

}  // namespace

bool wait_patiently(guard& held, const comm_ptr& c, const std::function<bool()>& over,
                    std::function<std::string()> what) {
  auto& m = the_machine();
  auto& waiters = the_nccl().waiters;
  const auto mine = waiters.insert(waiters.end(), {c, std::move(what)});
  bool holds = over();
  while (!holds && !gave_up(*c)) {
    m.changed.wait_for(held.lock, std::min(m.set.patience, std::chrono::milliseconds(50)));
    holds = over();
    if (!holds && steady_clock::now() - m.moved_last > m.set.patience) give_up_everywhere();
  }
  waiters.erase(mine);
  return holds;
}

void add_chore(const comm_ptr& c, chore later) {
  auto& m = the_machine();
  if (!c->blocking) {  // late, and never done by the call itself
    dice next(m.set.seed + ++the_nccl().made);
    const auto longest = static_cast<std::uint64_t>(m.set.delay.count()) * 4 + 1;
    later.earliest = steady_clock::now() + std::chrono::microseconds(1 + next() % longest);
  }
  for (const auto& place : later.places) c->all->arrived[place.name].insert(c->rank);
  c->chores.push_back(std::move(later));
  m.progress();
}

void advance(const comm_ptr& c) {
  while (!c->chores.empty() && !gave_up(*c)) {
    auto& next = c->chores.front();
    if (steady_clock::now() < next.earliest || (next.ready && !next.ready())) return;
    for (const auto& place : next.places)
      if (!met(*c->all, place)) return;
    const auto then = std::move(next.then);
    c->chores.pop_front();
    if (!then) continue;
    if (const auto r = then(); r != ncclSuccess) fail(*c, r, c->text.empty() ? "an operation failed" : c->text);
  }
}

ncclResult_t settle(guard& held, const comm_ptr& c) {
  if (c->blocking) {
    wait_patiently(
        held, c,
        [&] {
          advance(c);
          return c->chores.empty() || c->error != ncclSuccess;
        },
        [&] {
          std::string missing = "its peers:";
          for (const auto& place : c->chores.front().places)
            if (!met(*c->all, place)) missing += " (" + place.name + ")";
          return missing;
        });
  }
  if (c->error != ncclSuccess) return c->error;
  if (gave_up(*c)) return ncclInternalError;
  return c->chores.empty() ? ncclSuccess : ncclInProgress;
}

void inject(fault what, int rank, int nth) {
  guard held;
  auto& n = the_nccl();
  n.faults.push_back({what, rank, static_cast<std::size_t>(nth)});
  for (auto& [handle, c] : n.comms) c->operations = 0;
}

}  // namespace cuda_on_cpu
