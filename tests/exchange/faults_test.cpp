// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bad input: refused with the same words on every rank while planning, told locally while running, and never a hang.
#include <doctest/doctest.h>

#include <barrier>

#include <tests/exchange/harness.hpp>

using namespace exchange_test;

namespace {

/// What each rank is told by f(team): the message of the error that it throws, or "" when it throws none.
template <class F>
std::vector<std::string> told(int ranks, F&& f) {
  std::vector<std::string> text(static_cast<std::size_t>(ranks));
  threads::options world{.ranks = ranks};
  world.deadline = std::chrono::seconds(20);
  run_ranks(world, [&](threads::transport t) {
    try {
      f(ring(t), t);
    } catch (const error& e) {
      text[static_cast<std::size_t>(t.rank())] = e.what();
    }
  });
  return text;
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}
/// The one text that all ranks were told.
std::string same(const std::vector<std::string>& text) {
  for (const std::string& t : text)
    if (t != text[0]) return "rank 0 was told: " + text[0] + "; another: " + t;
  return text[0];
}

}  // namespace

TEST_CASE("two owners of a row, and a row that nobody owns, are refused on every rank with the same words") {
  const exchange_options options{.row_bytes = 4};
  const auto plan = [&](auto holds, auto wants) {
    return same(told(3, [&](const auto& team, auto) { (void)plan_exchange(team, holds, wants, options); }));
  };
  const auto thirds = [](int r) { return holding_of(contiguous{.tokens = 9, .ranks = 3}, r); };
  CHECK(plan(thirds, thirds) == "");
  CHECK(plan(
            [](int r) {
              return holding_of(contiguous{.tokens = 9, .ranks = 3}, r, {0, 1}, 0, r == 2 ? -1 : 0);
            },
            thirds) ==
        "[seqpar] plan_exchange: row 5 has two owners (ranks 1 and 2); let every row be held by exactly one rank");
  CHECK(plan(thirds, [](int) { return all_rows(11); }) ==
        "[seqpar] plan_exchange: rank 0 wants 2 entries that no rank owns; let every wanted row have an owner");
}

TEST_CASE("what cannot be planned is said with the remedy, the same on every rank") {
  const auto plan = [](auto f) { return same(told(2, [&](const auto& team, auto) { (void)f(team); })); };
  const contiguous l{.tokens = 8, .ranks = 2};
  const auto reshard_with = [&](exchange_options o) {
    return plan([&](const auto& team) { return plan_reshard(team, l, l, o); });
  };
  CHECK(reshard_with({.row_bytes = 4}) == "");
  CHECK(reshard_with({.row_bytes = 0}) == "[seqpar] plan_reshard: row_bytes must be at least 1, got 0");
  CHECK(contains(reshard_with({.row_bytes = 4, .batch = -1}), "batch must not be negative"));
  CHECK(contains(reshard_with({.row_bytes = 4, .columns = 3}), "columns must divide row_bytes"));
  CHECK(contains(reshard_with({.row_bytes = 4, .columns = 0}), "columns must divide row_bytes"));
  const exchange_options o{.row_bytes = 4};
  CHECK(contains(plan([&](const auto& team) { return plan_reshard(team, l, contiguous{.tokens = 9, .ranks = 2}, o); }),
                 "8 and 9 tokens"));
  CHECK(contains(plan([&](const auto& team) { return plan_reshard(team, l, contiguous{.tokens = 8, .ranks = 4}, o); }),
                 "the second layout is dealt over 4 ranks, the mesh has 2"));
  CHECK(contains(plan([&](const auto& team) { return plan_gather(team, contiguous{.tokens = 8, .ranks = 3}, o); }),
                 "3 ranks"));
  CHECK(contains(plan([&](const auto& team) { return plan_gather(team, contiguous{.tokens = -1, .ranks = 2}, o); }),
                 "negative"));
  CHECK(
      contains(plan([&](const auto& team) { return plan_scatter(team, l, 2, o); }), "root 2 is not one of 2 members"));
  CHECK(
      contains(plan([&](const auto& team) { return plan_gather(team, l, -1, o); }), "root -1 is not one of 2 members"));
  CHECK(contains(plan([&](const auto& team) { return plan_broadcast(team, 3, 7, o); }), "root 7"));
  CHECK(contains(plan([&](const auto& team) { return plan_broadcast(team, -3, 0, o); }), "rows must not be negative"));

  const auto own = [&](holding bad, exchange_options with = {.row_bytes = 4}) {
    const auto on_one = [&](int r) { return r == 1 ? bad : holding{}; };
    return plan([&](const auto& team) { return plan_exchange(team, on_one, on_one, with); });
  };
  CHECK(own({{{{0, 4, 1}, 0}}}) == "");
  CHECK(contains(own({{{{0, -4, 1}, 0}}}), "rank 1 has or wants a run of rows with a negative count"));
  CHECK(contains(own({{{{0, 4, 0}, 0}}}), "step 0"));
  CHECK(contains(own({{{{0, 4, 1}, -1}}}), "negative place"));
  CHECK(contains(own({{{{0, 4, 1}, 2, -1}}}), "negative place"));
  CHECK(contains(own({{{{0, 4, 1}, 2, 0}}}), "place_step 0"));
  CHECK(contains(own({{{{0, 4, 1}, 0}, {{4, 4, 1}, 3}}}), "several rows at one place"));
  CHECK(contains(own({{{{0, 4, 1}, 0}}, {0, 2}}), "columns that a row does not have"));
  CHECK(own({{{{0, 4, 1}, 0}}, {0, 2}}, {.row_bytes = 4, .columns = 2}) == "");
  const auto two = [&](int r) { return holding_of(l, r); };
  CHECK(contains(plan([&](const auto& team) {
                   return plan_exchange(team, two, [](int r) { return all_rows(4 + 0 * r); },
                                        {.row_bytes = 4, .convention = gradient::replicated});
                 }),
                 "gradient::replicated"));
}

