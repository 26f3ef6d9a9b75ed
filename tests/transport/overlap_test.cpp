// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether a group's received blocks overlap its sent ones is answered exactly, and without comparing all with all.
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <vector>

#include <seqpar/transport/message.hpp>

using namespace seqpar;

TEST_CASE("a group is refused exactly when a received block shares a byte with a sent one") {
  std::minstd_rand draw(3);
  std::vector<std::byte> memory(400);
  int refused = 0, wrong = 0;
  for (int round = 0; round < 4000; ++round) {
    message_list<> list(2);
    list.reserve(8, 8);
    std::vector<block> blocks[2];
    const auto pick = [&](unsigned n) { return static_cast<index_t>(draw() % n); };
    for (index_t i = 0, n = 2 + pick(6); i < n; ++i) {
      block b{memory.data() + pick(280), pick(4), 4 + pick(20), 1 + pick(3), 2 + pick(3), 1 + pick(2)};
      if (pick(4) == 0) {  // backwards
        b.pointer = static_cast<std::byte*>(b.pointer) + 100;
        b.row_stride = -b.row_stride;
      }
      const bool sent = pick(2) == 0;
      blocks[sent ? 0 : 1].push_back(b);
      if (sent)
        list.send(b, 1);
      else
        list.recv(b, 1);
    }
    bool share = false;
    for (const block& r : blocks[1])
      for (const block& s : blocks[0]) share = share || overlap(r, s);
    refused += share ? 1 : 0;
    const status first = list.problem();
    wrong += first.ok() == share ? 1 : 0;
    if (share && first.code() != errc::overlapping_buffers) ++wrong;
    list.clear();
    if (!list.problem().ok()) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(refused > 500);
  CHECK(refused < 3500);
}

TEST_CASE("tens of thousands of messages are checked in a blink, sent from both sides of where they land") {
  constexpr index_t n = 20000, row = 64;
  std::vector<std::byte> memory(3 * n * row);
  message_list<> list(2);
  list.reserve(2 * n, n);
  for (index_t i = 0; i < n; ++i) {
    list.send(dense_block(memory.data() + (n - 1 - i) * row, row), 1);
    list.send(dense_block(memory.data() + (2 * n + i) * row, row), 1);
    list.recv(dense_block(memory.data() + (n + i) * row, row), 1);
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(list.problem().ok());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));  // all with all: some 10
}
