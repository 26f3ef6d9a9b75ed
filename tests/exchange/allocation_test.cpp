// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts what runs allocate, by replacing operator new for this whole program; and looks beyond the memory asked for.
#include <doctest/doctest.h>

#include <atomic>
#include <barrier>

#include <tests/exchange/harness.hpp>
#include <tests/support/allocations.hpp>

using namespace exchange_test;

TEST_CASE("forward, inverse and adjoint allocate nothing, in every verb and traced or not") {
  allocations = 0;
  std::barrier meet(4);
  run_ranks(4, [&](threads::transport engine) {
    flight_record record(engine.rank(), 4, 64);
    const team_type team(traced_threads(engine, record), {.ring = 4, .all_to_all = 1});
    const any_layout a(zigzag{.tokens = 37, .ranks = 4}), b(striped{.tokens = 37, .ranks = 4, .granule = 3});
    const std::pair<movement, bool> verbs[] = {{scatter_of(a, 1), true},
                                               {gather_of(b), false},
                                               {gather_to(a, 2), true},
                                               {reshard_of(a, b), true},
                                               {broadcast_of(9, 3), false}};
    for (const auto& [m, once] : verbs) {
      auto plan = m.plan(team, {.row_bytes = 6, .batch = 2});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      std::vector<bfloat16> in(300), out(300);
      meet.arrive_and_wait();
      if (engine.rank() == 0) counting = true;
      meet.arrive_and_wait();
      status s;
      for (int i = 0; i < 20 && s.ok(); ++i) {
        s = plan.forward(in.data(), out.data(), memory, on_host{});
        if (s.ok()) s = plan.adjoint<bfloat16>(out.data(), in.data(), memory, on_host{});
        if (s.ok() && once) s = plan.inverse(out.data(), in.data(), memory, on_host{});
      }
      meet.arrive_and_wait();
      if (engine.rank() == 0) counting = false;
      meet.arrive_and_wait();
      check(s);
    }
  });
  CHECK(allocations == 0);
  counting = true;
  ::operator delete(::operator new(1));
  counting = false;
  CHECK(allocations == 1);  // the count counts
}

TEST_CASE("a plan writes inside the memory that it asked for, and asks for none where it needs none") {
  run_ranks(3, [&](threads::transport t) {
    const mesh team = ring(t);
    const striped l{.tokens = 20, .ranks = 3};
    const auto forward = plan_gather(team, l, {.row_bytes = 6, .passes = forward_only});
    if (forward.memory() != memory_sizes{}) raise(error(errc::invalid_argument, "asks for memory"));
    auto plan = plan_gather(team, l, {.row_bytes = 6, .batch = 2});
    const auto bytes = static_cast<std::size_t>(plan.memory().scratch);
    std::vector<unsigned char> room(bytes + 256, 0xA5);
    const auto address = reinterpret_cast<std::uintptr_t>(room.data()) + 64;
    unsigned char* start = room.data() + 64 + (64 - address % 64) % 64;
    const memory given{.tables = {}, .scratch = {start, static_cast<index_t>(bytes)}, .exchange = {}, .saved = {}};
    plan.prepare(given, on_host{});
    std::vector<float16> in(300), out(300);
    check(plan.forward(in.data(), out.data(), given, on_host{}));
    check(plan.adjoint<float16>(out.data(), in.data(), given, on_host{}));
    for (const unsigned char* p = room.data(); p < room.data() + room.size(); ++p)
      if ((p < start || p >= start + bytes) && *p != 0xA5) raise(error(errc::invalid_argument, "wrote outside"));
  });
}