TEST_CASE("try_plan_… gives the same error as a value") {
  run_ranks(1, [](threads::transport t) {
    const auto plan = try_plan_gather(ring(t), contiguous{.tokens = 8, .ranks = 2}, {.row_bytes = 4});
    CHECK_FALSE(plan.ok());
    CHECK(plan.failure().code() == errc::invalid_argument);
    CHECK(try_plan_gather(ring(t), contiguous{.tokens = 8, .ranks = 1}, {.row_bytes = 4}).ok());
  });
}

TEST_CASE("ranks that give different inputs are all told so before data moves, and can go on [J6]") {
  const auto disagree = [](auto plan_of) {
    const auto text = told(4, [&](const auto& team, auto t) {
      auto plan = plan_of(team, t.rank());
      const host_memory memory(plan.memory());
      error said(errc::ok, "");
      bool refused = false;
      try {
        plan.prepare(memory, on_host{});
      } catch (const error& e) {
        said = e;
        refused = true;
      }
      // the transport is as it was
      auto next = plan_broadcast(team, 1, 3, {.row_bytes = 4});
      const host_memory more(next.memory());
      next.prepare(more, on_host{});
      const float in = 5;
      float out = 0;
      check(next.forward(&in, &out, more, on_host{}));
      if (out != 5) raise(error(errc::invalid_argument, "wrong value after a refusal"));
      if (refused && said.code() != errc::ranks_disagree) raise(error(errc::invalid_argument, "other code"));
      if (refused) raise(said);
    });
    return same(text);
  };
  const exchange_options o{.row_bytes = 4};
  CHECK(disagree([&](const auto& team, int) { return plan_gather(team, contiguous{.tokens = 16, .ranks = 4}, o); }) ==
        "");
  // rank 1 passes local length 5, the others 4
  const std::string length = disagree([&](const auto& team, int r) {
    return plan_gather(team, contiguous{.tokens = r == 1 ? 20 : 16, .ranks = 4}, o);
  });
  CHECK(contains(length, "ranks disagree on the layout"));
  CHECK(contains(length, "against rank 1"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   return plan_gather(team, contiguous{.tokens = 16, .ranks = 4}, {.row_bytes = r == 2 ? 2 : 4});
                 }),
                 "ranks disagree on row_bytes: expected 4 (ranks 0,1,3 of 4), got 2 (rank 2)"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   return plan_gather(team, contiguous{.tokens = 16, .ranks = 4}, {.row_bytes = 4, .batch = 1 + r / 3});
                 }),
                 "ranks disagree on batch"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   return plan_gather(team, contiguous{.tokens = 16, .ranks = 4},
                                      {.row_bytes = 4, .convention = r == 0 ? gradient::replicated : gradient::sum});
                 }),
                 "ranks disagree on the gradient convention"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   return plan_scatter(team, contiguous{.tokens = 16, .ranks = 4}, r == 3 ? 1 : 0, o);
                 }),
                 "ranks disagree on the root"));
  CHECK(contains(disagree([&](const auto& team, int r) { return plan_broadcast(team, r == 1 ? 5 : 4, 0, o); }),
                 "ranks disagree on the number of rows"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   const any_layout a(contiguous{.tokens = 16, .ranks = 4}), b(zigzag{.tokens = 16, .ranks = 4});
                   return plan_reshard(team, a, r == 2 ? a : b, o);
                 }),
                 "ranks disagree on the second layout"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   const any_layout a(contiguous{.tokens = 16, .ranks = 4});
                   return r == 2 ? plan_gather(team, a, o) : plan_reshard(team, a, a, o);
                 }),
                 "ranks disagree on the operation"));
  CHECK(contains(disagree([&](const auto& team, int r) {
                   const auto rows = [r](int who) { return holding{{{{4 * who, 4, 1}, r == 1 ? 1 : 0}}}; };
                   return plan_exchange(team, rows, rows, o);
                 }),
                 "ranks disagree on the holdings"));
}

