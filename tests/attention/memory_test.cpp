// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory is exact: a byte less is refused, and what is asked for is used.
#include <barrier>

#include <tests/attention/draw.hpp>
#include <tests/attention/rank.hpp>
#include <tests/support/sanitized.hpp>

namespace seqpar::test {

extern template outcome<float> run_problem<float, host_reference<>>(const problem&, const tensors&, host_reference<>);

namespace {

constexpr region seqpar::memory::*kinds[] = {&seqpar::memory::tables, &seqpar::memory::scratch,
                                             &seqpar::memory::exchange, &seqpar::memory::saved};

problem plain(mesh_shape team, index_t tokens, reuse again = reuse::resend, schedule s = schedule::direct) {
  const int ranks = static_cast<int>(team.ring * team.all_to_all);
  return {in_zigzag(tokens, ranks),
          in_zigzag(tokens, ranks),
          any_mask(full{}, "full"),
          {.heads = 8, .kv_heads = 8, .head_dim = 16},
          team,
          {.passes = forward_backward, .schedule = s, .window = window_of(team.ring), .reuse = again}};
}

/// The error that f throws, or ok.
template <class F>
errc error_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

}  // namespace

TEST_CASE("one byte less of any kind of memory is refused by prepare and by both passes, before anything is posted") {
  const problem p = plain({2, 2}, 24, reuse::saved);
  const tensors in = recipe_tensors(p);
  std::atomic<int> wrong{0}, kinds_tried{0};
  std::barrier prepared(4);  // a run's error reaches peers that are still in prepare, too
  outcome<float> all = empty_outcome(p);
  run_ranks(4, [&](threads::transport world) {
    rank_run r(world, p);
    r.load(p, in);
    const auto spoilt = [&](region seqpar::memory::*kind, auto&& attempt) {
      const seqpar::memory good = r.given;
      --(r.given.*kind).bytes;
      const index_t messages = r.record.messages(direction::send) + r.record.messages(direction::receive);
      wrong += attempt() != errc::memory_too_small;
      wrong += messages != r.record.messages(direction::send) + r.record.messages(direction::receive);
      r.given = good;
    };
    for (const auto kind : kinds) {
      if ((r.given.*kind).bytes == 0) continue;
      ++kinds_tried;
      spoilt(kind, [&] { return error_of([&] { r.prepare(); }); });
      check(world.recover());
    }
    r.prepare();
    prepared.arrive_and_wait();
    for (const auto kind : kinds) {
      spoilt(kind, [&] { return r.forward().code(); });
      check(world.recover());
      spoilt(kind, [&] { return r.backward().code(); });
      check(world.recover());
    }
    check(r.forward());
    check(r.backward());
    r.store(p, all);
  });
  CHECK(kinds_tried == 4 * 4);
  CHECK(wrong == 0);
  const dense_result want = definition<float>(p, in);
  CHECK(compare(all.out, want.out, want.out_magnitude).good());
  CHECK(compare(all.dv, want.dv, want.dv_magnitude).good());
}

TEST_CASE("memory of one rank that is too small is that rank's error; its peers learn that it failed") {
  const problem p = plain({2, 2}, 24);
  std::atomic<int> wrong{0};
  std::barrier prepared(4);
  run_ranks(4, [&](threads::transport world) {
    rank_run r(world, p);
    r.load(p, recipe_tensors(p));
    r.prepare();
    prepared.arrive_and_wait();
    if (world.rank() == 2) --r.given.exchange.bytes;
    const status s = r.forward();
    wrong += world.rank() == 2 ? s.code() != errc::memory_too_small : s.code() != errc::peer_failed || s.rank() != 2;
    check(world.recover());
  });
  CHECK(wrong == 0);
}

TEST_CASE("kinds of memory that a plan does not need have zero bytes and may be null") {
  const auto sizes_of = [](const problem& p) { return run_problem<float>(p, recipe_tensors(p)).memory; };
  for (const memory_sizes& n : sizes_of(plain({1, 1}, 12))) {  // nobody to exchange with
    CHECK(n.exchange == 0);
    CHECK(n.saved == 0);
    CHECK(n.scratch > 0);
  }
  for (const memory_sizes& n : sizes_of(plain({3, 1}, 12))) CHECK(n.saved == 0);
  for (const memory_sizes& n : sizes_of(plain({1, 3}, 12, reuse::saved))) CHECK(n.saved > 0);
  problem nothing = plain({2, 2}, 0);  // run_problem gives null for zero bytes
  CHECK(fault_of(nothing, run_problem<float>(nothing, recipe_tensors(nothing)),
                 definition<float>(nothing, recipe_tensors(nothing))) == "");
  nothing.shape.batch = 0;
  CHECK_NOTHROW(run_problem<float>(nothing, recipe_tensors(nothing)));
}

TEST_CASE("exchange memory is equal on all ranks, whatever is dealt to them") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    problem_drawer drawer(seed);
    const problem p = drawer.draw().p;
    const int ranks = static_cast<int>(p.team.ring * p.team.all_to_all);
    std::optional<index_t> bytes;
    for (int r = 0; r < ranks; ++r) {
      std::vector<recorded_message> log;
      const auto plan = plan_attention<float>(mesh<recorder>(recorder(r, ranks, log), p.team), p.q_layout, p.kv_layout,
                                              p.mask, p.shape, p.options);
      CHECK_MESSAGE(plan.memory().exchange == bytes.value_or(plan.memory().exchange), "problem " << seed);
      bytes = plan.memory().exchange;
    }
  }
}

