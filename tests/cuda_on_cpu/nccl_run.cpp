// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations on the device: no tags, in order between each pair, one operation of a communicator at a time; a send ends
// when its bytes are where the receiver wants them, never earlier.
#include <algorithm>
#include <cstring>

#include "tests/cuda_on_cpu/nccl.hpp"

namespace cuda_on_cpu {

namespace {

using verb = part::verb;

std::size_t total_bytes(const part& p) {
  return bytes_of(p.type) * p.count;
}

std::string text_of(const part& p) {
  return std::to_string(p.count) + " elements of type " + std::to_string(static_cast<int>(p.type)) + " (" +
         std::to_string(total_bytes(p)) + " bytes)";
}

std::string wish_of(const part& p) {
  switch (p.what) {
    case verb::send:
      return "rank " + std::to_string(p.peer) + " to receive " + text_of(p);
    case verb::recv:
      return text_of(p) + " from rank " + std::to_string(p.peer);
    default:
      return "all ranks in a collective of " + text_of(p);
  }
}

void count_bytes(int from, int to, std::size_t bytes) {
  if (from != to) the_machine().links[{from, to}] += bytes;
}

// A running operation.
class operation {
 public:
  operation(guard& held, const comm_ptr& c, const std::vector<part>& parts)
      : held_(held), c_(c), all_(*c->all), parts_(parts), mine_(parts.size()), next_(the_machine().set.seed) {
    for (int i = 0; i <= c->rank; ++i) next_ = dice(next_() + c->operations);
  }

  void run() {
    post();
    for (;;) {
      move_what_is_matched();
      const bool more = wait_patiently(
          held_, c_, [&] { return done() || find_match() != nullptr; }, [&] { return wishes(); });
      if (!more || done()) break;
    }
    if (!done()) withdraw();
    for (auto& p : mine_)
      if (p.done) p.moved.acquire();
  }

 private:
  std::deque<posted*>& sends(int from, int to) { return all_.sends[{from, to}]; }
  std::deque<posted*>& recvs(int from, int to) { return all_.recvs[{from, to}]; }

  void post() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& p = parts_[i];
      auto& m = mine_[i];
      m.what = &p;
      m.rank = c_->rank;
      m.device = c_->device;
      m.ready.release();
      if (p.what == verb::send) {
        sends(c_->rank, p.peer).push_back(&m);
      } else if (p.what == verb::recv) {
        recvs(p.peer, c_->rank).push_back(&m);
      } else {
        auto& here = all_.collectives[c_->rounds++];
        here[c_->rank] = &m;
      }
    }
    the_machine().progress();
  }