TEST_CASE(
    "who disagrees is said by ranks of the transport, in ascending order, whatever list the mesh was built from") {
  const std::vector<std::string> text = told(4, [](const auto&, auto t) {
    if (t.rank() == 0) return;  // not a member
    auto plan =
        plan_gather(ring(t, {3, 1, 2}), contiguous{.tokens = 12, .ranks = 3}, {.row_bytes = t.rank() == 2 ? 2 : 4});
    plan.prepare(host_memory(plan.memory()), on_host{});
  });
  for (std::size_t r : {1u, 2u, 3u})
    CHECK(contains(text[r], "ranks disagree on row_bytes: expected 4 (ranks 1,3 of 3), got 2 (rank 2)"));
}

TEST_CASE("a fault of one rank at run time is its own status, peer_failed for the others, and forgotten by recover()") {
  enum class fault {
    not_prepared,
    null_in,
    null_out,
    small,
    misaligned,
    overlap,
    once,
    forward_only,
    odd_row,
    odd_pointer
  };
  for (fault f : {fault::not_prepared, fault::null_in, fault::null_out, fault::small, fault::misaligned, fault::overlap,
                  fault::once, fault::forward_only, fault::odd_row, fault::odd_pointer})
    for (int culprit : {0, 2}) {
      CAPTURE(static_cast<int>(f));
      CAPTURE(culprit);
      std::vector<errc> codes(3, errc::ok);
      std::string text;
      std::vector<float> after(3, 0);
      std::barrier prepared(3);  // else a peer may hear of the fault in its prepare
      threads::options world{.ranks = 3};
      world.deadline = std::chrono::seconds(20);
      run_ranks(world, [&](threads::transport t) {
        const mesh team = ring(t);
        const bool mine = t.rank() == culprit;
        const contiguous l{.tokens = 12, .ranks = 3};
        const bool odd = f == fault::odd_row;
        auto plan = plan_gather(
            team, l, {.row_bytes = odd ? 3 : 4, .passes = f == fault::forward_only ? forward_only : forward_backward});
        auto unprepared = plan_gather(team, l, {.row_bytes = 4});
        const host_memory memory(plan.memory()), enough(unprepared.memory());
        plan.prepare(memory, on_host{});
        std::vector<float> in(12, 1), out(13, 0);
        seqpar::memory given = memory;
        prepared.arrive_and_wait();
        if (mine && f == fault::small) given.scratch.bytes -= 1;
        if (mine && f == fault::misaligned) given.scratch.pointer = static_cast<char*>(given.scratch.pointer) + 4;
        status s;
        if (mine && f == fault::not_prepared)
          s = unprepared.forward(in.data(), out.data(), enough, on_host{});
        else if (f == fault::once && mine)
          s = plan.inverse(out.data(), in.data(), given, on_host{});
        else if (f == fault::odd_pointer)
          s = plan.adjoint<float>(out.data(), reinterpret_cast<char*>(in.data()) + (mine ? 1 : 0), given, on_host{});
        else if (f == fault::forward_only || f == fault::odd_row)
          s = mine ? plan.adjoint<float>(out.data(), in.data(), given, on_host{})
                   : plan.forward(in.data(), out.data(), given, on_host{});
        else
          s = plan.forward(mine && f == fault::null_in ? nullptr : in.data(),
                           mine && f == fault::null_out  ? nullptr
                           : mine && f == fault::overlap ? in.data() + 2
                                                         : out.data(),
                           given, on_host{});
        codes[static_cast<std::size_t>(t.rank())] = s.code();
        if (mine) text = s.message();
        check(t.recover());
        auto again = plan_gather(team, l, {.row_bytes = 4});
        const host_memory fresh(again.memory());
        again.prepare(fresh, on_host{});
        check(again.forward(in.data(), out.data(), fresh, on_host{}));
        float sum = 0;
        for (int i = 0; i < 12; ++i) sum += out[static_cast<std::size_t>(i)];
        after[static_cast<std::size_t>(t.rank())] = sum;
      });
      const errc expected[] = {errc::not_prepared,     errc::invalid_argument,  errc::invalid_argument,
                               errc::memory_too_small, errc::memory_misaligned, errc::overlapping_buffers,
                               errc::invalid_argument, errc::not_prepared,      errc::invalid_argument,
                               errc::invalid_argument};
      for (int r = 0; r < 3; ++r)
        CHECK(codes[static_cast<std::size_t>(r)] == (r == culprit ? expected[static_cast<int>(f)] : errc::peer_failed));
      CHECK(text.starts_with("[seqpar] "));
      if (f == fault::null_in) CHECK(contains(text, ": in (d_in) has rows and is null"));
      if (f == fault::null_out) CHECK(contains(text, ": out (d_out) has rows and is null"));
      CHECK(after == std::vector<float>(3, 12));
    }
}

