// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cache resharded between tokens and heads, and to another number of ranks: every entry arrives once, and comes back.
#include <array>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <seqpar/exchange/cache.hpp>
#include <seqpar/layout/appended.hpp>
#include <tests/exchange/ranks.hpp>

namespace exchange_test {
namespace {

constexpr index_t dim = 3, nothing = -7;

/// A member's shard of `rows` rows (room for more than it has): element(batch, token, head, d) as the definition says;
/// `nothing` where it has none.
template <class Shards, class Element>
std::vector<double> shard_of(const Shards& shards, int member, index_t kv_heads, index_t batch, index_t rows,
                             Element&& element) {
  const holding h = shards.of(member, kv_heads);
  const index_t heads = h.columns.size();
  std::vector<double> x(static_cast<std::size_t>(batch * rows * heads * dim), nothing);
  for (index_t b = 0; b < batch; ++b)
    for (const row_piece& p : h.pieces)
      for (index_t i = 0; i < p.rows.count; ++i)
        for (index_t c = 0; c < heads; ++c)
          for (index_t d = 0; d < dim; ++d)
            x[static_cast<std::size_t>(((b * rows + p.place + i) * heads + c) * dim + d)] =
                element(b, p.rows.at(i), h.columns.lo + c, d);
  return x;
}

/// Entries that both hold.
index_t common(const holding& a, const holding& b) {
  index_t rows = 0;
  for (const row_piece& p : a.pieces)
    for (const row_piece& q : b.pieces)
      for (index_t i = 0; i < p.rows.count; ++i)
        for (index_t j = 0; j < q.rows.count; ++j) rows += p.rows.at(i) == q.rows.at(j);
  return rows * intersection(a.columns, b.columns).size();
}

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != nothing) sum += x[i] * y[i];
  return sum;
}

/// Values, the way back, bytes of each rank and the adjoint; "" or what is wrong.
template <class From, class To>
std::string fault_of(int ranks, const From& from, const To& to, index_t kv_heads) {
  const index_t batch = 2, from_rows = 40, to_rows = 50, entry_bytes = batch * dim * 8;
  const auto value = [](index_t b, index_t t, index_t h, index_t d) { return noise(t, h * dim + d, b); };
  const auto gradient = [](index_t b, index_t t, index_t h, index_t d) { return noise(t, h * dim + d, b + 9); };
  std::vector<std::array<double, 2>> products(static_cast<std::size_t>(ranks));
  const auto body = [&](const team_type& team, flight_record& record) {
    const int me = team.index();
    auto move =
        plan_cache_reshard(team, from, to, {.row_bytes = kv_heads * dim * 8, .batch = batch, .columns = kv_heads});
    const host_memory memory = prepared(move);
    const auto shard = [&](const auto& of, index_t rows, auto& element) {
      return shard_of(of, me, kv_heads, batch, rows, element);
    };
    const auto buffer = [&](std::vector<double>& x, const auto& of, index_t rows) {
      const index_t row = of.of(me, kv_heads).columns.size() * dim * 8;
      return row_buffer(x.data(), row, rows * row);
    };
    const holding own = from.of(me, kv_heads), want = to.of(me, kv_heads);
    index_t sent = 0;
    for (int r = 0; r < ranks; ++r)
      if (r != me) sent += common(own, to.of(r, kv_heads)) * entry_bytes;
    const index_t received = (want.entries() - common(own, want)) * entry_bytes;
    const auto moves = [&](index_t out, index_t in, auto&& f) {
      const index_t before = record.bytes(direction::receive);
      require(bytes_sent_by(record, f) == out && record.bytes(direction::receive) - before == in,
              "other bytes travelled than were wanted");
    };

    std::vector<double> x = shard(from, from_rows, value), y = shard(to, to_rows, value);
    std::vector<double> out(y.size(), nothing), back(x.size(), nothing), dx = back, dy = shard(to, to_rows, gradient);
    require(move.bytes_sent() == sent && move.bytes_received() == received, "other bytes are promised");
    moves(sent, received,
          [&] { return move.forward(buffer(x, from, from_rows), buffer(out, to, to_rows), memory, on_host{}); });
    require(out == y, "something else arrived");
    moves(received, sent,
          [&] { return move.inverse(buffer(out, to, to_rows), buffer(back, from, from_rows), memory, on_host{}); });
    require(back == x, "something else came back");
    moves(received, sent, [&] {
      return move.template adjoint<double>(buffer(dy, to, to_rows), buffer(dx, from, from_rows), memory, on_host{});
    });
    require(dx == shard(from, from_rows, gradient), "another gradient came back");
    products[static_cast<std::size_t>(me)] = {dot(out, dy), dot(x, dx)};
  };
  try {
    on_ranks(ranks, body);
  } catch (const error& e) {
    return e.what();
  }
  double ax_y = 0, x_aty = 0;
  for (const auto& [left, right] : products) {
    ax_y += left;
    x_aty += right;
  }
  return std::abs(ax_y - x_aty) <= 1e-12 ? "" : "the adjoint is not the transpose";
}

