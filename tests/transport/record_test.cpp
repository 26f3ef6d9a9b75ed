// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/self.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>

using seqpar::dense_block;
using seqpar::direction;
using seqpar::errc;
using seqpar::index_t;
using seqpar::on_host;

TEST_CASE("a recorder writes down what any rank of any world would send and receive, and touches no memory") {
  std::vector<seqpar::recorded_message> log;
  const seqpar::recorder t{5, 64, log};
  auto g = t.group();
  g.reserve(2, 2);
  g.label({"K", 3});
  g.send(dense_block(nullptr, index_t{1} << 40), 6);
  g.recv({nullptr, 4, 100, 2, 50, 8}, 4);
  g.send(dense_block(nullptr, 100), 5);
  g.recv(dense_block(nullptr, 100), 5);
  REQUIRE(t.launch(g, on_host{}).ok());
  REQUIRE(t.wait(g, on_host{}).ok());
  REQUIRE(log.size() == 4);
  CHECK((log[0].from == 5 && log[0].to == 6 && log[0].bytes == index_t{1} << 40));
  CHECK((log[1].from == 4 && log[1].to == 5 && log[1].bytes == 64 && log[1].way == direction::receive));
  CHECK((log[0].label.stage == std::string("K") && log[0].label.round == 3));
  CHECK(bytes_of(log, direction::send) == index_t{1} << 40);
  CHECK(bytes_of(log, direction::receive) == 64);
  g.clear();
  g.send(dense_block(nullptr, 1), 64);
  CHECK(t.launch(g, on_host{}).code() == errc::invalid_argument);
  CHECK(log.size() == 4);
}

TEST_CASE("self copies the i-th sent block to the i-th received one and refuses what has no counterpart") {
  const seqpar::self t;
  int out[] = {1, 2}, in[] = {0, 0};
  auto g = t.group();
  g.reserve(2, 2);
  g.recv(dense_block(&in[0], 4), 0);
  g.send(dense_block(&out[0], 4), 0);
  g.send(dense_block(&out[1], 4), 0);
  CHECK(t.launch(g, on_host{}).code() == errc::deadlock);
  CHECK(in[0] == 0);
  g.recv(dense_block(&in[1], 3), 0);
  CHECK(t.launch(g, on_host{}).code() == errc::size_mismatch);
  CHECK(in[0] == 0);
  g.recv(dense_block(&in[1], 4), 0);
  CHECK(t.launch(g, on_host{}).code() == errc::invalid_argument);  // a third receive, two reserved
}

TEST_CASE("a flight record counts bytes to and from other ranks, per peer and in all") {
  seqpar::run_ranks(3, [](auto engine) {
    const int me = engine.rank(), right = (me + 1) % 3, left = (me + 2) % 3;
    seqpar::flight_record record(me, 3, 2);
    const seqpar::traced t{engine, record};
    std::vector<char> out(10), in(20);
    auto g = t.group();
    g.reserve(2, 2);
    for (int n = 0; n < 5; ++n) {
      g.clear();
      g.send(dense_block(out.data(), 10), right);
      g.send(dense_block(out.data(), 7), me);
      g.recv(dense_block(in.data(), 10), left);
      g.recv(dense_block(in.data() + 10, 7), me);
      check(t.launch(g, on_host{}));
      check(t.wait(g, on_host{}));
    }
    int remembered = 0;
    record.for_each([&](const seqpar::flight_event& e) {
      remembered += e.at == seqpar::flight_event::phase::completed && e.way == direction::receive;
    });
    const bool right_counts = record.bytes(direction::send) == 50 && record.messages(direction::send) == 5 &&
                              record.bytes(direction::receive) == 50 && record.bytes(direction::send, right) == 50 &&
                              record.bytes(direction::send, me) == 35 && record.bytes(direction::send, left) == 0;
    if (!right_counts || remembered != 2) throw std::runtime_error("wrong counts");
  });
}

TEST_CASE("a flight record tells what is waited for, and what came before from the same peer") {
  std::string report;
  CHECK_THROWS_WITH_AS(seqpar::run_ranks(2,
                                         [&](auto engine) {
                                           seqpar::flight_record record(engine.rank(), 2, 8);
                                           const seqpar::traced t{engine, record};
                                           std::vector<char> x(512 * 1024);
                                           auto g = t.group();
                                           g.reserve(1, 1);
                                           for (int round = 1; round <= 2; ++round) {
                                             g.clear();
                                             g.label({"dK/dV", round});
                                             if (t.rank() == 0) g.recv(dense_block(x.data(), 512 * 1024), 1);
                                             if (t.rank() == 1 && round == 1)
                                               g.send(dense_block(x.data(), 512 * 1024), 0);
                                             check(t.launch(g, on_host{}));
                                             if (t.rank() == 0 && round == 2) report = record.report();
                                             check(t.wait(g, on_host{}));
                                           }
                                         }),
                       doctest::Contains("deadlock: rank 0 waits for 512 KiB from rank 1"), seqpar::error);
  CHECK(report ==
        "rank 0 waits for 512 KiB from rank 1 (dK/dV, round 2), posted 0.0 s ago; before: 512 KiB (dK/dV, round 1), "
        "0.0 s ago\nrank 0 launched to others 0 messages, 0 B, from others 2 messages, 1 MiB\n");
}

TEST_CASE("bytes are told in the largest unit that they fill") {
  CHECK(seqpar::bytes_text(0) == "0 B");
  CHECK(seqpar::bytes_text(1023) == "1023 B");
  CHECK(seqpar::bytes_text(1536) == "1.5 KiB");
  CHECK(seqpar::bytes_text(index_t{3} << 20) == "3 MiB");
  CHECK(seqpar::bytes_text((index_t{1} << 31) + 5) == "2.0 GiB");
}
