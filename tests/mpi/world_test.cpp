// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a world refuses, and how a failure reaches every rank while the job goes on.
#include <tests/mpi/engine.hpp>

#include <thread>

#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/full.hpp>
#include <tests/support/two_orders.hpp>

using mpi_test::here;
using seqpar::block;
using seqpar::dense_block;
using seqpar::errc;
using seqpar::index_t;
using seqpar::on_host;
using seqpar::status;
namespace mpi = seqpar::mpi;
using namespace std::chrono_literals;

namespace {

/// A world whose failures are statuses, and how long a wait in it took.
struct reporting {
  mpi::world world;
  mpi::transport t{world};
  mpi::group g = t.group();
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::int64_t data[64] = {};

  explicit reporting(std::chrono::milliseconds deadline = 20s)
      : world(MPI_COMM_WORLD, {.deadline = deadline, .then = mpi::after_failure::report}) {
    g.reserve(4, 4);
    g.label({"test", 3});
  }
  status run() { return t.launch(g, on_host{}).ok() ? t.wait(g, on_host{}) : t.launch(g, on_host{}); }
  bool within(std::chrono::milliseconds limit) const { return std::chrono::steady_clock::now() - start < limit; }
};
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a null communicator, one of two groups, and a thread that MPI does not serve are refused") {
  CHECK_THROWS_WITH_AS(mpi::world(MPI_COMM_NULL), doctest::Contains("is null on this rank"), seqpar::error);
  int level = 0;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    std::thread([] {
      CHECK_THROWS_WITH_AS(mpi::world(MPI_COMM_WORLD), doctest::Contains("MPI_THREAD_SERIALIZED"), seqpar::error);
    }).join();
  if (here().size() < 2) return;
  MPI_Comm half = MPI_COMM_NULL, both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, here().rank() % 2, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - here().rank() % 2, 0, &both);
  CHECK_THROWS_WITH_AS(mpi::world{both}, doctest::Contains("joins two groups"), seqpar::error);
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

TEST_CASE("misuse of a group is that rank's error, and nothing is posted") {
  const mpi::transport t = here();
  auto g = t.group();
  g.reserve(1, 1);
  std::int64_t x = 0, y = 0;
  g.send(dense_block(&x, 8), t.rank());
  g.recv(dense_block(&y, 8), t.rank());
  CHECK(contains(t.wait(g, on_host{}).text(), "was not launched"));
  check(t.launch(g, on_host{}));
  CHECK(contains(t.launch(g, on_host{}).text(), "under way"));
  check(t.wait(g, on_host{}));
  check(t.wait(g, on_host{}));
  mpi::world other(MPI_COMM_WORLD);
  CHECK(contains(mpi::transport(other).launch(g, on_host{}).text(), "another transport"));
  g.clear();
  g.send(dense_block(&x, 8), t.size());
  CHECK(t.launch(g, on_host{}).code() == errc::invalid_argument);
  check(t.check());
}

TEST_CASE("a rank that gives up is named to all who wait, who launch and who check [J5]") {
  reporting a;
  if (a.t.rank() == 0) {
    a.t.abort({errc::invalid_argument, "planted", -1, "a thing"});
  } else {
    a.g.recv(dense_block(a.data, 8), (a.t.rank() + 1) % a.t.size());
    const status s = a.run();
    CHECK(s.code() == errc::peer_failed);
    CHECK(s.rank() == 0);
  }
  CHECK(a.t.report() == "rank 0 gave up: planted: a thing");
  CHECK(a.t.launch(a.g, on_host{}).code() == errc::peer_failed);
  CHECK(a.t.check().rank() == 0);
  CHECK(a.within(5s));
}

TEST_CASE("a rank that does not come makes the others time out, and their report tells who waits for whom") {
  reporting a(500ms);
  if (a.t.size() < 2) return;
  if (a.t.rank() == 0) {
    std::this_thread::sleep_for(1200ms);
    CHECK(a.t.check().code() == errc::peer_failed);
    return;
  }
  a.g.send(dense_block(a.data + 1, 8), a.t.rank());
  a.g.recv(dense_block(a.data, 8), a.t.rank() - 1);
  if (a.t.rank() > 1) a.g.clear(), a.g.recv(dense_block(a.data, 8), a.t.rank() - 1);
  const status s = a.run();
  CHECK((s.code() == errc::timed_out ? s.rank() == a.t.rank() - 1 : s.code() == errc::peer_failed));
  CHECK(a.within(1500ms));
  CHECK(
      a.t.report().starts_with("timed out: rank 0 does not answer; rank 1 waits for 8 B from rank 0 (test, round 3)"));
  for (int r = 2; r < a.t.size(); ++r)
    CHECK(contains(a.t.report(), "; rank " + std::to_string(r) + " waits for 8 B from rank " + std::to_string(r - 1)));
}

