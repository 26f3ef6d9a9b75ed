// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Halos along a sequence: every width, every border, every shard; strided windows; refusals.
#include <doctest/doctest.h>

#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <tests/exchange/windows.hpp>

using namespace window_test;

namespace window_test {
/// Twelve rows, the last first.
struct backwards {
  constexpr index_t from(index_t i) const { return 11 - i; }
  constexpr index_t to(index_t i) const { return 11 - i; }
  friend constexpr bool operator==(backwards, backwards) = default;
};
}  // namespace window_test

namespace {

using lists = std::vector<std::vector<float>>;

/// What every rank has of x = 1 … n.
template <class L>
lists halo_of_naturals(const L& layout, const sequence_halo& halo, placement where) {
  lists out(static_cast<std::size_t>(layout.rank_count()));
  run_ranks(layout.rank_count(), [&](threads::transport world) {
    auto plan = plan_halo(ring(world), layout, halo, {.row_bytes = sizeof(float), .placement = where});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float>& mine = out[static_cast<std::size_t>(world.rank())];
    mine.assign(static_cast<std::size_t>(plan.padded_bytes()) / sizeof(float), -1);
    std::vector<float> shard;
    for (index_t i = 0; i < layout.count_of(world.rank()); ++i)
      shard.push_back(static_cast<float>(1 + layout.global_of(world.rank(), i)));
    if (where == placement::apart) {
      check(plan.forward(shard.data(), mine.data(), memory, on_host{}));
      return;
    }
    std::size_t next = 0;
    for (const placed_window& w : plan.windows())
      for (index_t t = w.interior().t.lo; t < w.interior().t.hi; ++t)
        for (index_t i = 0; i < w.padded.w.size(); ++i)
          mine[static_cast<std::size_t>(w.first + t * w.padded.w.size() + i)] = shard[next++];
    check(plan.forward(mine.data(), mine.data(), memory, on_host{}));
  });
  return out;
}

/// Windows of the runs of a layout, place by place.
template <class L>
rows_of_ranks wanted_of(const L& layout, const sequence_halo& halo) {
  rows_of_ranks all;
  const index_t unit = halo.unit, units = layout.token_count() / unit;
  for (int r = 0; r < layout.rank_count(); ++r) {
    auto& list = all.emplace_back();
    const index_t n = layout.count_of(r);
    for (index_t begin = 0; begin < n;) {
      index_t end = begin + 1;
      while (end < n && layout.global_of(r, end) == layout.global_of(r, end - 1) + 1) ++end;
      const index_t lo = layout.global_of(r, begin) / unit, hi = layout.global_of(r, end - 1) / unit + 1;
      for (index_t u = lo - halo.before; u < hi + halo.after; ++u) {
        const index_t row = reference_row(u, units, halo.border);
        for (index_t i = 0; row > -2 && i < unit; ++i) list.push_back(row < 0 ? -1 : row * unit + i);
      }
      begin = end;
    }
  }
  return all;
}
template <class L>
rows_of_ranks owned_of(const L& layout) {
  rows_of_ranks all;
  for (int r = 0; r < layout.rank_count(); ++r) {
    auto& list = all.emplace_back();
    for (index_t i = 0; i < layout.count_of(r); ++i) list.push_back(layout.global_of(r, i));
  }
  return all;
}

template <class L>
std::string broken_halo(const L& layout, const sequence_halo& halo, const arrangement& a) {
  const auto plan = [&](const auto& team) { return plan_halo(team, layout, halo, a.options()); };
  const auto where = [&](const auto& p) {
    index_t rows = 0, own = 0;
    for (const placed_window& w : p.windows()) {
      rows += w.rows();
      own += w.own.rows();
    }
    const spots want = dense_spots(rows, a);
    if (a.where == placement::apart) return std::pair{dense_spots(own, a), want};
    spots inner{{}, want.batch_stride, want.column_stride, want.bytes};
    for (const placed_window& w : p.windows())
      for (index_t t = w.interior().t.lo; t < w.interior().t.hi; ++t)
        for (index_t i = 0; i < w.padded.w.size(); ++i)
          inner.at.push_back((w.first + t * w.padded.w.size() + i) * a.row_bytes());
    return std::pair{inner, want};
  };
  return broken(layout.rank_count(), a, owned_of(layout), wanted_of(layout, halo), plan, where);
}

}  // namespace

