// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step over MPI in which one rank comes to grief: mpi_faults HOW RANK OPERATION DEADLINE_MS
// The rank does HOW at its OPERATION-th launch or wait, having printed the time. Started by faults.cmake, which looks
// at how the job ends.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include <seqpar/mpi.hpp>

namespace {

using seqpar::index_t;
using seqpar::on_host;
using seqpar::status;
using clock_type = std::chrono::system_clock;

struct fate {
  std::string how;
  int operations_left;
  bool came = false;
  seqpar::message_label label{};  ///< of the last message

  /// Counts; is this the operation, and not that of a rank that is killed or stopped?
  bool comes() {
    if (operations_left-- != 0) return false;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(clock_type::now().time_since_epoch());
    std::fprintf(stderr, "fault at %lld\n", static_cast<long long>(now.count()));
    if (how == "kill") std::raise(SIGKILL);
    if (how == "stop") std::raise(SIGSTOP);
    return came = how != "stop";
  }
};

/// Everything is seen, until it throws in the midst of a round.
struct fateful {
  const fate* mine;
  bool allows(index_t, index_t) const {
    if (mine->came && mine->how == "throw") throw std::runtime_error("planted");
    return true;
  }
};

/// Forwards to MPI and meets its fate on the way.
struct fated {
  /// Remembers the last label, so that what is sent in place of a message passes for it.
  struct group_type : seqpar::mpi::group {
    fate* mine;
    void label(const seqpar::message_label& l) noexcept {
      mine->label = l;
      seqpar::mpi::group::label(l);
    }
  };
  static constexpr auto access = seqpar::mpi::transport::access;
  seqpar::mpi::transport t;
  fate* mine;

  int rank() const { return t.rank(); }
  int size() const { return t.size(); }
  group_type group() const { return {t.group(), mine}; }
  status launch(group_type& g, on_host e) const {
    if (mine->comes() && mine->how == "short") send_short_ones();
    return t.launch(g, e);
  }
  status wait(group_type& g, on_host e) const {
    if (mine->comes() && mine->how == "short") send_short_ones();
    return t.wait(g, e);
  }
  status wait(group_type& g, on_host e, std::chrono::nanoseconds d) const { return t.wait(g, e, d); }
  status check() const { return t.check(); }
  void abort(status s, std::string_view why = {}) const { t.abort(s, why); }

 private:
  /// A byte to everybody in place of what comes next.
  void send_short_ones() const {
    auto g = t.group();
    g.reserve(size(), 0);
    g.label(mine->label);
    for (int r = 0; r < size(); ++r) g.send(seqpar::dense_block("", 1), r);
    static_cast<void>(t.launch(g, on_host{}));
    static_cast<void>(t.wait(g, on_host{}));
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }
};

struct unwinding {};

void train(const fated& world) {
  const int ring = world.size() % 2 == 0 ? world.size() / 2 : world.size();
  const seqpar::mesh team{world, {.ring = ring, .all_to_all = world.size() / ring}};
  const auto layout = seqpar::zigzag{.tokens = 200, .ranks = team.size()};
  auto plan =
      seqpar::plan_attention<float>(team, layout, fateful{world.mine}, {.heads = 4, .kv_heads = 2, .head_dim = 32},
                                    {.passes = seqpar::forward_backward});
  const seqpar::host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  const index_t n = plan.q_rows();
  const auto filled = [&](index_t count) { return std::vector<float>(static_cast<std::size_t>(count), .5f); };
  auto q = filled(n * 128), k = filled(n * 64), v = k, out = q, lse = filled(n * 4), dout = q, dq = q, dk = k, dv = k;
  const auto rows = [&](std::vector<float>& x, index_t heads) {
    return seqpar::dense_view(x.data(), {1, n, heads, 32});
  };
  const auto numbers = seqpar::dense_heads(lse.data(), {1, 4, n});
  for (;;) {
    if (world.mine->came && world.mine->how == "leave") return;
    if (world.mine->came && world.mine->how == "unwind") throw unwinding{};
    check(plan.forward({.q = rows(q, 4), .k = rows(k, 2), .v = rows(v, 2), .out = rows(out, 4), .lse = numbers}, memory,
                       on_host{}));
    check(plan.backward({.q = rows(q, 4),
                         .k = rows(k, 2),
                         .v = rows(v, 2),
                         .out = rows(out, 4),
                         .lse = numbers,
                         .dout = rows(dout, 4),
                         .dq = rows(dq, 4),
                         .dk = rows(dk, 2),
                         .dv = rows(dv, 2)},
                        memory, on_host{}));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  MPI_Init(&argc, &argv);
  try {
    seqpar::mpi::world world(MPI_COMM_WORLD, {.deadline = std::chrono::milliseconds(std::atoi(argv[4]))});
    fate mine{argv[1], world.rank() == std::atoi(argv[2]) ? std::atoi(argv[3]) : -1};
    const seqpar::mpi::transport t(world);
    try {
      train({t, &mine});
    } catch (const std::exception& e) {
      t.abort({seqpar::errc::peer_failed, "a rank threw"}, e.what());
    }
  } catch (const unwinding&) {
  }
  MPI_Finalize();
}
