// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cases of public bug reports and exchanges of one's own.
#include <doctest/doctest.h>

#include <tests/exchange/harness.hpp>
#include <tests/support/recipe.hpp>

using namespace exchange_test;

namespace {

/// Rows of one float, one shard a rank; `out` is what each rank ends with.
template <class Plan>
std::vector<std::vector<float>> forward_all(int ranks, Plan&& plan_of, const std::vector<std::vector<float>>& in) {
  std::vector<std::vector<float>> out(in.size());
  run_ranks(ranks, [&](threads::transport world) {
    auto plan = plan_of(ring(world));
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float>& mine = out[static_cast<std::size_t>(world.rank())];
    mine.assign(static_cast<std::size_t>(plan.wanted_rows()), -1);
    check(plan.forward(in[static_cast<std::size_t>(world.rank())].data(), mine.data(), memory, on_host{}));
  });
  return out;
}

std::vector<float> naturals(index_t n) {
  std::vector<float> x;
  for (index_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i));
  return x;
}

using shards = std::vector<std::vector<float>>;

}  // namespace

TEST_CASE("gather(scatter(x)) has as many rows as x and is x, in every layout [B5]") {
  for (int ranks : {1, 2, 3, 4, 8}) {
    std::string wrong;
    run_ranks(ranks, [&](threads::transport world) {
      const mesh team = ring(world);
      for (index_t n = 0; n <= 33; ++n) {
        const layouts every(n, ranks);
        for (const any_layout& l : every.all()) {
          const int root = static_cast<int>(n) % ranks;
          const exchange_options options{.row_bytes = sizeof(float), .check = agreement::trusted};
          auto deal = plan_scatter(team, l, root, options);
          auto collect = plan_gather(team, l, options);
          const host_memory a(deal.memory()), b(collect.memory());
          deal.prepare(a, on_host{});
          collect.prepare(b, on_host{});
          const std::vector<float> x = naturals(n);
          std::vector<float> shard(static_cast<std::size_t>(l.count_of(world.rank())), -1),
              y(static_cast<std::size_t>(n), -1);
          check(deal.forward(world.rank() == root ? x.data() : nullptr, shard.data(), a, on_host{}));
          check(collect.forward(shard.data(), y.data(), b, on_host{}));
          if (collect.wanted_rows() != n || y != x)
            raise(error(errc::invalid_argument, l.name() + ", " + std::to_string(n) + " tokens"));
        }
      }
    });
  }
}

TEST_CASE("zigzag shards end to end are not the sequence, and gather puts them right [F4]") {
  const auto plan = [](const auto& team) {
    return plan_gather(team, zigzag{.tokens = 8, .ranks = 2}, {.row_bytes = 4});
  };
  const shards out = forward_all(2, plan, {{0, 1, 6, 7}, {2, 3, 4, 5}});
  CHECK(out == shards{naturals(8), naturals(8)});
  const auto straight = [](const auto& team) {
    return plan_gather(team, contiguous{.tokens = 8, .ranks = 2}, {.row_bytes = 4});
  };
  CHECK(forward_all(2, straight, {{0, 1, 6, 7}, {2, 3, 4, 5}})[0] == std::vector<float>{0, 1, 6, 7, 2, 3, 4, 5});
}

TEST_CASE("reshard there and back is the identity for every pair of layouts [F4]") {
  for (int ranks : {2, 3, 6})
    for (index_t n : {8, 13, 24}) {
      run_ranks(ranks, [&](threads::transport world) {
        const mesh team = ring(world);
        const layouts every(n, ranks);
        const exchange_options options{.row_bytes = sizeof(float), .check = agreement::trusted};
        for (const any_layout& a : every.all())
          for (const any_layout& b : every.all()) {
            auto there = plan_reshard(team, a, b, options), back = plan_reshard(team, b, a, options);
            const host_memory m1(there.memory()), m2(back.memory());
            there.prepare(m1, on_host{});
            back.prepare(m2, on_host{});
            std::vector<float> x, y(static_cast<std::size_t>(b.count_of(world.rank()))),
                z(static_cast<std::size_t>(a.count_of(world.rank())));
            for (index_t i = 0; i < a.count_of(world.rank()); ++i)
              x.push_back(test::recipe(1, a.global_of(world.rank(), i)));
            check(there.forward(x.data(), y.data(), m1, on_host{}));
            check(back.forward(y.data(), z.data(), m2, on_host{}));
            if (x != z) raise(error(errc::invalid_argument, a.name() + " to " + b.name() + " and back"));
          }
      });
    }
}