TEST_CASE("a halo wider than the neighbour's shard comes from further on [N1]") {
  const contiguous layout{.tokens = 6, .ranks = 4};
  for (placement where : {placement::apart, placement::in_place}) {
    CHECK(halo_of_naturals(layout, {.before = 3, .after = 3, .border = border::zero}, where) ==
          lists{{0, 0, 0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 0}, {2, 3, 4, 5, 6, 0, 0}, {3, 4, 5, 6, 0, 0, 0}});
    CHECK(halo_of_naturals(layout, {.before = 3, .after = 3}, where) ==
          lists{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}, {2, 3, 4, 5, 6}, {3, 4, 5, 6}});
    CHECK(halo_of_naturals(layout, {.before = 3, .after = 3, .border = border::edge}, where) ==
          lists{{1, 1, 1, 1, 2, 3, 4, 5}, {1, 1, 2, 3, 4, 5, 6, 6}, {2, 3, 4, 5, 6, 6, 6}, {3, 4, 5, 6, 6, 6, 6}});
  }
}

TEST_CASE("halos before and after may differ [N2]") {
  const contiguous layout{.tokens = 9, .ranks = 3};
  for (placement where : {placement::apart, placement::in_place}) {
    CHECK(halo_of_naturals(layout, {.before = 1, .after = 3, .border = border::zero}, where) ==
          lists{{0, 1, 2, 3, 4, 5, 6}, {3, 4, 5, 6, 7, 8, 9}, {6, 7, 8, 9, 0, 0, 0}});
    CHECK(halo_of_naturals(layout, {.before = 3, .border = border::zero}, where) ==
          lists{{0, 0, 0, 1, 2, 3}, {1, 2, 3, 4, 5, 6}, {4, 5, 6, 7, 8, 9}});
  }
}

TEST_CASE("every run of a layout is widened by itself; the runs of zigzag overlap and bring rows twice") {
  const zigzag layout{.tokens = 8, .ranks = 2};
  for (placement where : {placement::apart, placement::in_place}) {
    CHECK(halo_of_naturals(layout, {.before = 1, .after = 1, .border = border::zero}, where) ==
          lists{{0, 1, 2, 3, 6, 7, 8, 0}, {2, 3, 4, 5, 6, 7}});  // the runs of rank 1 touch and are one
    CHECK(halo_of_naturals(layout, {.before = 3, .after = 3}, where) ==
          lists{{1, 2, 3, 4, 5, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}});
  }
}

TEST_CASE("halos of any width around any shards hold the right rows, and the adjoint is the transpose") {
  std::minstd_rand draw(7);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int turn = 0; turn < 240; ++turn) {
    const int ranks = 1 + turn % 8;
    sequence_halo halo{.before = below(4) == 0 ? below(40) : below(4), .after = below(4) == 0 ? below(40) : below(4)};
    halo.border = static_cast<border>(turn % 3);
    halo.unit = 1 + below(3);
    const index_t tokens = halo.unit * below(30);
    const arrangement a{.batch = 1 + below(2),
                        .columns = 1 + below(2),
                        .dim = 1 + below(3),
                        .where = below(2) == 0 ? placement::apart : placement::in_place};
    const uneven rule = static_cast<uneven>(below(3));
    CAPTURE(turn);
    CHECK(broken_halo(contiguous{.tokens = tokens, .ranks = ranks, .granule = halo.unit, .rule = rule}, halo, a) == "");
    CHECK(broken_halo(zigzag{.tokens = tokens, .ranks = ranks, .granule = halo.unit, .rule = rule}, halo, a) == "");
    if (halo.unit > 1)
      CHECK(broken_halo(striped{.tokens = tokens, .ranks = ranks, .granule = 2 * halo.unit}, halo, a) == "");
  }
}