TEST_CASE("a wait's own deadline comes before the world's, and zero is one") {
  reporting a;
  if (a.t.size() < 2) return;
  a.g.recv(dense_block(a.data, 8), (a.t.rank() + 1) % a.t.size());
  check(a.t.launch(a.g, on_host{}));
  const status s = a.t.wait(a.g, on_host{}, a.t.rank() == 0 ? 0ms : 20s);
  CHECK(s.code() == (a.t.rank() == 0 ? errc::timed_out : errc::peer_failed));
  CHECK(a.within(5s));
}

TEST_CASE("a message of other bytes than expected is an error that names its sender and both sizes [J6]") {
  const auto strided = [](void* p, index_t bytes) { return block{p, bytes / 4, 8, 2, 4, 2}; };
  const auto dense = [](void* p, index_t bytes) { return dense_block(p, bytes); };
  const auto mismatch = [&](index_t sent, index_t expected, bool strides) {
    reporting a;
    if (a.t.size() < 2) return;
    std::vector<char> data(1 << 22);
    const auto make = [&](index_t bytes) { return strides ? strided(data.data(), bytes) : dense(data.data(), bytes); };
    CAPTURE(sent);
    CAPTURE(expected);
    if (a.t.rank() == 0) {
      a.g.send(make(sent), 1);
      static_cast<void>(a.run());  // the sender may be told, or be through before
    } else {
      if (a.t.rank() == 1) a.g.recv(make(expected), 0);
      if (a.t.rank() > 1) a.g.recv(dense_block(a.data, 8), 0);
      const status s = a.run();
      if (a.t.rank() > 1) {
        CHECK(s.code() == errc::peer_failed);
        return;
      }
      CHECK(s.code() == errc::size_mismatch);
      CHECK(s.rank() == 0);
      const std::string size = sent < expected ? std::to_string(sent) + " B" : "more";
      CHECK(a.t.report() ==
            "rank 0 sends " + size + " to rank 1, which expects " + std::to_string(expected) + " B (test, round 3)");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  };
  if (here().size() == 2)
    for (const bool strides : {false, true})
      for (const index_t a : {0, 8, 40, 1 << 20})
        for (const index_t b : {0, 8, 40, 1 << 20})
          if (a != b) mismatch(a, b, strides);
  if (here().size() > 2) {
    reporting a;
    if (a.t.rank() == 0) a.g.send(dense_block(a.data, 16), 1);
    if (a.t.rank() == 1) a.g.recv(dense_block(a.data, 8), 0);
    if (a.t.rank() > 1) a.g.recv(dense_block(a.data, 8), 0);
    const status s = a.run();
    if (a.t.rank() == 1) CHECK(s.code() == errc::size_mismatch);
    if (a.t.rank() > 1) CHECK(s.code() == errc::peer_failed);
    while (a.t.check().ok() && a.within(5s)) std::this_thread::sleep_for(1ms);  // the sender is told, too
    CHECK(!a.t.check().ok());
  }
}

TEST_CASE("a world that a rank does not join in time is refused on all ranks, those who came and those who come late") {
  if (here().size() < 2) return;
  MPI_Comm apart = MPI_COMM_NULL;  // given up by some, so of no use after it
  MPI_Comm_dup(MPI_COMM_WORLD, &apart);
  if (here().rank() == 0) std::this_thread::sleep_for(1500ms);
  CHECK_THROWS_WITH_AS(mpi::world(apart, {.deadline = 200ms}),
                       doctest::Contains("not all ranks of the communicator came before the deadline"), seqpar::error);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("an error that all ranks throw alike leaves the world quietly, and the job goes on") {
  if (here().size() < 2) return;
  const auto disagree = [] {
    using namespace seqpar;
    mpi::world world(MPI_COMM_WORLD, {.deadline = 20s});
    auto plan = plan_attention<float>(ring(mpi::transport(world)), contiguous{.tokens = 8, .ranks = world.size()},
                                      full{}, {.heads = world.rank() == 1 ? 4 : 2, .kv_heads = 2, .head_dim = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
  };
  CHECK_THROWS_WITH_AS(disagree(), doctest::Contains("ranks disagree on heads"), seqpar::error);
}

TEST_CASE("a rank that leaves by an exception is named to all who wait") {
  if (here().size() < 2) return;
  const int me = here().rank();
  const auto leave = [] {
    const reporting a;
    throw std::runtime_error("planted");
  };
  if (me == 0) {
    CHECK_THROWS_AS(leave(), std::runtime_error);
    return;
  }
  reporting a;
  a.g.recv(dense_block(a.data, 8), me - 1);
  const status s = a.run();
  CHECK(s.code() == errc::peer_failed);
  CHECK(s.rank() == 0);
  CHECK(a.t.report() == "rank 0 left its world by an exception");
  CHECK(a.within(5s));
}

TEST_CASE("a group dropped under way fails the world, and all are told") {
  reporting a;
  if (a.t.size() < 2) return;
  a.g.recv(dense_block(a.data, 8), (a.t.rank() + 1) % a.t.size());
  check(a.t.launch(a.g, on_host{}));
  if (a.t.rank() == 1) {
    const mpi::group dropped = std::move(a.g);
  } else {
    const status s = a.t.wait(a.g, on_host{});
    CHECK(s.code() == errc::peer_failed);
    CHECK(s.rank() == 1);
  }
  CHECK(contains(a.t.report(), "rank 1 dropped a group under way: rank 1 waits for 8 B from rank "));
}

TEST_CASE("plans in another order on one rank are an error on all at once, with the labels of both messages") {
  if (here().size() < 2) return;
  for (const bool attention : {false, true})
    for (const bool swaps : {true, false}) {
      reporting a;
      const auto team = seqpar::ring(a.t);
      const bool mine = swaps && a.t.rank() == a.t.size() - 1;
      const status s =
          attention ? seqpar::test::attention_and_reshard(team, mine) : seqpar::test::two_reshards(team, mine);
      CAPTURE(a.t.report());
      CHECK(s.code() == (swaps ? errc::ranks_disagree : errc::ok));
      CHECK(a.within(5s));
      if (!swaps) continue;
      const std::string& report = a.t.report();
      for (const char* part : {"which has sent what belongs to another plan", "(reshard, round 0)",
                               "; run plans in the same order on all ranks", attention ? "(keys, round " : ""})
        CHECK(contains(report, part));
      MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST_CASE("plans in one order meet themselves: twice, on copies of a transport, in disjoint groups") {
  const mpi::transport t = here();
  const seqpar::test::checked_reshard a(seqpar::ring(t)), b(seqpar::ring(mpi::transport(t)));
  for (int i = 0; i < 3; ++i) {
    check(a.run(10));
    check(a.run(20));
    check(b.run(30));
  }
  const int half = (t.size() + 1) / 2;
  std::vector<int> mine;
  for (int r = 0; r < t.size(); ++r)
    if (r / half == t.rank() / half) mine.push_back(r);
  const seqpar::test::checked_reshard part(seqpar::ring(t, mine));
  for (int i = 0; i <= t.rank() / half; ++i) check(part.run(40));
  check(a.run(50));
}

TEST_CASE("a rank that fails before the others prepare is told by their prepare in its own words") {
  reporting a;
  if (a.t.size() < 2) return;
  if (a.t.rank() == 0) {
    a.t.abort({errc::invalid_argument, "planted", -1, "a thing"});
  } else {
    CHECK_THROWS_WITH_AS(seqpar::test::checked_reshard(seqpar::ring(a.t)),
                         doctest::Contains("report() tells how (rank 0): rank 0 gave up: planted: a thing"),
                         seqpar::error);
  }
}

TEST_CASE("a run in a thread that MPI does not serve is refused") {
  int level = 0;
  MPI_Query_thread(&level);
  const mpi::transport t = here();
  auto g = t.group();
  g.reserve(1, 1);
  std::thread([&] {
    if (level < MPI_THREAD_SERIALIZED) CHECK(contains(t.launch(g, on_host{}).text(), "MPI_THREAD_SERIALIZED"));
  }).join();
  check(t.launch(g, on_host{}));
  check(t.wait(g, on_host{}));
}

TEST_CASE("ranks that plan differently over MPI are told alike, and the world goes on [J6]") {
  const mpi::transport t = here();
  const int size = t.size();
  if (size < 2) return;
  for (const bool agree : {false, true}) {
    const index_t heads = 4 + (t.rank() == 1 && !agree ? 4 : 0);
    auto plan = seqpar::plan_attention<float>(seqpar::ring(t), seqpar::contiguous{.tokens = 16, .ranks = size},
                                              seqpar::full{}, {.heads = heads, .kv_heads = 2, .head_dim = 8});
    const seqpar::host_memory memory(plan.memory());
    const seqpar::failure f = plan.try_prepare(memory, on_host{});
    REQUIRE(f.has_value() == !agree);
    if (agree) continue;
    CHECK(f->code() == errc::ranks_disagree);
    CHECK(contains(f->what(), "ranks disagree on heads"));
    char first[512] = {};
    std::string(f->what()).copy(first, sizeof first - 1);
    MPI_Bcast(first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(std::string(first) == f->what());
  }
  check(t.check());
}