TEST_CASE(
    "exchanging halves of one buffer in place, or a ring shift onto itself, is refused by the name of the overlap "
    "[E4]") {
  std::vector<std::string> text(2);
  std::barrier prepared(2);
  const auto halves = [&](const auto& team, auto t) {
    const auto holds = [](int r) { return holding_of(contiguous{.tokens = 8, .ranks = 2}, r); };
    const auto wants = [](int r) {
      holding h;
      h.append(r == 0 ? run{6, 2, 1} : run{0, 2, 1}, r == 0 ? 0 : 2);
      return h;
    };
    auto plan = plan_exchange(team, holds, wants, {.row_bytes = sizeof(float)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> x{1, 2, 3, 4};
    prepared.arrive_and_wait();
    const status s = plan.forward(x.data(), x.data(), memory, on_host{});
    text[static_cast<std::size_t>(t.rank())] = s.message();
    if (x != std::vector<float>{1, 2, 3, 4}) raise(error(errc::invalid_argument, "written"));
  };
  CHECK(same(told(2, halves)) == "");
  CHECK((contains(text[0], "overlap") || contains(text[1], "overlap")));
  for (const std::string& s : text) CHECK((contains(s, "overlap") || contains(s, "gave up")));
  const auto shift = [&](const auto& team, auto t) {
    const auto holds = [](int r) { return holding_of(contiguous{.tokens = 8, .ranks = 2}, r); };
    auto plan = plan_exchange(team, holds, [&](int r) { return holds(1 - r); }, {.row_bytes = sizeof(float)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> x{1, 2, 3, 4, 5, 6};
    prepared.arrive_and_wait();
    text[static_cast<std::size_t>(t.rank())] = plan.forward(x.data(), x.data() + 2, memory, on_host{}).message();
    check(t.recover());
    check(plan.forward(x.data(), std::vector<float>(4).data(), memory, on_host{}));
  };
  CHECK(same(told(2, shift)) == "");
  for (const std::string& s : text) CHECK((contains(s, "overlap") || contains(s, "gave up")));
}

TEST_CASE("in one buffer own rows may not change places, and what is wanted beside them arrives") {
  const exchange_options here{.row_bytes = sizeof(float), .placement = placement::in_place};
  const auto middle = [](int r) { return holding{{{{2 * r, 2, 1}, 1}}}; };
  const auto with_next = [](int r) {  // its two rows where they lie, and the first of the next rank behind them
    holding h{{{{2 * r, 2, 1}, 1}}};
    h.append({(2 * r + 2) % 6, 1, 1}, 3);
    return h;
  };
  const auto said = same(told(3, [&](const auto& team, auto) {
    (void)plan_exchange(
        team, middle,
        [&](int r) {
          return holding{{{{2 * r, 2, 1}, 0}}};
        },
        here);
  }));
  CHECK(contains(said, "rank 0 wants other rows or columns at places where it owns rows"));
  CHECK(contains(same(told(3,
                           [&](const auto& team, auto) {
                             (void)plan_reshard(team, contiguous{.tokens = 9, .ranks = 3},
                                                striped{.tokens = 9, .ranks = 3}, here);
                           })),
                 "rank 0 wants other rows"));
  const auto run = told(3, [&](const auto& team, auto t) {
    auto plan = plan_exchange(team, middle, with_next, here);
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const auto r = static_cast<float>(2 * t.rank());
    std::vector<float> x{-1, r, r + 1, -1};
    check(plan.forward(x.data(), x.data(), memory, on_host{}));
    if (x != std::vector<float>{-1, r, r + 1, t.rank() == 2 ? 0.f : r + 2})
      raise(error(errc::invalid_argument, "values"));
    std::vector<float> dx{-1, 1, 1, 1};
    check(plan.template adjoint<float>(dx.data(), dx.data(), memory, on_host{}));
    if (dx != std::vector<float>{-1, 2, 1, 1}) raise(error(errc::invalid_argument, "gradients"));
  });
  CHECK(same(run) == "");
}

TEST_CASE("too little memory for one rank in prepare does not leave the others waiting") {
  const auto text = told(3, [&](const auto& team, auto t) {
    auto plan = plan_gather(team, contiguous{.tokens = 12, .ranks = 3}, {.row_bytes = 4});
    const host_memory memory(plan.memory());
    plan.prepare(t.rank() == 1 ? seqpar::memory{} : seqpar::memory(memory), on_host{});
  });
  CHECK(contains(text[1], "smaller than the plan asked for"));
  CHECK(contains(text[0], "gave up (rank 1)"));
  CHECK(contains(text[2], "gave up (rank 1)"));
}

TEST_CASE("messages are called by the verb that planned them, and those of its other ways by what they are of it") {
  const contiguous rows{.tokens = 4, .ranks = 2};
  std::vector<std::string> names;
  run_ranks(2, [&](threads::transport t) {
    flight_record record{t.rank(), t.size(), 16};
    auto plan = plan_reshard(ring(traced{t, record}), rows, striped{.tokens = 4, .ranks = 2}, {.row_bytes = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    float in[2] = {}, out[2] = {};
    check(plan.forward(in, out, memory, on_host{}));
    check(plan.inverse(out, in, memory, on_host{}));
    check(plan.template adjoint<float>(out, in, memory, on_host{}));
    if (t.rank() == 1)
      record.for_each([&](const flight_event& e) {
        if (e.way == direction::send) names.push_back(label_text(e.label));
      });
  });
  const auto last = [&](std::size_t n) { return names.at(names.size() - n); };
  CHECK(last(3) == "reshard, round 0");
  CHECK(last(2) == "inverse of reshard, round 0");
  CHECK(last(1) == "adjoint of reshard, round 0");
}
