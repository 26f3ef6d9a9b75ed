// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts what launch and wait allocate, by replacing operator new for this whole program; not under clang's TSan, whose
// runtime brings an operator new that cannot be replaced.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_CANNOT_REPLACE_NEW
#endif
#endif
#ifndef TEST_CANNOT_REPLACE_NEW
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/support/allocations.hpp>

using seqpar::dense_block;
using seqpar::on_host;
using seqpar::status;

TEST_CASE("clear, send, recv, launch and wait allocate nothing, traced or not") {
  allocations = 0;
  std::atomic<int> at_start{0}, at_end{0};
  seqpar::run_ranks(4, [&](auto engine) {
    std::array<std::int64_t, 4> out{}, in{};
    seqpar::flight_record record(engine.rank(), 4, 8);
    const seqpar::traced t{engine, record};
    auto plain = engine.group();
    auto noted = t.group();
    plain.reserve(4, 4);
    noted.reserve(4, 4);
    const auto all = [&](const auto& transport, auto& g) {
      g.clear();
      g.label({"all", 1});
      for (int r = 0; r < 4; ++r) g.send(dense_block(&out[static_cast<std::size_t>(r)], 8), r);
      for (int r = 0; r < 4; ++r) g.recv(dense_block(&in[static_cast<std::size_t>(r)], 8), r);
      const status s = transport.launch(g, on_host{});
      return s.ok() ? transport.wait(g, on_host{}, std::chrono::seconds(20)) : s;
    };
    check(all(engine, plain));
    ++at_start;
    while (at_start < 4) std::this_thread::yield();
    counting = true;
    status s;
    for (int i = 0; i < 100 && s.ok(); ++i) s = i % 2 == 0 ? all(engine, plain) : all(t, noted);
    ++at_end;
    while (at_end < 4) std::this_thread::yield();
    counting = false;
    check(s);
  });
  CHECK(allocations == 0);
  counting = true;
  ::operator delete(::operator new(1));
  counting = false;
  CHECK(allocations == 1);  // the count counts
}
#endif