TEST_CASE("the gradient of a gather is the sum over ranks, or one rank's own, by a typed choice [H1]") {
  const auto gradient_with = [](gradient convention, auto dout_of) {
    std::vector<std::vector<float>> din(2, std::vector<float>(2, -1));
    run_ranks(2, [&](threads::transport world) {
      auto plan = plan_gather(ring(world), contiguous{.tokens = 4, .ranks = 2},
                              {.row_bytes = sizeof(float), .convention = convention});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const std::vector<float> dout(4, dout_of(world.rank()));
      check(plan.template adjoint<float>(dout.data(), din[static_cast<std::size_t>(world.rank())].data(), memory,
                                         on_host{}));
    });
    return din;
  };
  // loss Σ_r (r+1)·Σ y
  CHECK(gradient_with(gradient::sum, [](int r) { return static_cast<float>(r + 1); }) == shards{{3, 3}, {3, 3}});
  // one loss Σ y that every rank computes
  CHECK(gradient_with(gradient::replicated, [](int) { return 1.f; }) == shards{{1, 1}, {1, 1}});
}

TEST_CASE(
    "a replicated gradient costs no bytes for gather and broadcast, and goes home where a row has one wanter [H1]") {
  const layouts every(13, 4);
  run_ranks(4, [&](threads::transport engine) {
    flight_record record(engine.rank(), 4);
    const team_type team(traced_threads(engine, record), {.ring = 4, .all_to_all = 1});
    for (const any_layout& l : every.all()) {
      const exchange_options options{.row_bytes = 2, .convention = gradient::replicated, .check = agreement::trusted};
      for (const movement& m :
           {gather_of(l), broadcast_of(13, 2), scatter_of(l, 1), gather_to(l, 3), reshard_of(l, every.all()[3])}) {
        auto plan = m.plan(team, options);
        const host_memory memory(plan.memory());
        plan.prepare(memory, on_host{});
        const side own = m.owned(team.index()), want = m.wanted(team.index());
        std::vector<bfloat16> dout, din(own.rows.size());
        for (index_t row : want.rows) dout.push_back(bfloat16(static_cast<float>(row + 1)));
        const index_t before = record.bytes(direction::send);
        check(plan.adjoint<bfloat16>(dout.data(), din.data(), memory, on_host{}));
        const bool shared = m.name.starts_with("gather " + l.name()) || m.name == "broadcast";
        if (shared && record.bytes(direction::send) != before) raise(error(errc::invalid_argument, m.name + ": bytes"));
        for (std::size_t i = 0; i < din.size(); ++i)
          if (static_cast<float>(din[i]) != static_cast<float>(own.rows[i] + 1))
            raise(error(errc::invalid_argument, m.name + ": values"));
      }
    }
  });
}