template <class From, class To>
std::string refused(const From& from, const To& to) {
  std::vector<recorded_message> log;
  const auto plan = try_plan_cache_reshard(ring(recorder(0, 4, log)), from, to, {.row_bytes = 48, .columns = 4});
  return plan.ok() ? "planned" : plan.failure().what();
}

}  // namespace

TEST_CASE("a cache goes from tokens to heads, to both, and back, each entry once") {
  for (index_t kv_heads : {1, 3, 4, 8}) {  // fewer heads than parts: some members hold none
    const appended dealt{zigzag{.tokens = 13, .ranks = 4}, 9, 2};
    const cache_shards tokens{dealt};
    const cache_shards heads{contiguous{.tokens = 22, .ranks = 1}, 4};
    CHECK(fault_of(4, tokens, heads, kv_heads) == "");
    CHECK(fault_of(4, heads, tokens, kv_heads) == "");
    const cache_shards both{appended{zigzag{.tokens = 13, .ranks = 2}, 9}, 2};
    const cache_shards other_way{contiguous{.tokens = 22, .ranks = 2}, 2, axis::ring};
    CHECK(fault_of(4, tokens, both, kv_heads) == "");
    CHECK(fault_of(4, heads, both, kv_heads) == "");
    CHECK(fault_of(4, both, other_way, kv_heads) == "");
  }
}

TEST_CASE("a cache goes to another number of ranks, the members beyond holding nothing") {
  const auto over = [](int ranks) { return cache_shards{appended{zigzag{.tokens = 10, .ranks = ranks}, 7}}; };
  for (int from = 1; from <= 5; ++from)
    for (int to = 1; to <= 5; ++to) CHECK(fault_of(5, over(from), over(to), 2) == "");
  CHECK(fault_of(5, over(5), cache_shards{contiguous{.tokens = 17, .ranks = 1}, 3}, 4) == "");
  CHECK(fault_of(3, cache_shards{appended{zigzag{.tokens = 0, .ranks = 3}}},
                 cache_shards{contiguous{.tokens = 0, .ranks = 2}}, 4) == "");
}

TEST_CASE("shards that do not fit are refused while planning") {
  const cache_shards good{zigzag{.tokens = 8, .ranks = 4}};
  const std::string at = "[seqpar] plan_cache_reshard: ";
  CHECK(refused(good, cache_shards{contiguous{.tokens = 8, .ranks = 1}, 4}) == "planned");
  CHECK(refused(good, cache_shards{contiguous{.tokens = 9, .ranks = 1}, 4}) ==
        at + "the caches have 8 and 9 tokens; give both the same sequence");
  CHECK(refused(good, cache_shards{contiguous{.tokens = 8, .ranks = 2}, 3}) ==
        at + "the second cache needs 2 x 3 members, the mesh has 4; use fewer token shards or fewer head_parts");
  CHECK(refused(cache_shards{contiguous{.tokens = 8, .ranks = 2}, 0}, good) ==
        at + "the first cache: head_parts must be at least 1");
  CHECK(refused(cache_shards{contiguous{.tokens = -8, .ranks = 2}}, good).starts_with(at + "the first cache: "));
}

TEST_CASE("what all ranks work out alone about a cache agrees, message by message [J7]") {
  std::minstd_rand draw(13);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int tuple = 0; tuple < 500; ++tuple) {
    const int ranks = 1 + static_cast<int>(below(8));
    const index_t prefill = below(20), added = below(20), kv_heads = 1 + below(5);
    const auto shards = [&] {
      const index_t over = 1 + below(ranks);
      return cache_shards{appended{zigzag{.tokens = prefill, .ranks = over}, added, 1 + below(3)},
                          1 + below(ranks / over), below(2) == 0 ? axis::ring : axis::all_to_all};
    };
    const auto from = shards(), to = shards();
    CHECK(differing_posts(
              ranks,
              [&](const auto& team) {
                return plan_cache_reshard(
                    team, from, to,
                    {.row_bytes = kv_heads * 8, .batch = 2, .columns = kv_heads, .check = agreement::trusted});
              },
              [&](const auto& move, const host_memory& memory) {
                std::vector<double> x(1000), y(1000);
                check(move.forward(x.data(), y.data(), memory, on_host{}));
                check(move.inverse(y.data(), x.data(), memory, on_host{}));
                check(move.template adjoint<double>(y.data(), x.data(), memory, on_host{}));
              }) == "");
  }
}

}  // namespace exchange_test
