// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads with devices: the host hands over marks, and streams are late with what was promised.
#include <doctest/doctest.h>

#include <atomic>

#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {
using namespace std::chrono_literals;

/// A rank with numbers to send and room for as many, and a group.
struct correspondent {
  explicit correspondent(const threads::transport& thread) : transport(on_device(thread)) { group.reserve(2, 2); }
  static threads::device_transport on_device(const threads::transport& t) {
    check_cuda(cudaSetDevice(0));
    return threads::device_transport(t);
  }
  void send(std::size_t i, int peer) { group.send(dense_block(&out[i], sizeof(int)), peer); }
  void recv(std::size_t i, int peer) { group.recv(dense_block(&in[i], sizeof(int)), peer); }
  status launch() { return transport.launch(group, site.exec); }
  template <class... Deadline>
  status wait(Deadline... d) {
    return transport.wait(group, site.exec, d...);
  }
  void busy(cudaStream_t stream, std::chrono::milliseconds time) const {
    check_cuda(enqueue(stream, [time] { std::this_thread::sleep_for(time); }));
  }

  threads::device_transport transport;
  stream_site site;
  std::pmr::vector<int> out{{1, 2}, site.memory}, in{{-1, -1}, site.memory};
  threads::device_transport::group_type group = transport.group();
};

/// Throws on rank 0, a while after its keys are under way.
struct fragile_kernel : late_kernel {
  using late_kernel::backward;
  using late_kernel::forward;
  int rank = 0;
  explicit fragile_kernel(int r = 0) : rank(r) {}
  template <class Call, class Mask>
  void forward(const Call& call, const Mask& mask, const late_host& exec) const {
    if (rank == 0) {
      std::this_thread::sleep_for(100ms);
      throw std::runtime_error("planted");
    }
    late_kernel::forward(call, mask, exec);
  }
};

void expect(bool holds, const char* what) {
  if (!holds) raise(error(errc::transport_failed, what));
}
}  // namespace

TEST_CASE("a group that recover() took back is launched behind its new mark") {
  std::atomic<bool> launched = false;
  run_ranks(2, [&](const threads::transport& thread) {
    correspondent me(thread);
    if (thread.rank() == 0) {
      me.send(0, 1);
      check(me.launch());
      launched = true;
      launched.notify_all();
    } else {
      launched.wait(false);
      thread.abort({errc::peer_failed, "planted"});
    }
    check(thread.recover());
    if (thread.rank() == 0)
      check_cuda(enqueue(me.site.exec.compute, [&me] {
        std::this_thread::sleep_for(50ms);
        me.out[0] = 3;
      }));
    else
      me.recv(0, 0);
    check(me.launch());
    check(me.wait());
    me.site.settle();
    expect(thread.rank() == 0 || me.in[0] == 3, "it was sent before it was written");
  });
}

TEST_CASE("a wait with a deadline comes back by then, and compute is behind what the streams were given") {
  for (const bool peer_comes : {false, true})
    run_ranks(2, [&](const threads::transport& thread) {
      correspondent me(thread);
      if (!peer_comes && thread.rank() == 1) return std::this_thread::sleep_for(500ms);
      const int peer = 1 - thread.rank();
      if (peer_comes) me.send(static_cast<std::size_t>(peer), peer);
      me.recv(0, peer);
      me.busy(me.site.exec.compute, 2s);
      check(me.launch());
      const auto begin = std::chrono::steady_clock::now();
      expect(!me.wait(100ms).ok(), "it was in time");
      expect(std::chrono::steady_clock::now() - begin < 1500ms, "it was late");
      me.site.settle();
      expect(me.in[0] == (peer_comes ? 1 + thread.rank() : -1), "it came later");
    });
}

TEST_CASE("blocks that a peer's stream has still to read outlive a failed wait, and a group that is dropped") {
  for (const bool waits : {true, false}) {
    std::atomic<bool> given = false;
    run_ranks(2, [&](const threads::transport& thread) {
      correspondent me(thread);
      if (thread.rank() == 1) {
        me.recv(0, 0);
        check(me.launch());
        me.busy(me.site.exec.exchange, 200ms);
        check(me.wait());
        if (waits) thread.abort({errc::peer_failed, "planted"});
        given = true;
        given.notify_all();
        me.site.settle();
        expect(me.in[0] == 1, "its sender has written something else meanwhile");
        return;
      }
      me.send(0, 1);
      check(me.launch());
      given.wait(false);
      if (waits) {
        expect(!me.wait().ok(), "it knew nothing");
        me.site.settle();
      } else {
        const auto dropped = std::move(me.group);
      }
      me.out[0] = 4;
    });
  }
}

TEST_CASE("after a failed run the rank's own streams are all that its memory waits for") {
  run_ranks(2, [](const threads::transport& thread) {
    check_cuda(cudaSetDevice(0));
    using rank_type = small_rank<threads::device_transport, fragile_kernel, stream_site>;
    auto rank = std::make_unique<rank_type>(threads::device_transport(thread), mesh_shape{2, 1},
                                            attention_options{.passes = forward_only}, fragile_kernel{thread.rank()});
    const cudaStream_t compute = rank->site.exec.compute;
    if (thread.rank() == 1) check_cuda(enqueue(compute, [] { std::this_thread::sleep_for(500ms); }));
    expect(!rank->run().ok(), "it knew nothing");  // meanwhile rank 1 has given its streams copies of rank 0's keys
    if (thread.rank() == 1) check_cuda(cudaStreamSynchronize(compute));
    rank.reset();
  });
  check_cuda(cudaDeviceSynchronize());
}

TEST_CASE("a group keeps its messages when it is reserved for fewer, and while it moves") {
  run_ranks(1, [](const threads::transport& thread) {
    correspondent me(thread);
    for (std::size_t i : {0u, 1u}) {
      me.send(i, 0);
      me.recv(i, 0);
    }
    me.group.reserve(1, 0);
    check(me.launch());
    {
      auto elsewhere = std::move(me.group);
      me.group = std::move(elsewhere);
    }
    check(me.wait());
    me.site.settle();
    expect(me.in[0] == 1 && me.in[1] == 2, "other values");
  });
}

}  // namespace seqpar::test