TEST_CASE("when all ranks hold alike, every cache line of every kind of memory that is asked for is written") {
  for (const mesh_shape& team : {mesh_shape{1, 1}, mesh_shape{2, 1}, mesh_shape{4, 1}, mesh_shape{1, 4},
                                 mesh_shape{4, 2}, mesh_shape{2, 4, axis::ring}})
    for (const reuse again : {reuse::resend, reuse::saved})
      for (const schedule s : every_schedule)
        for (const write how : {write::assign, write::add})
          for (const index_t joint : {0, 16}) {
            problem p = plain(team, under_tsan ? 32 : 128, again, s);
            p.options.gradients = how;
            p.shape.joint_q = p.shape.joint_kv = joint;
            for (const side moving : {side::keys, side::queries}) {
              if (moving == side::queries && !seqpar::detail::queries_may_travel(p.options, p.shape)) continue;
              p.options.moves = {moving, moving};
              const outcome<float> got = run_problem<float>(p, recipe_tensors(p), host_reference<>{});
              for (const memory_sizes& lines : got.unused)
                CHECK_MESSAGE(lines == memory_sizes{}, name_of(p) << ", joint " << joint << ": " << lines.tables << " "
                                                                  << lines.scratch << " " << lines.exchange << " "
                                                                  << lines.saved << " lines unused");
            }
          }
}

TEST_CASE("scratch and tables follow what a rank holds itself, so that no line of them is unused under uneven shards") {
  for (const mesh_shape& team : {mesh_shape{3, 1}, mesh_shape{1, 3}, mesh_shape{2, 3}, mesh_shape{3, 2, axis::ring}})
    for (const index_t tokens : {37, 130}) {
      problem p = plain(team, tokens, reuse::saved);
      p.shape.kv_heads = 4;
      p.shape.joint_q = 7;
      p.shape.joint_kv = 5;
      const outcome<float> got = run_problem<float>(p, recipe_tensors(p), host_reference<>{});
      for (const memory_sizes& lines : got.unused) {
        CHECK_MESSAGE(lines.scratch == 0, name_of(p));
        CHECK_MESSAGE(lines.tables == 0, name_of(p));
      }
    }
}

}  // namespace seqpar::test