TEST_CASE("rows of any number of bytes arrive whole") {
  for (index_t row_bytes : {1, 3, 7, 13, 255}) {
    const contiguous layout{.tokens = 11, .ranks = 4};
    std::vector<int> wrong(4);
    run_ranks(4, [&](threads::transport world) {
      auto plan = plan_halo(ring(world), layout, {.before = 5, .after = 2, .border = border::edge},
                            {.row_bytes = row_bytes, .passes = forward_only});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const auto byte = [&](index_t row, index_t i) { return static_cast<unsigned char>(row * 37 + i * 5 + 1); };
      std::vector<unsigned char> in, out(static_cast<std::size_t>(plan.padded_bytes()));
      for (index_t i = 0; i < layout.count_of(world.rank()); ++i)
        for (index_t k = 0; k < row_bytes; ++k) in.push_back(byte(layout.global_of(world.rank(), i), k));
      check(plan.forward(in.data(), out.data(), memory, on_host{}));
      const interval t = plan.windows()[0].padded.t;
      for (index_t i = t.lo; i < t.hi; ++i)
        for (index_t k = 0; k < row_bytes; ++k)
          wrong[static_cast<std::size_t>(world.rank())] +=
              out[static_cast<std::size_t>((i - t.lo) * row_bytes + k)] != byte(std::clamp<index_t>(i, 0, 10), k);
    });
    CHECK(wrong == std::vector<int>(4, 0));
  }
}

TEST_CASE("in place, rows that a rank owns are not moved") {
  std::vector<index_t> moved(3);
  run_ranks(3, [&](threads::transport world) {
    const auto plan = plan_halo(ring(world), contiguous{.tokens = 12, .ranks = 3}, {.before = 2, .after = 1},
                                {.row_bytes = 4, .placement = placement::in_place});
    for (const stretch& s : plan.way().own().stretches)
      if (s.owner != s.wanter || s.owner_step != s.wanter_step) ++moved[static_cast<std::size_t>(world.rank())];
  });
  CHECK(moved == std::vector<index_t>(3, 0));
}