  // A receive of mine, or a collective that I am the last to join.
  posted* find_match() {
    if (all_.failed) return nullptr;
    const auto start = mine_.empty() ? 0 : next_() % mine_.size();  // any pair may come first
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      auto& m = mine_[(start + i) % mine_.size()];
      if (m.done || m.taken) continue;
      if (m.what->what == verb::recv) {
        const int from = m.what->peer;
        if (recvs(from, m.rank).front() == &m && !sends(from, m.rank).empty()) return &m;
      } else if (m.what->what != verb::send && collective_of(m)->second.size() == all_.size) {
        return &m;
      }
    }
    return nullptr;
  }

  std::map<std::size_t, std::map<int, posted*>>::iterator collective_of(const posted& m) {
    return std::find_if(all_.collectives.begin(), all_.collectives.end(), [&](const auto& round) {
      const auto at = round.second.find(m.rank);
      return at != round.second.end() && at->second == &m;
    });
  }

  void move_what_is_matched() {
    while (auto* m = find_match()) {
      if (m->what->what == verb::recv) {
        receive(*m);
      } else {
        meet(*m);
      }
    }
  }

  void receive(posted& m) {
    const int from = m.what->peer;
    auto& s = *sends(from, m.rank).front();
    if (s.what->count != m.what->count || s.what->type != m.what->type) {
      fail_all(all_, ncclInvalidUsage,
               name_of(*c_) + " receives " + text_of(*m.what) + " from rank " + std::to_string(from) +
                   ", which sends " + text_of(*s.what));
      return;
    }
    sends(from, m.rank).pop_front();
    recvs(from, m.rank).pop_front();
    m.taken = s.taken = true;
    const auto bytes = total_bytes(*m.what);
    s.ready.acquire();
    {
      outside now(held_);
      const auto* source = static_cast<const char*>(s.what->from);
      auto* target = static_cast<char*>(m.what->to);
      const auto first = bytes == 0 ? 0 : next_() % bytes;  // in two pieces, and something may happen between them
      nap(next_);
      if (first > 0) std::memcpy(target, source, first);
      nap(next_);
      if (bytes > 0) std::memcpy(target + first, source + first, bytes - first);
    }
    count_bytes(s.device, m.device, bytes);
    finish_posted(m);
    finish_posted(s);
  }

  void meet(posted& m) {
    const auto at = collective_of(m);
    const auto members = at->second;
    for (const auto& [rank, other] : members) {
      const auto &a = *m.what, &b = *other->what;
      if (a.what != b.what || a.count != b.count || a.type != b.type || a.op != b.op || a.peer != b.peer) {
        fail_all(all_, ncclInvalidUsage,
                 name_of(*c_) + " and rank " + std::to_string(rank) + " disagree on a collective: " + text_of(a) +
                     " against " + text_of(b));
        return;
      }
    }
    all_.collectives.erase(at);
    for (const auto& [rank, other] : members) {
      other->taken = true;
      other->ready.acquire();
    }
    {
      outside now(held_);
      nap(next_);
      move_collective(members);
    }
    const auto bytes = total_bytes(*m.what);
    for (const auto& [rank, from] : members)
      for (const auto& [to_rank, to] : members)
        if (m.what->what != verb::broadcast || rank == m.what->peer) count_bytes(from->device, to->device, bytes);
    for (const auto& [rank, other] : members) finish_posted(*other);
  }

  void finish_posted(posted& p) {
    p.moved.release();
    p.done = true;
    the_machine().progress();
  }

  bool done() const {
    return std::all_of(mine_.begin(), mine_.end(), [](const posted& p) { return p.done; });
  }

  // Nobody may find what is about to go; what moves already is waited for.
  void withdraw() {
    const auto drop = [](std::deque<posted*>& queue, posted* p) {
      queue.erase(std::remove(queue.begin(), queue.end(), p), queue.end());
    };
    for (auto& m : mine_) {
      if (m.taken) {
        the_machine().changed.wait(held_.lock, [&] { return m.done; });
      } else if (m.what->what == verb::send) {
        drop(sends(m.rank, m.what->peer), &m);
      } else if (m.what->what == verb::recv) {
        drop(recvs(m.what->peer, m.rank), &m);
      } else {
        collective_of(m)->second.erase(m.rank);
      }
    }
  }

  std::string wishes() const {
    std::string all;
    for (const auto& p : mine_)
      if (!p.done) all += (all.empty() ? "" : " and ") + wish_of(*p.what);
    return all;
  }

  guard& held_;
  const comm_ptr& c_;
  clique& all_;
  const std::vector<part>& parts_;
  std::deque<posted> mine_;
  dice next_;
};

const planned_fault* fault_of(ncclComm& c) {
  const auto now = c.operations++;
  for (const auto& f : the_nccl().faults)
    if (f.rank == c.rank && now >= f.at) return &f;
  return nullptr;
}

}  // namespace

void run_parts(const comm_ptr& c, const std::vector<part>& parts) {
  guard held;
  const auto never = [] { return false; };
  if (!wait_patiently(
          held, c, [&] { return !c->busy; }, [] { return "its operation before"; }))
    return;
  c->busy = true;
  if (const auto* f = fault_of(*c)) {
    if (f->what == fault::error) fail(*c, ncclRemoteError, name_of(*c) + " failed, as was wished");
    wait_patiently(held, c, never, [] { return "nothing: it is dead, as was wished"; });
  } else if (!c->aborted) {
    operation(held, c, parts).run();
  }
  c->busy = false;
  the_machine().progress();
}

}  // namespace cuda_on_cpu