TEST_CASE("sums of bfloat16 are made in fp32: many small parts beside a large one are not lost") {
  std::vector<float> got(1);
  run_ranks(8, [&](threads::transport world) {
    auto plan = plan_broadcast(ring(world), 1, 0, {.row_bytes = sizeof(bfloat16)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const bfloat16 dout(world.rank() == 0 ? 256.f : 0.75f);
    bfloat16 din;
    check(plan.adjoint<bfloat16>(&dout, &din, memory, on_host{}));
    if (world.rank() == 0) got[0] = static_cast<float>(din);
  });
  CHECK(got[0] == 262.f);  // 256 + 7·0.75 = 261.25; rounded after each addition it would stay 256
}

TEST_CASE("sums are added in ascending order of ranks, whoever owns the row") {
  // fp32 addition is not associative: 2^24 + 1 = 2^24
  const std::vector<float> parts{1.f, 0x1p24f, 1.f, 1.f, -0x1p24f};
  float sum = 0;
  for (float x : parts) sum += x;
  for (int root = 0; root < 5; ++root) {
    float got = -1;
    run_ranks(5, [&](threads::transport world) {
      auto plan = plan_broadcast(ring(world), 1, root, {.row_bytes = sizeof(float)});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const float dout = parts[static_cast<std::size_t>(world.rank())];
      float din = -1;
      check(plan.adjoint<float>(&dout, &din, memory, on_host{}));
      if (world.rank() == root) got = din;
    });
    CHECK(got == sum);
  }
}

TEST_CASE("sequence to heads and back with a batch, by column ranges [E1]") {
  run_ranks(2, [&](threads::transport world) {
    const mesh team = all_to_all(world);
    const int me = world.rank();
    auto plan = plan_exchange(
        team,
        [](int r) {
          return holding_of(contiguous{.tokens = 4, .ranks = 2}, r, {0, 4});
        },
        [](int r) {
          return all_rows(4, {2 * r, 2 * r + 2});
        },
        {.row_bytes = 4 * sizeof(float), .batch = 2, .columns = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> in, out(16), back(16, -1);
    for (int b = 0; b < 2; ++b)
      for (int s = 2 * me; s < 2 * me + 2; ++s)
        for (int h = 0; h < 4; ++h) in.push_back(static_cast<float>(100 * b + 10 * s + h));
    check(plan.forward(in.data(), out.data(), memory, on_host{}));
    const std::vector<float> want =
        me == 1 ? std::vector<float>{2, 3, 12, 13, 22, 23, 32, 33, 102, 103, 112, 113, 122, 123, 132, 133}
                : std::vector<float>{0, 1, 10, 11, 20, 21, 30, 31, 100, 101, 110, 111, 120, 121, 130, 131};
    if (out != want) raise(error(errc::invalid_argument, "heads"));
    check(plan.inverse(out.data(), back.data(), memory, on_host{}));
    if (back != in) raise(error(errc::invalid_argument, "back"));
  });
}

TEST_CASE(
    "strided rows, and rows inside a larger buffer, give what packed ones give, and nothing beside them is written "
    "[E2]") {
  for (index_t gap : {2, 8, 20}) {
    const layouts every(11, 3);
    sweep_options o;
    o.gap = gap;
    o.batch = 2;
    CHECK(broken<bfloat16>(3, all_movements(every, 3), o) == "");
  }
}

TEST_CASE("tensors with swapped axes and every second element travel as they lie [E2]") {
  // [tokens, heads, 2] of which element 0 counts; token-major on the owner, head-major on the wanter
  run_ranks(2, [&](threads::transport world) {
    const mesh team = ring(world);
    const int me = world.rank();
    const route way = route::between(
        me, 2,
        [](int r) {
          return holding_of(zigzag{.tokens = 6, .ranks = 2}, r, {0, 3});
        },
        [](int r) {
          return holding_of(striped{.tokens = 6, .ranks = 2}, r, {0, 3});
        });
    std::vector<float> in(3 * 3 * 2, -1), out(3 * 3 * 2, -1);
    const rows_view<float> from{in.data(), {1, 3, 3, 1}, {18, 6, 2, 1}}, to{out.data(), {1, 3, 3, 1}, {18, 2, 6, 1}};
    for (index_t t = 0; t < 3; ++t)
      for (index_t h = 0; h < 3; ++h)
        *from.row(0, t, h) = static_cast<float>(10 * zigzag{.tokens = 6, .ranks = 2}.global_of(me, t) + h);
    auto group = world.group();
    group.reserve(20, 20);
    post_copy(group, team, way, array_of(from), array_of(to));
    check(world.launch(group, on_host{}));
    copy_own(host_space{}, way, array_of(from), array_of(to));
    check(world.wait(group, on_host{}));
    for (index_t t = 0; t < 3; ++t)
      for (index_t h = 0; h < 3; ++h) {
        if (*to.row(0, t, h) != static_cast<float>(10 * (2 * t + me) + h))
          raise(error(errc::invalid_argument, "values"));
        if (to.row(0, t, h)[1] != -1) raise(error(errc::invalid_argument, "surroundings"));
      }
  });
}

TEST_CASE("rows may have any number of bytes") {
  for (index_t bytes : {1, 2, 3, 5, 7, 31, 129}) {
    run_ranks(3, [&](threads::transport world) {
      const zigzag a{.tokens = 17, .ranks = 3};
      const striped b{.tokens = 17, .ranks = 3};
      auto plan = plan_reshard(ring(world), a, b, {.row_bytes = bytes, .batch = 2});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const auto byte_of = [&](index_t item, index_t row, index_t i) {
        return static_cast<unsigned char>(item * 131 + row * 7 + i * 3 + 1);
      };
      const auto filled_as = [&](const auto& l) {
        std::vector<unsigned char> x;
        for (index_t item = 0; item < 2; ++item)
          for (index_t r = 0; r < l.count_of(world.rank()); ++r)
            for (index_t i = 0; i < bytes; ++i) x.push_back(byte_of(item, l.global_of(world.rank(), r), i));
        return x;
      };
      const std::vector<unsigned char> in = filled_as(a), want = filled_as(b);
      std::vector<unsigned char> out(want.size()), back(in.size());
      check(plan.forward(in.data(), out.data(), memory, on_host{}));
      check(plan.inverse(out.data(), back.data(), memory, on_host{}));
      if (out != want || back != in) raise(error(errc::invalid_argument, "bytes"));
    });
  }
}

TEST_CASE("exchanges of one's own: holes, halos, column ranges, owners that are no layout") {
  const index_t n = 20;
  std::vector<movement> list;
  const zigzag folded{.tokens = n, .ranks = 4};
  const contiguous straight{.tokens = n, .ranks = 4};
  // a halo of two rows on both sides of each rank's rows, beside its own
  list.push_back(own_exchange(
      "halo", [=](int r) { return holding_of(straight, r); },
      [=](int r) {
        const index_t lo = straight.global_of(r, 0), first = std::max<index_t>(0, lo - 2);
        holding h;
        h.append({first, std::min<index_t>(n, lo + 7) - first, 1}, 0);
        return h;
      }));
  // every second place of memory holds a row, last row first; only some rows are wanted
  list.push_back(own_exchange(
      "holes",
      [=](int r) {
        holding h;
        h.pieces.push_back({{5 * r, 5, 1}, 8, -2});
        return h;
      },
      [=](int r) {
        holding h;
        h.pieces.push_back({{(r + 1) % 4, 5, 4}, 1, 3});
        if (r == 2) h.append({0, 1, 1}, 0);
        return h;
      }));
  // owners that hold a part of the rows only, in three pieces; two ranks own nothing
  list.push_back(own_exchange(
      "partial owners",
      [=](int r) {
        holding h;
        if (r == 1) {
          h.append({0, 3, 1}, 0);
          h.append({9, 3, -1}, 5);
        }
        if (r == 3) h.append({5, 3, 5}, 1);
        return h;
      },
      [=](int r) {
        holding h;
        h.append({9, 1, 1}, 0);
        h.append({0, 3, 1}, 1 + r);
        return h;
      }));
  // the successor of each own token
  list.push_back(own_exchange(
      "successors", [=](int r) { return holding_of(folded, r); },
      [=](int r) {
        holding h;
        for (index_t i = 0; i < folded.count_of(r); ++i)
          if (folded.global_of(r, i) + 1 < n) h.append({folded.global_of(r, i) + 1, 1, 1}, i);
        return h;
      }));
  for (int turn = 0; turn < 2; ++turn) {
    sweep_options o;
    o.batch = 1 + turn;
    o.gap = 8 * turn;
    CHECK(broken<float>(4, list, o) == "");
    CHECK(broken<bfloat16>(4, list, o) == "");
    CHECK(broken<double>(4, list, o) == "");
  }
  // column ranges: tokens to heads, heads to tokens, shares of heads that straddle
  std::vector<movement> columns;
  const auto tokens_of = [=](int r) { return holding_of(folded, r, {0, 6}); };
  const auto heads_of = [=](int r) { return all_rows(n, {r * 6 / 4, (r + 1) * 6 / 4}); };
  columns.push_back(own_exchange("tokens to heads", tokens_of, heads_of));
  columns.push_back(own_exchange("heads to tokens", heads_of, tokens_of));
  columns.push_back(own_exchange("tokens to shared heads", tokens_of, [=](int r) { return all_rows(n, {r, r + 3}); }));
  columns.push_back(own_exchange("nothing for one rank", tokens_of, [=](int r) {
    return all_rows(r == 1 ? 0 : n, {r, r + 2});
  }));
  sweep_options o;
  o.columns = 6;
  o.batch = 2;
  CHECK(broken<float>(4, columns, o) == "");
  o.gap = 6;
  CHECK(broken<float16>(4, columns, o) == "");
}

TEST_CASE("results are the same bits in every run, whatever the adversary does") {
  std::vector<std::vector<float>> reference;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::vector<std::vector<float>> din(4, std::vector<float>(6 * 3));
    threads::options world{.ranks = 4};
    if (seed > 0) world.adversary = seed;
    run_ranks(world, [&](threads::transport t) {
      auto plan = plan_gather(ring(t), striped{.tokens = 23, .ranks = 4}, {.row_bytes = 3 * sizeof(float)});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const std::vector<float> dout = test::filled<float>(4, 23 * 3, t.rank() * 1000);
      for (int i = 0; i < 5; ++i)
        check(plan.adjoint<float>(dout.data(), din[static_cast<std::size_t>(t.rank())].data(), memory, on_host{}));
    });
    if (seed == 0) reference = din;
    CHECK(din == reference);
  }
  const layouts every(14, 4);
  sweep_options o;
  o.adversary = 99;
  CHECK(broken<float>(4,
                      {gather_of(every.all()[3]), reshard_of(every.all()[3], every.all().back()), broadcast_of(5, 2)},
                      o) == "");
}
