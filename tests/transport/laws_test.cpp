// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include <seqpar/transport/explain.hpp>
#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/self.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>

using seqpar::index_t;
using seqpar::on_host;
using seqpar::status;

static_assert(seqpar::explain_transport<seqpar::self>());
static_assert(seqpar::explain_transport<seqpar::recorder>());
static_assert(seqpar::explain_transport<seqpar::threads::transport>());
static_assert(seqpar::explain_transport<seqpar::traced<seqpar::threads::transport>>());
static_assert(seqpar::explain_transport<seqpar::traced<seqpar::recorder>>());

namespace {

/// The least that is a transport.
struct archetype {
  struct group_type {
    void reserve(index_t, index_t) {}
    void clear() {}
    void label(seqpar::message_label) {}
    void send(seqpar::block, int) {}
    void recv(seqpar::block, int) {}
  };
  static constexpr auto access = seqpar::transport_access::contiguous_only;
  int rank() const { return 0; }
  int size() const { return 1; }
  group_type group() const { return {}; }
  status launch(group_type&, on_host) const { return {}; }
  status wait(group_type&, on_host) const { return {}; }
  status wait(group_type&, on_host, std::chrono::nanoseconds) const { return {}; }
  status check() const { return {}; }
  void abort(status) const {}
};
static_assert(seqpar::explain_transport<archetype>());

struct no_deadline : archetype {
  status wait(group_type&, on_host) const { return {}; }
};
struct owner : archetype {
  owner(const owner&) = delete;
};
struct launch_returns_nothing : archetype {
  void launch(group_type&, on_host) const {}
};
struct other_group : archetype {
  struct group_type {};
};
static_assert(!seqpar::transport<no_deadline>);
static_assert(!seqpar::transport<owner>);
static_assert(!seqpar::transport<launch_returns_nothing>);
static_assert(!seqpar::transport<other_group>);

/// Breaks one law: swaps the first two messages of every group that it sends.
struct swapping {
  struct group_type {
    seqpar::threads::group inner;
    seqpar::block held{};
    int held_for = -1;
    void reserve(index_t s, index_t r) { inner.reserve(s, r); }
    void clear() { inner.clear(); }
    void label(seqpar::message_label l) { inner.label(l); }
    void send(seqpar::block b, int peer) {
      if (held_for == peer) {
        inner.send(b, peer);
        inner.send(held, peer);
        held_for = -1;
      } else {
        flush();
        held = b;
        held_for = peer;
      }
    }
    void recv(seqpar::block b, int peer) { inner.recv(b, peer); }
    void flush() {
      if (held_for >= 0) inner.send(held, held_for);
      held_for = -1;
    }
  };
  static constexpr auto access = seqpar::transport_access::peer_memory;
  seqpar::threads::transport t;
  int rank() const { return t.rank(); }
  int size() const { return t.size(); }
  group_type group() const { return {t.group()}; }
  status launch(group_type& g, on_host e) const {
    g.flush();
    return t.launch(g.inner, e);
  }
  status wait(group_type& g, on_host e) const { return t.wait(g.inner, e); }
  status wait(group_type& g, on_host e, std::chrono::nanoseconds d) const { return t.wait(g.inner, e, d); }
  status check() const { return t.check(); }
  void abort(status s) const { t.abort(s); }
};
static_assert(seqpar::explain_transport<swapping>());

void expect_all(const char* broken) {
  if (broken) throw seqpar::error(seqpar::errc::transport_failed, broken);
}

std::string law_broken_by(auto make, int ranks) {
  std::mutex m;
  std::string name;
  seqpar::run_ranks(ranks, [&](seqpar::threads::transport t) {
    const char* broken = seqpar::run_transport_laws(make(t), {.repetitions = 3});
    const std::lock_guard lock(m);
    if (broken) name = broken;
  });
  return name;
}

}  // namespace

TEST_CASE("the laws of a transport hold on self [J1]") {
  CHECK(seqpar::run_transport_laws(seqpar::self{}, {.repetitions = 1000}) == nullptr);
}

TEST_CASE("the laws of a transport hold on threads, for 1 to 8 ranks, 1000 times over [J1] [J2] [J4]") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const index_t repetitions = ranks <= 5 ? 1000 : 200;
    CHECK_NOTHROW(seqpar::run_ranks(
        ranks, [&](auto t) { expect_all(seqpar::run_transport_laws(t, {.repetitions = repetitions})); }));
  }
}

TEST_CASE("the laws of a transport hold on threads under the adversary [J1] [J2] [J4]") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      CHECK_NOTHROW(seqpar::run_ranks({.ranks = ranks, .adversary = seed},
                                      [](auto t) { expect_all(seqpar::run_transport_laws(t, {.repetitions = 15})); }));
    }
}

TEST_CASE("the laws of a transport hold on traced threads") {
  for (int ranks : {1, 2, 3, 8})
    CHECK_NOTHROW(seqpar::run_ranks(ranks, [](auto t) {
      seqpar::flight_record record(t.rank(), t.size(), 16);
      expect_all(seqpar::run_transport_laws(seqpar::traced{t, record}, {.repetitions = 20}));
    }));
}

TEST_CASE("a group that was not launched has no wait, and nothing has failed by that") {
  const auto check_on = [](auto t) {
    auto g = t.group();
    const char x = 1;
    g.reserve(1, 0);
    g.send(seqpar::dense_block(&x, 1), t.rank());
    for (const status s : {t.wait(g, on_host{}), t.wait(g, on_host{}, std::chrono::seconds(5))}) {
      CHECK(s.code() == seqpar::errc::invalid_argument);
      CHECK(std::string(s.text()).ends_with(": wait for a group that was not launched"));
    }
    CHECK(t.check().ok());
  };
  check_on(seqpar::self{});
  seqpar::threads::world world({.ranks = 1});
  check_on(world.rank(0));
}

TEST_CASE("the laws tell which one is broken") {
  CHECK(law_broken_by([](auto t) { return t; }, 3).empty());
  CHECK(law_broken_by([](auto t) { return swapping{t}; }, 3).starts_with("order per pair"));
}

TEST_CASE("a message may have 2^31 + 5 bytes") {
  constexpr index_t rows = 49, row = 43826197;  // the same row again and again, so that memory stays small
  static_assert(rows * row == (index_t{1} << 31) + 5);
  std::atomic<index_t> counted{0};
  CHECK_NOTHROW(seqpar::run_ranks(2, [&](auto engine) {
    seqpar::flight_record record(engine.rank(), 2, 4);
    const seqpar::traced t{engine, record};
    std::vector<unsigned char> bytes(static_cast<std::size_t>(row), engine.rank() == 0 ? 7 : 0);
    const seqpar::block b{bytes.data(), rows, 0, 1, row, row};
    auto g = t.group();
    g.reserve(1, 1);
    if (t.rank() == 0) g.send(b, 1);
    if (t.rank() == 1) g.recv(b, 0);
    check(t.launch(g, on_host{}));
    check(t.wait(g, on_host{}));
    if (bytes.front() != 7 || bytes.back() != 7) throw std::runtime_error("the row did not arrive");
    counted += record.bytes(seqpar::direction::send) + record.bytes(seqpar::direction::receive, 0);
  }));
  CHECK(counted == 2 * (rows * row));
}
