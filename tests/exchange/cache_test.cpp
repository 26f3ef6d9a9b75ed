// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cache resharded between tokens and heads, and to another number of ranks: every entry arrives once, and comes back.
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <seqpar/exchange/cache.hpp>
#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/threads.hpp>

namespace seqpar::test {
namespace {

constexpr index_t dim = 3;

float entry(index_t batch, index_t token, index_t head, index_t d) {
  return static_cast<float>(((batch * 1000 + token) * 16 + head) * dim + d);
}

/// A member's shard of `rows` rows (room for more than it has) as the definition says; −1 where it has nothing.
template <class Shards>
std::vector<float> shard_of(const Shards& shards, int member, index_t kv_heads, index_t batch, index_t rows) {
  const holding h = shards.of(member, kv_heads);
  const index_t heads = h.columns.size();
  std::vector<float> x(static_cast<std::size_t>(batch * rows * heads * dim), -1.f);
  for (index_t b = 0; b < batch; ++b)
    for (const row_piece& p : h.pieces)
      for (index_t i = 0; i < p.rows.count; ++i)
        for (index_t c = 0; c < heads; ++c)
          for (index_t d = 0; d < dim; ++d)
            x[static_cast<std::size_t>(((b * rows + p.place + i) * heads + c) * dim + d)] =
                entry(b, p.rows.at(i), h.columns.lo + c, d);
  return x;
}

template <class From, class To>
std::string fault_of(int ranks, const From& from, const To& to, index_t kv_heads) {
  const index_t batch = 2, from_rows = 40, to_rows = 50;
  std::mutex mutex;
  std::string fault;
  index_t bytes = 0;
  run_ranks(ranks, [&](threads::transport world) {
    const int me = world.rank();
    auto move = plan_cache_reshard(ring(world), from, to,
                                   {.row_bytes = kv_heads * dim * 4, .batch = batch, .columns = kv_heads});
    const host_memory memory(move.memory());
    move.prepare(memory, on_host{});
    std::vector<float> in = shard_of(from, me, kv_heads, batch, from_rows);
    const std::vector<float> want = shard_of(to, me, kv_heads, batch, to_rows), before = in;
    std::vector<float> out(want.size(), -1.f);
    const index_t in_row = from.of(me, kv_heads).columns.size() * dim * 4;
    const index_t out_row = to.of(me, kv_heads).columns.size() * dim * 4;
    check(move.forward({in.data(), in_row, from_rows * in_row}, {out.data(), out_row, to_rows * out_row}, memory,
                       on_host{}));
    const bool arrived = out == want;
    std::fill(in.begin(), in.end(), -1.f);
    check(move.inverse({out.data(), out_row, to_rows * out_row}, {in.data(), in_row, from_rows * in_row}, memory,
                       on_host{}));
    const std::lock_guard lock(mutex);
    bytes += move.bytes_sent();
    if (!arrived) fault += "rank " + std::to_string(me) + " got something else; ";
    if (in != before) fault += "rank " + std::to_string(me) + " did not get back what it had; ";
  });
  index_t wanted = 0;  // entries not held by who wants them
  for (int m = 0; m < ranks; ++m) {
    const holding have = from.of(m, kv_heads), want = to.of(m, kv_heads);
    for (const row_piece& p : want.pieces)
      for (index_t i = 0; i < p.rows.count; ++i) {
        bool here = false;
        for (const row_piece& o : have.pieces)
          for (index_t j = 0; j < o.rows.count; ++j) here = here || o.rows.at(j) == p.rows.at(i);
        wanted += want.columns.size() - (here ? intersection(have.columns, want.columns).size() : 0);
      }
  }
  if (bytes != wanted * batch * dim * 4) fault += "other bytes travelled than were wanted";
  return fault;
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

}  // namespace seqpar::test