TEST_CASE("the inputs of a strided and dilated convolution are a window a rank") {
  std::minstd_rand draw(3);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int turn = 0; turn < 60; ++turn) {
    const int ranks = 1 + turn % 6;
    const index_t n = 5 + below(40), stride = 1 + below(3), dilation = 1 + below(3), taps = 1 + below(4),
                  pad = below(4), reach = dilation * (taps - 1) + 1;
    if (n + 2 * pad < reach) continue;
    const contiguous in{.tokens = n, .ranks = ranks};
    const contiguous out{.tokens = (n + 2 * pad - reach) / stride + 1, .ranks = ranks};
    // [snippet]
    const auto inputs_of = [&](int r) {
      const index_t first = r == 0 ? 0 : out.global_of(r, 0), count = out.count_of(r);
      return count == 0 ? interval{} : interval{first * stride - pad, (first + count - 1) * stride - pad + reach};
    };
    // [/snippet]
    rows_of_ranks wanted;
    for (int r = 0; r < ranks; ++r) {
      auto& list = wanted.emplace_back();
      for (index_t i = inputs_of(r).lo; i < inputs_of(r).hi; ++i) list.push_back(reference_row(i, n, border::zero));
    }
    const arrangement a{.dim = 2};
    CAPTURE(turn);
    CHECK(broken(
              ranks, a, owned_of(in), wanted,
              [&](const auto& team) { return plan_windows(team, in, inputs_of, border::zero, a.options()); },
              [&](const auto& p) {
                return std::pair{dense_spots(p.owned_bytes() / a.row_bytes(), a),
                                 dense_spots(p.padded_bytes() / a.row_bytes(), a)};
              }) == "");
    // and the convolution is that of one rank
    std::vector<double> whole, parts;
    const auto x = [](index_t i) { return value_of(0, i, 0); };
    const auto tap = [](index_t k) { return 1.0 / static_cast<double>(k + 2); };
    for (index_t o = 0; o < out.token_count(); ++o) {
      double sum = 0;
      for (index_t k = 0; k < taps; ++k) {
        const index_t i = o * stride - pad + k * dilation;
        if (0 <= i && i < n) sum += tap(k) * x(i);
      }
      whole.push_back(sum);
    }
    for (int r = 0; r < ranks; ++r) {
      const auto& rows = wanted[static_cast<std::size_t>(r)];
      for (index_t o = 0; o < out.count_of(r); ++o) {
        double sum = 0;
        for (index_t k = 0; k < taps; ++k)
          if (const index_t row = rows[static_cast<std::size_t>(o * stride + k * dilation)]; row >= 0)
            sum += tap(k) * x(row);
        parts.push_back(sum);
      }
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("a halo works on some ranks of a world, in the order given [O1]") {
  for (const std::vector<int>& ranks : {std::vector<int>{2, 3}, {3, 1}, {0, 3}}) {
    lists out(4);
    run_ranks(4, [&](threads::transport world) {
      if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return;
      const mesh team = ring(world, ranks);
      const contiguous layout{.tokens = 6, .ranks = 2};
      auto plan = plan_halo(team, layout, {.before = 1, .after = 1}, {.row_bytes = sizeof(float)});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      const auto first = static_cast<float>(3 * team.index());
      const std::vector<float> x{first, first + 1, first + 2};
      auto& mine = out[static_cast<std::size_t>(team.index())];
      mine.resize(4);
      check(plan.forward(x.data(), mine.data(), memory, on_host{}));
    });
    CHECK(out == lists{{0, 1, 2, 3}, {2, 3, 4, 5}, {}, {}});
  }
}

TEST_CASE("a halo that makes no sense is refused alike on every rank") {
  const contiguous layout{.tokens = 12, .ranks = 3};
  const auto says = [&](const std::string& part, auto&& plan) {
    const std::string text = refusal(3, plan);
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto halo = [&](auto l, sequence_halo h, exchange_options o = {.row_bytes = 4}) {
    return [=](const auto& team) { return try_plan_halo(team, l, h, o); };
  };
  says("no two units that follow one another", halo(striped{.tokens = 12, .ranks = 3}, {.before = 1}));
  says("no two units that follow one another",
       halo(striped{.tokens = 24, .ranks = 3, .granule = 2}, {.before = 1, .unit = 2}));
  says("no two units that follow one another", halo(reordered{backwards{}, layout}, {.before = 1}));
  says("units in parts", halo(layout, {.before = 1, .unit = 3}));
  says("units in parts", halo(striped{.tokens = 12, .ranks = 3}, {.before = 1, .unit = 2}));
  says("no whole number of units", halo(layout, {.before = 1, .unit = 5}));
  says("unit must be at least 1", halo(layout, {.before = 1, .unit = 0}));
  says("must not be negative", halo(layout, {.before = -1}));
  says("must not be negative", halo(layout, {.after = -1}));
  says("too wide", halo(layout, {.before = INT64_MAX}));
  says("the mesh has 3", halo(contiguous{.tokens = 12, .ranks = 4}, {.before = 1}));
  says("columns must divide row_bytes", halo(layout, {.before = 1}, {.row_bytes = 10, .columns = 4}));
  says("gradient::sum", halo(layout, {.before = 1}, {.row_bytes = 4, .convention = gradient::replicated}));
  says("does not hold the rows", [&](const auto& team) {
    const exchange_options here{.row_bytes = 4, .placement = placement::in_place};
    return try_plan_windows(
        team, layout,
        [](int) {
          return interval{0, 4};
        },
        border::clamp, here);
  });
}

TEST_CASE("ranks that ask for other halos are told so") {
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [](threads::transport world) {
                                   auto plan = plan_halo(ring(world), contiguous{.tokens = 8, .ranks = 2},
                                                         {.before = world.rank()}, {.row_bytes = 4});
                                   const host_memory memory(plan.memory());
                                   plan.prepare(memory, on_host{});
                                 }),
                       doctest::Contains("ranks disagree on the windows"), error);
}
