// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What threads do when something goes wrong.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/threads.hpp>

using namespace std::chrono_literals;
using seqpar::dense_block;
using seqpar::errc;
using seqpar::index_t;
using seqpar::on_host;
using seqpar::status;
using seqpar::threads::options;
using handle = seqpar::threads::transport;

namespace {

/// One message each way; 0 bytes to send or receive: none.
handle::group_type swap_group(const handle& t, const void* out, index_t out_bytes, int to, void* in, index_t in_bytes,
                              int from) {
  auto g = t.group();
  g.reserve(1, 1);
  if (out_bytes > 0) g.send(dense_block(out, out_bytes), to);
  if (in_bytes > 0) g.recv(dense_block(in, in_bytes), from);
  return g;
}
/// What a rank's ring shift returns.
status shift(const handle& t, index_t bytes = 4) {
  std::vector<char> out(16), in(16);
  const int size = t.size();
  auto g = swap_group(t, out.data(), bytes, (t.rank() + 1) % size, in.data(), bytes, (t.rank() + size - 1) % size);
  const status s = t.launch(g, on_host{});
  return s.ok() ? t.wait(g, on_host{}) : s;
}
/// What run_ranks throws, and how.
struct thrown {
  errc code = errc::ok;
  std::string text;
};
thrown thrown_by(const options& o, auto f) {
  try {
    seqpar::run_ranks(o, f);
  } catch (const seqpar::error& e) {
    return {e.code(), e.what()};
  }
  return {};
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank that throws wakes all others with an error that names it, and a new world works [J5]") {
  for (const int bad : {0, 2, 3})
    for (const int step : {0, 1, 5}) {
      CAPTURE(bad);
      CAPTURE(step);
      const auto start = std::chrono::steady_clock::now();
      std::atomic<int> told{0};
      const thrown t = thrown_by({.ranks = 4}, [&](handle h) {
        for (int i = 0; i < 8; ++i) {
          if (h.rank() == bad && i == step) throw std::runtime_error("boom");
          if (const status s = shift(h); !s.ok()) {
            told += s.code() == errc::peer_failed && s.rank() == bad;
            check(s);
          }
        }
      });
      CHECK(t.text == "[seqpar] rank " + std::to_string(bad) + ": boom");
      CHECK(told.load() == 3);
      CHECK(std::chrono::steady_clock::now() - start < 5s);
      CHECK_NOTHROW(seqpar::run_ranks(4, [](handle h) { check(shift(h)); }));
    }
}

TEST_CASE("a rank that throws with messages under way is the cause, not the messages that it dropped [J5]") {
  for (int i = 0; i < 50; ++i) {
    const thrown t = thrown_by({.ranks = 4, .adversary = 7}, [](handle h) {
      int out = 0, in = 0;
      auto g = swap_group(h, &out, 4, (h.rank() + 1) % 4, &in, 4, (h.rank() + 3) % 4);
      check(h.launch(g, on_host{}));
      if (h.rank() == 2) throw 7;
      if (!h.wait(g, on_host{}).ok()) throw std::runtime_error("told");
      for (int n = 0; n < 3; ++n)
        if (!shift(h).ok()) throw std::runtime_error("told");
    });
    CHECK(t.text == "[seqpar] rank 2: threw something that is no std::exception");
  }
}

TEST_CASE("what run_ranks throws is one line, and of ranks that wait in vain it tells who waits for what [J6]") {
  const thrown waits = thrown_by({.ranks = 2}, [](handle h) {
    if (h.rank() == 0) check(shift(h));
  });
  CHECK(waits.code == errc::deadlock);
  CHECK(
      waits.text ==
      "[seqpar] deadlock: rank 0 waits for rank 1 to take 4 B (message, round 0) and for 1 more; rank 1 has returned");
  const thrown sizes = thrown_by({.ranks = 2}, [](handle h) {
    int x = 0;
    auto g = h.group();
    g.reserve(1, 1);
    if (h.rank() == 0)
      g.send(dense_block(&x, 4), 1);
    else
      g.recv(dense_block(&x, 2), 0);
    check(h.launch(g, on_host{}));
    check(h.wait(g, on_host{}));
  });
  CHECK(sizes.code == errc::size_mismatch);
  CHECK(sizes.text == "[seqpar] rank 0 sends 4 B to rank 1 (message, round 0), which expects 2 B (message, round 0)");
}

TEST_CASE("a seqpar::error keeps its code through run_ranks") {
  const thrown t = thrown_by({.ranks = 2}, [](handle h) {
    if (h.rank() == 1) throw seqpar::error(errc::memory_too_small, "plan: give more");
    check(shift(h));
  });
  CHECK(t.code == errc::memory_too_small);
  CHECK(t.text == "[seqpar] rank 1: plan: give more");
}

TEST_CASE("messages of other sizes than expected are one error on all ranks that wait, with both sizes told [J6]") {
  for (const int bad : {0, 1, 3}) {
    std::array<std::atomic<errc>, 4> codes{};
    std::string report;
    seqpar::run_ranks(4, [&](handle h) {
      codes[static_cast<std::size_t>(h.rank())] = shift(h, h.rank() == bad ? 5 : 4).code();
      if (h.rank() == bad) report = h.report();
    });
    const int far = (bad + 2) % 4;  // exchanges nothing with `bad`, and may have had all its data before
    for (int r = 0; r < 4; ++r) {
      const errc c = codes[static_cast<std::size_t>(r)];
      CHECK((c == errc::size_mismatch || (r == far && c == errc::ok)));
    }
    CHECK(contains(report, "5 B"));
    CHECK(contains(report, "4 B"));
    CHECK(contains(report, ("rank " + std::to_string(bad)).c_str()));
  }
}

TEST_CASE("receiving into what the same group sends is refused before anything is posted [E4]") {
  seqpar::run_ranks(2, [](handle h) {
    // Rank 0's first half is exchanged with rank 1's second half, in the same buffer.
    int x[] = {1 + 4 * h.rank(), 2 + 4 * h.rank(), 3 + 4 * h.rank(), 4 + 4 * h.rank()};
    int* half = h.rank() == 0 ? x : x + 2;
    auto g = swap_group(h, half, 8, 1 - h.rank(), half, 8, 1 - h.rank());
    if (h.launch(g, on_host{}).code() != errc::overlapping_buffers) throw std::runtime_error("not refused");
    // The remedy: receive elsewhere. The transport is as if nothing had happened.
    int in[2];
    g.clear();
    g.send(dense_block(half, 8), 1 - h.rank());
    g.recv(dense_block(in, 8), 1 - h.rank());
    check(h.launch(g, on_host{}));
    check(h.wait(g, on_host{}));
    const int expected = h.rank() == 0 ? 7 : 1;
    if (in[0] != expected || in[1] != expected + 1) throw std::runtime_error("wrong values");
  });
}

TEST_CASE("interleaved columns of one buffer are exchanged in place") {
  seqpar::run_ranks(2, [](handle h) {
    int x[6];
    for (int i = 0; i < 6; ++i) x[i] = 10 * h.rank() + i;
    auto g = h.group();
    g.reserve(1, 1);
    g.send({x, 3, 8, 1, 4, 4}, 1 - h.rank());
    g.recv({x + 1, 3, 8, 1, 4, 4}, 1 - h.rank());
    check(h.launch(g, on_host{}));
    check(h.wait(g, on_host{}));
    for (int i = 0; i < 6; ++i)
      if (x[i] != (i % 2 == 0 ? 10 * h.rank() + i : 10 * (1 - h.rank()) + i - 1)) throw std::runtime_error("wrong");
  });
}

TEST_CASE("a wrong message is an error of launch, before anything is posted, and the world goes on") {
  seqpar::run_ranks(2, [](handle h) {
    int x = 0, y = 0;
    const auto refused = [&](auto add) {
      auto g = h.group();
      g.reserve(1, 1);
      g.recv(dense_block(&y, 4), 1 - h.rank());
      add(g);
      return h.launch(g, on_host{}).code() == errc::invalid_argument && h.check().ok();
    };
    bool all = true;
    for (const int peer : {-1, 2, 1 << 30}) all = all && refused([&](auto& g) { g.send(dense_block(&x, 4), peer); });
    all = all && refused([&](auto& g) { g.send(dense_block(nullptr, 4), 0); });
    all = all && refused([&](auto& g) { g.send({&x, -1, 4, 1, 4, 4}, 0); });
    all = all && refused([&](auto& g) { g.recv(dense_block(&y, 4), 0); });  // a second receive, one reserved
    auto g = h.group();
    g.reserve(1, 1);
    g.send(dense_block(&x, 4), 1 - h.rank());
    g.recv(dense_block(&y, 4), 1 - h.rank());
    all = all && h.wait(g, on_host{}).code() == errc::invalid_argument;  // not launched
    check(h.launch(g, on_host{}));
    all = all && h.launch(g, on_host{}).code() == errc::invalid_argument;  // under way
    check(h.wait(g, on_host{}));
    check(h.wait(g, on_host{}));
    if (!all) throw std::runtime_error("not refused");
  });
}

TEST_CASE("when all ranks wait for each other every one is told who waits for whom") {
  for (const bool adversary : {false, true}) {
    std::array<std::atomic<errc>, 3> codes{};
    std::string report;
    options o{.ranks = 3};
    if (adversary) o.adversary = 3;
    seqpar::run_ranks(o, [&](handle h) {
      std::vector<char> x(512 * 1024);
      auto g = h.group();
      g.reserve(1, 2);
      g.label({"dK/dV", 2});
      if (h.rank() == 0) g.recv(dense_block(x.data(), 1024), 2);
      if (h.rank() == 1) g.send(dense_block(x.data(), 7), 0);
      if (h.rank() == 2) g.recv(dense_block(x.data(), 512 * 1024), 1);
      if (h.rank() == 2) g.recv(dense_block(x.data(), 16), 0);
      check(h.launch(g, on_host{}));
      codes[static_cast<std::size_t>(h.rank())] = h.wait(g, on_host{}).code();
      if (h.rank() == 0) report = h.report();
    });
    for (const auto& c : codes) CHECK(c.load() == errc::deadlock);
    CHECK(report ==
          "deadlock: rank 0 waits for 1 KiB from rank 2 (dK/dV, round 2); rank 1 waits for rank 0 to take 7 B (dK/dV, "
          "round 2); rank 2 waits for 512 KiB from rank 1 (dK/dV, round 2) and for 1 more");
  }
}

TEST_CASE("a rank that has returned cannot be waited for") {
  const thrown t = thrown_by({.ranks = 3}, [](handle h) {
    int x = 0;
    auto g = swap_group(h, &x, 0, 0, &x, 4, 1);
    if (h.rank() == 0) check(h.launch(g, on_host{}));
    if (h.rank() == 0) check(h.wait(g, on_host{}));
  });
  CHECK(t.code == errc::deadlock);
  CHECK(contains(t.text, "deadlock: rank 0 waits for 4 B from rank 1 (message, round 0); rank 1 has returned"));
}

TEST_CASE("a wait past its deadline names the peer, and the peers are told who gave up") {
  std::atomic<bool> right{false}, told{false};
  std::string report;
  seqpar::run_ranks(3, [&](handle h) {
    int x = 0;
    if (h.rank() == 0) {
      auto g = swap_group(h, &x, 0, 0, &x, 4, 2);
      check(h.launch(g, on_host{}));
      const status s = h.wait(g, on_host{}, 20ms);
      right = s.code() == errc::timed_out && s.rank() == 2;
      report = h.report();
    } else if (h.rank() == 1) {
      auto g = swap_group(h, &x, 0, 0, &x, 4, 0);
      check(h.launch(g, on_host{}));
      const status s = h.wait(g, on_host{});
      told = s.code() == errc::peer_failed && s.rank() == 0;
    } else {
      while (h.check().ok()) std::this_thread::sleep_for(1ms);
    }
  });
  CHECK(right);
  CHECK(told);
  CHECK(contains(report, "timed out: rank 0 waits for 4 B from rank 2 (message, round 0); rank 1 waits for"));
  CHECK(contains(report, "rank 2 is running"));
}

TEST_CASE("the world's deadline is that of every wait that names none") {
  const thrown t = thrown_by({.ranks = 2, .deadline = 20ms}, [](handle h) {
    if (h.rank() == 1)
      while (h.check().ok()) std::this_thread::sleep_for(1ms);
    else
      check(shift(h));
  });
  CHECK(t.code == errc::timed_out);
  CHECK(contains(t.text, "timed out: rank 0 waits for rank 1 "));
}

TEST_CASE("after abort every rank's waits fail until all have recovered, and then all is as new") {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    seqpar::run_ranks({.ranks = 4, .adversary = seed}, [&](handle h) {
      const auto expect = [](bool held, const char* what) {
        if (!held) throw std::runtime_error(what);
      };
      for (int round = 0; round < 5; ++round) {
        const int bad = round % 4;
        int out = 0, in = 0;
        auto left_over = swap_group(h, &out, 4, (h.rank() + 1) % 4, &in, 4, (h.rank() + 1) % 4);
        const status launched = h.launch(left_over, on_host{});
        if (h.rank() == bad) h.abort({errc::invalid_argument, "no more"});
        status s = shift(h);
        for (int i = 0; i < 2; ++i, s = shift(h)) expect(s.code() == errc::peer_failed && s.rank() == bad, "told");
        expect(h.check().rank() == bad, "check");
        expect(contains(h.report(), ("rank " + std::to_string(bad) + " gave up: no more").c_str()), "report");
        check(h.recover());
        expect(h.check().ok(), "recovered");
        if (launched.ok()) expect(h.wait(left_over, on_host{}).code() == errc::peer_failed, "taken back");
        const char* broken = seqpar::run_transport_laws(h, {.repetitions = 2});
        expect(broken == nullptr, broken ? broken : "");
        check(h.recover());  // as a barrier: nobody aborts while another is still in the laws
      }
    });
}

TEST_CASE("recover does not wait for a rank that has returned") {
  std::atomic<int> refused{0};
  seqpar::run_ranks(3, [&](handle h) {
    if (h.rank() == 1) return h.abort({errc::invalid_argument, "gone"});
    const status s = h.recover();
    refused += s.code() == errc::peer_failed;
  });
  CHECK(refused.load() == 2);
}

TEST_CASE("dropping a group that is under way takes its messages back and fails the world by name") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::atomic<int> told{0};
    seqpar::run_ranks({.ranks = 2, .adversary = seed}, [&](handle h) {
      {
        std::vector<char> out(1 << 16, 1), in(1 << 16);  // freed right after the group: ASan sees a late copy
        auto g = h.group();
        g.reserve(2, 1);
        g.send(dense_block(out.data(), 1 << 16), 1 - h.rank());
        if (h.rank() == 0) g.send(dense_block(out.data(), 8), 1);
        g.recv(dense_block(in.data(), 1 << 16), 1 - h.rank());
        const status s = h.launch(g, on_host{});
        if (h.rank() == 1 && s.ok()) {
          static_cast<void>(h.wait(g, on_host{}));
          int x = 0;
          auto more = swap_group(h, &x, 0, 0, &x, 4, 0);  // would take the dropped 8 bytes' place
          const status t = h.launch(more, on_host{});
          const status u = t.ok() ? h.wait(more, on_host{}) : t;
          told += u.code() == errc::peer_failed || u.code() == errc::size_mismatch;
        } else {
          told += h.rank() == 1;
        }
      }
      check(h.recover());
      check(shift(h));
    });
    CHECK(told.load() == 1);
  }
}

