// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts what runs allocate and what stays allocated, by replacing operator new for this whole program.
#include <thread>

#include <seqpar/attention/decode.hpp>
#include <seqpar/layout/appended.hpp>
#include <tests/attention/rank.hpp>
#include <tests/support/allocations.hpp>

namespace seqpar::test {
namespace {

/// Allocations of all ranks in `runs` forward and backward passes after the first.
long allocations_in(const problem& p, int runs) {
  const int ranks = static_cast<int>(p.team.ring * p.team.all_to_all);
  std::atomic<int> at_start{0}, at_end{0};
  allocations = 0;
  run_ranks(ranks, [&](threads::transport world) {
    rank_run rank(world, p);
    rank.prepare();
    ++at_start;
    while (at_start < ranks) std::this_thread::yield();
    counting = true;
    status s;
    for (int i = 0; i < runs && s.ok(); ++i) {
      s = rank.forward();
      if (s.ok()) s = rank.backward();
    }
    ++at_end;
    while (at_end < ranks) std::this_thread::yield();
    counting = false;
    check(s);
  });
  return allocations;
}

}  // namespace

TEST_CASE("the first run and every later one allocate nothing, on every mesh, schedule and kind of mask [Q2]") {
  struct every_third {
    bool allows(index_t q, index_t k) const { return (q - k) % 3 == 0; }
  };
  const std::vector<any_mask> masks{see_past, any_mask(every_third{}, "every third")};
  for (const any_mask& mask : masks)
    for (const mesh_shape& team : every_mesh(4))
      for (const schedule s : every_schedule)
        for (const write how : {write::assign, write::add}) {
          attention_case c{.tokens = 37, .shape = {.batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 8}, .mask = mask};
          c.options.reuse = how == write::add ? reuse::saved : reuse::resend;
          c.options.gradients = how;
          const problem p = c.at(in_stripes, 4, team, s);
          CHECK_MESSAGE(allocations_in(p, 3) == 0, name_of(p));
        }
  counting = true;
  ::operator delete(::operator new(1));
  ::operator delete (::operator new (1, std::align_val_t{64}), std::align_val_t{64});
  counting = false;
  CHECK(allocations == 2);  // the count counts
}

TEST_CASE("a decode that grows its cache allocates nothing after prepare, for masks with intervals and without [Q2]") {
  struct every_third {
    bool allows(index_t q, index_t k) const { return (q - k) % 3 == 0; }
  };
  const auto allocations_of = [](const auto& mask, const mesh_shape& team) {
    const int ranks = static_cast<int>(team.ring * team.all_to_all);
    std::atomic<int> at_start{0}, at_end{0};
    allocations = 0;
    run_ranks(ranks, [&](threads::transport world) {
      appended cache{zigzag{.tokens = 5, .ranks = team.ring}, 0, 2};
      const index_t rows = cache.rows_for(5 + 20);
      auto plan = plan_decode<float>(mesh(world, team), mask,
                                     {.heads = 4, .kv_heads = 4, .head_dim = 8, .queries = 2, .cache_rows = rows});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const index_t here = plan.kv_heads_here().size();
      std::vector<float> k(static_cast<std::size_t>(rows * here * 8)), v = k, q(64), out(64), fresh(64);
      const auto cached = [&](std::vector<float>& x) { return dense_view(x.data(), {1, rows, here, 8}); };
      const rows_view<const float> given = dense_view<const float>(fresh.data(), {1, 2, 4, 8});
      ++at_start;
      while (at_start < ranks) std::this_thread::yield();
      counting = true;
      status s;
      for (int step = 0; step < 10 && s.ok(); ++step) {
        cache = cache.grown(2);
        s = plan.append(cache, {given, given, cached(k), cached(v)});
        if (s.ok()) s = plan.advance(cache, 2, memory);
        if (s.ok())
          s = plan.forward({.q = dense_view<const float>(q.data(), {1, 2, 4, 8}),
                            .k = cached(k),
                            .v = cached(v),
                            .out = dense_view(out.data(), {1, 2, 4, 8})},
                           memory, on_host{});
      }
      ++at_end;
      while (at_end < ranks) std::this_thread::yield();
      counting = false;
      check(s);
    });
    return allocations.load();
  };
  for (const mesh_shape& team : {mesh_shape{1, 1}, mesh_shape{3, 1}, mesh_shape{2, 2}, mesh_shape{1, 4}}) {
    CHECK(allocations_of(any_of{all_of{causal{}, window{.left = 6, .right = 0}}, first_keys{2}}, team) == 0);
    CHECK(allocations_of(every_third{}, team) == 0);
  }
}

TEST_CASE("2000 runs and 100 worlds with plans leave nothing behind [Q2]") {
  const attention_case c{.tokens = 16, .shape = {.heads = 2, .kv_heads = 1, .head_dim = 4}, .mask = see_past};
  const problem p = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
  CHECK(allocations_in(p, 2000) == 0);
  const auto world = [&] {
    run_ranks(4, [&](threads::transport t) {
      rank_run rank(t, p);
      rank.prepare();
      check(rank.forward());
    });
  };
  world();
  const long before = alive;
  for (int i = 0; i < 100; ++i) world();
  CHECK(alive == before);
}

}  // namespace seqpar::test