TEST_CASE("a group can be moved while it is under way") {
  seqpar::run_ranks(2, [](handle h) {
    int out = h.rank(), in = -1;
    auto g = swap_group(h, &out, 4, 1 - h.rank(), &in, 4, 1 - h.rank());
    check(h.launch(g, on_host{}));
    auto moved = std::move(g);
    auto other = h.group();
    other = std::move(moved);
    check(h.wait(other, on_host{}));
    if (in != 1 - h.rank()) throw std::runtime_error("wrong value");
  });
}

TEST_CASE("a world serves threads that are not its own") {
  seqpar::threads::world world{{.ranks = 3}};
  CHECK_THROWS_AS(world.rank(3), seqpar::error);
  std::array<std::atomic<bool>, 3> ok{};
  std::vector<std::thread> crew;
  for (int r = 0; r < 3; ++r)
    crew.emplace_back([&, h = world.rank(r)] { ok[static_cast<std::size_t>(h.rank())] = shift(h).ok(); });
  for (std::thread& t : crew) t.join();
  for (const auto& x : ok) CHECK(x);
  CHECK(world.report().empty());
  CHECK(world.failed_rank() == -1);
}

TEST_CASE("a world has at least one rank") {
  CHECK_THROWS_WITH_AS(seqpar::run_ranks(0, [](handle) {}), doctest::Contains("got 0"), seqpar::error);
  CHECK_THROWS_AS(seqpar::run_ranks(-3, [](handle) {}), seqpar::error);
}
