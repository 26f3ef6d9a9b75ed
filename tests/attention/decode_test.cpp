// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decode over a cache dealt to ranks: equal to the definition at every step, the same bits on every rank, partials only
// on the wire.
#include <array>
#include <memory>
#include <mutex>

#include <doctest/doctest.h>
#include <seqpar/kernel/visit.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/transport/recorder.hpp>
#include <tests/support/decode.hpp>
#include <tests/support/layouts.hpp>

namespace seqpar::test {
namespace {

using transport_type = traced<threads::transport>;

template <class T>
auto decode(const decode_problem& p) {
  return decode<T>(p, on_threads{}, p.mask);
}
template <class T = float>
std::string fault_of(const decode_problem& p) {
  return fault_of<T>(p, decode<T>(p));
}

}  // namespace

TEST_CASE("64 steps of decode equal one rank at every step, from an empty cache on, round robin and by blocks") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t granule : {1, 5})  // in the first steps all but one rank hold nothing
      for (const any_mask& mask : {past, window_and_sinks})
        CHECK(fault_of({.cache = empty_cache(ranks, granule), .mask = mask, .steps = 64}) == "");
}

TEST_CASE("64 steps of decode behind a prefill in any layout equal one rank at every step") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t prefill : {3, 21})
      for (const any_cache& cache : caches(ranks, prefill, ranks % 2 == 0 ? 1 : 3))
        CHECK(fault_of({.cache = cache,
                        .mask = prefill == 3 ? past : window_and_sinks,
                        .steps = 64,
                        .adversary = static_cast<std::uint64_t>(ranks)}) == "");
}

TEST_CASE("a cache of many kernel tiles whose runs end inside tiles equals one rank") {
  for (int ranks : {2, 3})
    for (index_t granule : {1, 16, 100})
      for (const any_mask& mask : {past, window_and_sinks})
        for (any_cache cache : caches(ranks, 700, granule))
          CHECK(fault_of({.cache = cache.grown(311), .mask = mask, .steps = 2, .fresh = 70}) == "");
}

TEST_CASE("batch, kv heads shared or not, other value dims, several queries a step and masks that must be asked") {
  struct every_third {
    bool allows(index_t q, index_t k) const { return (q - k) % 3 == 0; }
  };
  struct shape {
    index_t batch, heads, kv_heads, head_dim, value_dim, fresh;
  };
  for (const any_mask& mask : {past, any_mask(every_third{}, "every third")})
    for (const shape& s : {shape{2, 4, 4, 4, 0, 3}, shape{1, 6, 1, 8, 5, 2}, shape{3, 6, 3, 3, 7, 1}})
      for (int ranks : {1, 3, 4})
        for (const any_cache& cache : caches(ranks, 6, 2)) {
          decode_problem p{.cache = cache, .mask = mask, .steps = 6, .fresh = s.fresh};
          p.shape = {.batch = s.batch,
                     .heads = s.heads,
                     .kv_heads = s.kv_heads,
                     .head_dim = s.head_dim,
                     .value_dim = s.value_dim,
                     .cache_rows = 0};
          CHECK(fault_of(p) == "");
        }
}

TEST_CASE("heads dealt along the all-to-all axis as well, evenly or not, give the same result on every rank") {
  for (const mesh_shape& team : {mesh_shape{1, 2}, mesh_shape{1, 3}, mesh_shape{1, 4}, mesh_shape{1, 5},
                                 mesh_shape{1, 2, axis::ring}, mesh_shape{1, 3, axis::ring}})
    for (int ring : {1, 2, 3})
      for (index_t kv_heads : {1, 2, 4}) {
        decode_problem p{.cache = caches(ring, 5, 2)[1], .steps = 8, .fresh = 2, .team = team, .adversary = 3};
        p.shape = {.batch = 2, .heads = 4, .kv_heads = kv_heads, .head_dim = 4, .cache_rows = 0};
        CHECK(fault_of(p) == "");
      }
}

TEST_CASE("bfloat16 is rounded once, at the end") {
  for (int ranks : {1, 3, 8})
    CHECK(fault_of<bfloat16>({.cache = caches(ranks, 9, 1)[1], .mask = window_and_sinks, .steps = 12}) == "");
}

TEST_CASE("queries may stand anywhere: at the last tokens, among others, in steps") {
  decode_problem p{.cache = caches(4, 12, 1)[0], .steps = 3};
  p.queries = {{0, 4, 1}, {3, 3, 4}, {14, 2, -9}};
  CHECK(fault_of(p) == "");
  p.queries = {{0, 0, 1}, {12, 1, 1}, {0, 15, 1}};  // no query at all is a run too
  CHECK(fault_of(p) == "");
}

TEST_CASE("causal holds when keys are strided over ranks of a cache: position 6 sees 2, 2, 2 and 1 of them [I4]") {
  decode_problem p{.cache = empty_cache(4).grown(6), .fresh = 4};
  p.shape = {.heads = 2, .kv_heads = 2, .head_dim = 4, .cache_rows = 0};
  std::vector<index_t> used(4);
  for (index_t k = 0; k <= 6; ++k) ++used[static_cast<std::size_t>(p.cache.place_of(k).rank)];
  CHECK(used == std::vector<index_t>{2, 2, 2, 1});
  CHECK(fault_of(p) == "");
  const auto got = decode<float>(p);
  CHECK(wsum(got[0][0].out) == doctest::Approx(0.22156939).epsilon(1e-5));
  CHECK(sum_of_finite(got[0][0].lse) == doctest::Approx(17.29889426).epsilon(1e-5));
}

TEST_CASE("a cache with fewer keys than ranks gives the definition, one without keys 0 and −∞ [A3]") {
  decode_problem p{.cache = empty_cache(4), .mask = any_mask(full{}, "full"), .fresh = 2, .queries = {{1, 1, 1}}};
  p.shape = {.heads = 2, .kv_heads = 2, .head_dim = 4, .cache_rows = 0};
  CHECK(fault_of(p) == "");
  const auto two = decode<float>(p);
  CHECK(wsum(two[0][0].out) == doctest::Approx(-0.63473322).epsilon(1e-5));
  CHECK(sum_of_finite(two[0][0].lse) == doctest::Approx(1.78508515).epsilon(1e-5));
  p.fresh = 0;
  CHECK(fault_of(p) == "");
  const auto none = decode<float>(p);
  for (const auto& rank : none) {
    for (float x : rank[0].out) CHECK(x == 0);
    for (float x : rank[0].lse) CHECK(x == -std::numeric_limits<float>::infinity());
  }
}

TEST_CASE("only partials travel: members of a ring of P send log2 of them, and no keys however long the cache is") {
  const index_t sent[] = {0, 2, 4, 8, 10, 12, 14, 24};  // over all members; P = 1 … 8
  for (int n = 1; n <= 8; ++n) {
    index_t all = 0;
    for (int m = 0; m < n; ++m) all += merge_tree{n, m}.partials_sent();
    CHECK(all == sent[n - 1]);
    for (index_t rows : {10, 1000})
      for (int parts : {1, 2}) {
        std::vector<recorded_message> log;
        const mesh team(recorder(0, n * parts, log), {.ring = n, .all_to_all = parts});
        auto plan = plan_decode<float>(
            team,
            {.batch = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .value_dim = 6, .queries = 2, .cache_rows = rows});
        const index_t partial = 3 * 2 * (4 / parts) * (6 + 1) * 4, stamps = 8 * (n * parts - 1);
        CHECK(plan.bytes_sent(2) == (merge_tree{n, 0}.partials_sent() + parts - 1) * partial + stamps);
        CHECK(plan.bytes_sent(0) == stamps);
      }
  }
}

TEST_CASE("every merge tree ends with all members' partials, once each, in one expression") {
  for (int n = 1; n <= 40; ++n) {
    std::vector<std::string> have;
    for (int m = 0; m < n; ++m) have.push_back(std::to_string(m));
    // All members hop by hop: what each would do, written down first.
    struct act {
      int peer;
      bool send, receive, merges, mine_first;
    };
    std::vector<std::vector<act>> acts(static_cast<std::size_t>(n));
    for (int m = 0; m < n; ++m) {
      std::vector<act>& mine = acts[static_cast<std::size_t>(m)];
      const status s = merge_tree{n, m}.run(
          [&](int peer, bool send, bool receive, index_t number) {
            mine.resize(std::max(mine.size(), static_cast<std::size_t>(number)), act{-1, false, false, false, false});
            mine.push_back({peer, send, receive, false, false});
            return status{};
          },
          [&](bool first) { mine.back().merges = true, mine.back().mine_first = first; });
      CHECK(s.ok());
      index_t sends = 0;
      for (const act& a : mine) sends += a.send;
      CHECK(sends == merge_tree{n, m}.partials_sent());
    }
    std::size_t hops = 0;
    for (const auto& mine : acts) hops = std::max(hops, mine.size());
    for (std::size_t hop = 0; hop < hops; ++hop) {
      const std::vector<std::string> before = have;
      for (std::size_t m = 0; m < acts.size(); ++m) {
        if (hop >= acts[m].size() || acts[m][hop].peer < 0) continue;
        const act a = acts[m][hop];
        const act& other = acts[static_cast<std::size_t>(a.peer)][hop];
        REQUIRE(other.peer == static_cast<int>(m));
        REQUIRE(other.send == a.receive);
        if (!a.receive) continue;
        const std::string& came = before[static_cast<std::size_t>(a.peer)];
        if (a.merges)
          have[m] = a.mine_first ? "(" + before[m] + "," + came + ")" : "(" + came + "," + before[m] + ")";
        else
          have[m] = came;
      }
    }
    for (const std::string& x : have) CHECK(x == have[0]);
    for (int m = 0; m < n; ++m) {
      std::size_t found = 0;
      std::string word;
      for (char c : have[0] + ",")
        if (c >= '0' && c <= '9')
          word += c;
        else
          found += word == std::to_string(m), word.clear();
      CHECK(found == 1);
    }
  }
}

namespace {

struct misuse {
  const char* name;
  errc code;
  void (*spoil)(decoder<float>&);
};
const std::vector<misuse> misuses{
    {"q is null", errc::invalid_argument, [](decoder<float>& r) { r.a.q.pointer = nullptr; }},
    {"the k cache is null", errc::invalid_argument, [](decoder<float>& r) { r.a.k.pointer = nullptr; }},
    {"the v cache is null", errc::invalid_argument, [](decoder<float>& r) { r.a.v.pointer = nullptr; }},
    {"out is null", errc::invalid_argument, [](decoder<float>& r) { r.a.out.pointer = nullptr; }},
    {"q has a token more", errc::invalid_argument, [](decoder<float>& r) { ++r.a.q.shape[1]; }},
    {"the cache has a row less", errc::invalid_argument, [](decoder<float>& r) { --r.a.k.shape[1]; }},
    {"lse has another order", errc::invalid_argument,
     [](decoder<float>& r) { std::swap(r.a.lse.shape[1], r.a.lse.shape[2]); }},
    {"every second element", errc::invalid_argument, [](decoder<float>& r) { r.a.v.stride[3] = 2; }},
    {"out on the cache", errc::overlapping_buffers, [](decoder<float>& r) { r.a.out.pointer = r.k.data(); }},
    {"scratch too small", errc::memory_too_small, [](decoder<float>& r) { r.given.scratch.bytes -= 1; }},
    {"exchange too small", errc::memory_too_small, [](decoder<float>& r) { r.given.exchange.bytes -= 1; }},
    {"tables too small", errc::memory_too_small, [](decoder<float>& r) { r.given.tables.bytes -= 1; }},
    {"other tables", errc::not_prepared,
     [](decoder<float>& r) { r.given.tables.pointer = static_cast<std::byte*>(r.given.tables.pointer) + 64; }},
};

/// Steps that are wrong before forward; each returns the status of the call that is wrong.
struct misstep {
  const char* name;
  errc code;
  status (*wrong)(decoder<float>&, const any_cache&);
};
const std::vector<misstep> missteps{
    {"an append past the capacity", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) { return r.plan.append(c.grown(9), r.last(c.token_count(), 1)); }},
    {"a cache past the capacity", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) { return r.plan.advance(c.grown(9), 1, r.given); }},
    {"more new tokens than tokens", errc::invalid_argument,
     [](decoder<float>& r, const any_cache&) { return r.plan.append(empty_cache(4).grown(1), r.last(3, 3)); }},
    {"new keys that are null", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       append_arguments<float> a = r.last(c.token_count(), 1);
       a.k.pointer = nullptr;
       return r.plan.append(c, a);
     }},
    {"new values of another shape", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       append_arguments<float> a = r.last(c.token_count(), 1);
       --a.v.shape[3];
       return r.plan.append(c, a);
     }},
    {"a cache that is null", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       append_arguments<float> a = r.last(c.token_count(), 1);
       a.v_cache.pointer = nullptr;
       return r.plan.append(c, a);
     }},
    {"more queries than planned", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) { return r.plan.advance(c, 4, r.given); }},
    {"queries before the first token", errc::invalid_argument,
     [](decoder<float>& r, const any_cache&) { return r.plan.advance(empty_cache(4).grown(1), 2, r.given); }},
    {"fewer than no queries", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, std::numeric_limits<index_t>::min(), r.given);
     }},
    {"queries that begin beyond all positions", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, run{std::numeric_limits<index_t>::max() - 1, 2, 1}, r.given);
     }},
    {"queries that step over all numbers", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, run{5, 2, std::numeric_limits<index_t>::max()}, r.given);
     }},
    {"queries that step below all numbers", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, run{5, 3, std::numeric_limits<index_t>::min()}, r.given);
     }},
    {"a query one position beyond the last", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, run{1, 2, std::numeric_limits<std::int32_t>::max() - 1}, r.given);
     }},
    {"a query one position before the first", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, run{5, 2, -6}, r.given);
     }},
    {"a cache over fewer ranks", errc::invalid_argument,
     [](decoder<float>& r, const any_cache&) { return r.plan.advance(empty_cache(3).grown(4), 1, r.given); }},
    {"a cache of a negative size", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) { return r.plan.advance(c.grown(-100), 1, r.given); }},
    {"a mask of a negative size", errc::invalid_argument,
     [](decoder<float>& r, const any_cache& c) {
       return r.plan.advance(c, 1, any_mask(window{.left = -1, .right = 0}), r.given);
     }},
    {"memory too small", errc::memory_too_small,
     [](decoder<float>& r, const any_cache& c) {
       seqpar::memory less = r.given;
       less.tables.bytes -= 64;
       return r.plan.advance(c, 1, less);
     }},
};

std::string told(const status& s, bool at_fault, errc code, int rank) {
  if (at_fault ? s.code() == code : s.code() == errc::peer_failed && s.rank() == rank) return "";
  return s.message();
}

}  // namespace

TEST_CASE("tables written in place spell the layout's positions, and what they leave out or call all is so") {
  std::uint64_t draw = 5;
  const auto below = [&](index_t n) {
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    return static_cast<index_t>((draw >> 33) % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 1000; ++round) {
    std::vector<run> runs;  // short ones of any step, which may or may not go on where the one before ended
    index_t rows = 0;
    while (static_cast<index_t>(runs.size()) < 1 + round % 12) {
      const index_t count = 1 + below(round % 2 == 0 ? 2 : 12), step = below(4) - 1;
      const index_t next = runs.empty() ? 50 : runs.back().at(runs.back().count) + below(2);
      runs.push_back({std::max<index_t>(below(2) == 0 ? next : 50 + below(60), 12), count, step == 0 ? 1 : step});
      rows += count;
    }
    const std::array<index_t, 2> offsets{0, static_cast<index_t>(runs.size())};
    const segments keys{runs, offsets};
    const index_t tokens = 400, queries = 1 + below(5);
    carver count;
    (void)seqpar::detail::decode_tables::take(count, queries, rows, 2, 8);
    const guarded_memory memory({.tables = count.bytes()});
    carver c(static_cast<seqpar::memory>(memory).tables);
    seqpar::detail::decode_tables tables = seqpar::detail::decode_tables::take(c, queries, rows, 2, 8);
    const run at{below(100), queries, 1 + below(20)};
    const any_of mask{all_of{causal{}, window{.left = below(60), .right = 0}}, first_keys{below(70)}};
    REQUIRE(tables.write_queries(at, tokens, [&](index_t q) { return try_key_intervals(mask, q); }));
    tables.write_keys(keys, 0);
    tables.write_ranges(true);
    const key_table table = tables.keys();
    const query_table q = tables.queries();
    std::vector<index_t> position;
    for (const key_tile& tile : table.tiles) {
      REQUIRE(tile.row == static_cast<index_t>(position.size()));
      for (std::int32_t i = 0; i < tile.rows; ++i) position.push_back(table.position_of(tile, i));
    }
    REQUIRE(static_cast<index_t>(position.size()) == rows);
    bool spelt = true, sound = true;
    for (index_t row = 0; row < rows; ++row)
      spelt = spelt && position[static_cast<std::size_t>(row)] == keys.global_of(0, row);
    for (std::size_t t = 0; t < q.tiles.size(); ++t) {
      std::vector<cover> kind(static_cast<std::size_t>(rows), cover::none);
      for_each_tile(table, t,
                    [&](const key_tile& tile, cover k) { std::fill_n(kind.begin() + tile.row, tile.rows, k); });
      for (std::int32_t i = q.tiles[t].row; i < q.tiles[t].row + q.tiles[t].rows; ++i)
        for (std::size_t j = 0; j < kind.size(); ++j) {
          const bool sees = mask.allows(at.at(i), position[j]);
          sound = sound && sees == may_see(q, i, static_cast<std::int32_t>(position[j]), by_intervals{}) &&
                  (kind[j] == cover::some || (kind[j] == cover::all) == sees);
        }
    }
    REQUIRE(spelt);
    REQUIRE(sound);
    REQUIRE(memory.intact());
  }
}

TEST_CASE(
    "wrong use is that rank's own status before anything is posted, peer_failed for the others, and forgotten by "
    "recover()") {
  decode_problem p{.cache = caches(4, 10, 1)[1].grown(3)};
  p.shape.queries = 3;
  p.shape.cache_rows = 5;
  std::mutex mutex;
  std::vector<std::string> wrong;
  const auto complain = [&](const std::string& what, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (!text.empty()) wrong.push_back(what + ": " + text);
  };
  run_ranks(4, [&](threads::transport world) {
    decoder<float> rank(world, p, {}, p.mask);
    const any_cache& cache = p.cache;
    rank.aim(queries_of<float>(p, 0), 1);
    const auto good = [&] {
      check(rank.plan.append(cache, rank.last(cache.token_count(), cache.token_count())));
      check(rank.plan.advance(cache, 1, rank.given));
      check(rank.forward());
      check(world.recover());  // everybody is here
    };
    check(world.recover());
    complain("before prepare", told(rank.forward(), true, errc::not_prepared, 0));
    check(world.recover());
    rank.plan.prepare(rank.given, on_host{});
    check(world.recover());
    complain("before advance", told(rank.forward(), true, errc::not_prepared, 0));
    check(world.recover());
    good();
    const auto a = rank.a;
    const auto given = rank.given;
    const std::vector<float> out = rank.result().out;
    int turn = 0;
    const auto after = [&](const char* name) {
      if (rank.forward().ok()) complain(name, "a later call does not know of the failure");
      rank.a = a;
      rank.given = given;
      check(world.recover());
      good();
      if (rank.result().out != out) complain(name, "results changed after recover()");
    };
    for (const misuse& m : misuses) {
      const int at_fault = ++turn % 4;
      const index_t sent = rank.record.messages(direction::send);
      if (world.rank() == at_fault) m.spoil(rank);
      complain(m.name, told(rank.forward(), world.rank() == at_fault, m.code, at_fault));
      if (world.rank() == at_fault && rank.record.messages(direction::send) != sent)
        complain(m.name, "something was posted");
      after(m.name);
    }
    for (const misstep& m : missteps) {
      const int at_fault = ++turn % 4;
      const bool here = world.rank() == at_fault;
      complain(m.name, told(here ? m.wrong(rank, cache) : rank.forward(), here, m.code, at_fault));
      after(m.name);
    }
  });
  for (const std::string& text : wrong) FAIL_CHECK(text);
}

TEST_CASE("a wrong buffer is named with its call, and runs that do not spell the cache's layout are found") {
  decode_problem p{.cache = empty_cache(1).grown(3)};
  p.shape.cache_rows = 12;
  run_ranks(1, [&](threads::transport world) {
    decoder<float> rank(world, p, {}, p.mask);
    rank.plan.prepare(rank.given, on_host{});
    const auto append = [&](auto&& spoil) {
      append_arguments<float> a = rank.last(3, 1);
      spoil(a);
      const std::string said = rank.plan.append(p.cache, a).message();
      check(world.recover());
      return said;
    };
    const std::string shape = " is missing or has another shape than planned; ", at = "[seqpar] decode.append: ";
    CHECK(append([](auto& a) { --a.k_cache.shape[1]; }) ==
          at + "a tensor" + shape + "append_arguments tells the shapes: k_cache (12 rows wanted, 11 given)");
    CHECK(append([](auto& a) { --a.k.shape[2]; }) ==
          at + "a tensor" + shape + "append_arguments tells the shapes: k (2 heads wanted, 1 given)");
    CHECK(append([](auto& a) { a.v.stride[3] = 2; }) ==
          at + "the last dimension of a tensor must be dense; give stride 1: v");
    CHECK(append([](auto& a) { a.v_cache.pointer = nullptr; }) == at + "a tensor with elements is null: v_cache");
    CHECK(append([](auto& a) { a.v_cache = a.k_cache; }) ==
          at + "a cache overlaps another buffer; give separate memory: v_cache");
    rank.aim(queries_of<float>(p, 0), 1);
    check(rank.plan.advance(p.cache, 1, rank.given));
    const auto a = rank.a;
    const auto forward = [&](auto&& spoil) {
      rank.a = a;
      spoil(rank.a);
      const std::string said = rank.forward().message();
      check(world.recover());
      return said;
    };
    const std::string here = "[seqpar] decode.forward: ";
    CHECK(forward([](auto& x) { --x.k.shape[1]; }) ==
          here + "a tensor" + shape + "decode_shape tells the shapes: k (12 rows wanted, 11 given)");
    CHECK(forward([](auto& x) { std::swap(x.lse.shape[1], x.lse.shape[2]); }) ==
          here + "lse has another shape than planned; give [batch, heads, queries]: lse (4 heads wanted, 1 given)");
    const any_cache full{any_layout(contiguous{.tokens = 13, .ranks = 1}), 0},
        two{any_layout(contiguous{.tokens = 4, .ranks = 2}), 0};
    const auto advance = [&](const any_cache& cache, index_t queries) {
      return rank.plan.advance(cache, queries, rank.given).words();
    };
    CHECK(advance(full, 1) == "decode: a rank's cache is full; plan with more cache_rows (13 rows wanted, 12 given)");
    CHECK(advance(p.cache, 9) ==
          "decode: more queries than planned for; plan with more queries (9 queries wanted, 1 given)");
    CHECK(advance(two, 1) ==
          "decode: the cache is dealt over another number of ranks than the mesh's ring has (1 ranks wanted, 2 given)");
    CHECK(rank.plan.append(p.cache, rank.last(4, 4)).words() ==
          "decode: more new tokens than the cache has (4 tokens wanted, 3 given)");
    check(world.recover());
    const any_cache wrong{any_layout(runs_backwards{{.tokens = 12, .ranks = 1}}), 0};
    for (const status& s : {rank.plan.advance(wrong, 1, rank.given), rank.plan.append(wrong, rank.last(3, 1))})
      CHECK(s.message().starts_with("[seqpar] decode: the runs of the cache's layout do not spell global_of"));
    check(world.recover());
  });
}

TEST_CASE("ranks that gave advance another cache, other queries or another mask are all told so, and can go on") {
  using change = status (*)(decoder<float>&, const any_cache&);
  const std::vector<std::pair<const char*, change>> changes{
      {"as many tokens, dealt otherwise",
       [](decoder<float>& r, const any_cache& c) {
         return r.plan.advance(caches(c.rank_count(), 10, 1)[0].grown(c.added), 1, r.given);
       }},
      {"forgot to advance", [](decoder<float>&, const any_cache&) { return status{}; }},
      {"a token more", [](decoder<float>& r, const any_cache& c) { return r.plan.advance(c.grown(1), 1, r.given); }},
      {"another query",
       [](decoder<float>& r, const any_cache& c) {
         return r.plan.advance(c, run{5, 1, 1}, r.given);
       }},
      {"another mask",
       [](decoder<float>& r, const any_cache& c) { return r.plan.advance(c, 1, window_and_sinks, r.given); }}};
  for (const mesh_shape& team : {mesh_shape{5, 1}, mesh_shape{4, 1}, mesh_shape{2, 2}, mesh_shape{1, 3}}) {
    decode_problem p{.cache = caches(static_cast<int>(team.ring), 10, 1)[1].grown(3), .team = team};
    p.shape.cache_rows = p.cache.rows_for(20);
    for (int odd = 0; odd < p.ranks(); ++odd)
      for (const auto& entry : changes) {
        const char* name = entry.first;
        if (team.ring == 1 && &entry == &changes[0]) continue;  // one rank has all tokens in either
        std::vector<status> got(static_cast<std::size_t>(p.ranks()));
        const change spoiled = entry.second;
        run_ranks(p.ranks(), [&](threads::transport world) {
          decoder<float> rank(world, p, {}, p.mask);
          rank.plan.prepare(rank.given, on_host{});
          std::fill(rank.k.begin(), rank.k.end(), 0.f);
          std::fill(rank.v.begin(), rank.v.end(), 0.f);
          rank.aim(queries_of<float>(p, 0), 1);
          check(rank.plan.advance(p.cache, 1, rank.given));
          check(rank.forward());
          check(world.recover());  // nobody is still in the good run
          const any_cache now = p.cache.grown(1);
          check(world.rank() == odd ? spoiled(rank, now) : rank.plan.advance(now, 1, rank.given));
          got[static_cast<std::size_t>(world.rank())] = rank.forward();
          check(rank.plan.advance(now, 1, rank.given));  // nothing is to be recovered from
          check(rank.forward());
        });
        for (const status& s : got) {
          CHECK_MESSAGE(s.code() == errc::ranks_disagree, name << ": " << s.message());
          if (p.ranks() > 2) CHECK(s.rank() == odd);
        }
      }
  }
}

TEST_CASE("0, 1 or 2 queries on one rank and another number on the others: all ranks are told, and nobody waits") {
  for (const mesh_shape& team : {mesh_shape{5, 1}, mesh_shape{2, 1}, mesh_shape{2, 2}, mesh_shape{1, 3}}) {
    decode_problem p{.cache = caches(static_cast<int>(team.ring), 10, 1)[1].grown(3), .steps = 3, .team = team};
    p.shape.cache_rows = p.cache.rows_for(13);
    p.shape.queries = 2;
    p.queries = {{0, 0, 1}, {12, 1, 1}, {11, 2, 1}};
    const index_t stamps = 8 * (p.ranks() - 1);
    for (int odd = -1; odd < p.ranks(); ++odd)  // -1: rank r has r mod 3 queries
      for (index_t most : {0, 1, 2})
        for (index_t other : {0, 1, 2}) {
          const auto queries = [&](int r) { return odd < 0 ? r % 3 : r == odd ? other : most; };
          if (odd < 0 && (most != 0 || other != 0)) continue;
          threads::options world_options{.ranks = p.ranks()};
          world_options.deadline = std::chrono::seconds(20);
          run_ranks(world_options, [&](threads::transport world) {
            decoder<float> rank(world, p, {}, p.mask);
            rank.plan.prepare(rank.given, on_host{});
            std::fill(rank.k.begin(), rank.k.end(), 0.5f);
            std::fill(rank.v.begin(), rank.v.end(), 0.5f);
            const auto forward = [&](index_t n) {
              rank.aim(queries_of<float>(p, n), n);
              check(rank.plan.advance(p.cache, p.queries[static_cast<std::size_t>(n)], rank.given));
              return rank.forward();
            };
            const index_t before = rank.record.bytes(direction::send);
            const status s = forward(queries(world.rank()));
            const index_t sent = rank.record.bytes(direction::send) - before;
            const auto require = [](bool holds, const std::string& what) {
              if (!holds) raise(error(errc::invalid_argument, what));
            };
            if (most == other && odd >= 0) {
              require(s.ok() && sent == rank.plan.bytes_sent(most), "alike: " + s.message());
            } else {
              require(s.code() == errc::ranks_disagree && sent == 2 * stamps, "otherwise: " + s.message());
              if (odd >= 0 && p.ranks() > 2) require(s.rank() == odd, "named: " + s.message());
            }
            check(forward(1));  // the world is as it was
            for (float x : rank.result().out) require(x == 0.5f, "the result");
          });
        }
  }
}

TEST_CASE("ranks that trust each other send partials only") {
  run_ranks(3, [](threads::transport world) {
    flight_record record(world.rank(), world.size(), 16);
    auto plan =
        plan_decode<float>(ring(transport_type(world, record)),
                           {.heads = 1, .kv_heads = 1, .head_dim = 1, .cache_rows = 1}, {.check = agreement::trusted});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    float q = 1, k = 0, v = static_cast<float>(world.rank()), out = -1;
    const std::array<index_t, 4> one{1, 1, 1, 1};
    check(plan.advance(empty_cache(3).grown(3), 1, memory));
    check(plan.forward({.q = dense_view<const float>(&q, one),
                        .k = dense_view<const float>(&k, one),
                        .v = dense_view<const float>(&v, one),
                        .out = dense_view(&out, one)},
                       memory, on_host{}));
    if (out != 1) raise(error(errc::invalid_argument, "the result"));
    if (record.bytes(direction::send) != plan.bytes_sent(1) || plan.bytes_sent(1) % 8 != 0 || plan.bytes_sent(0) != 0)
      raise(error(errc::invalid_argument, "bytes"));
  });
}

TEST_CASE("a mask that throws, in advance or in a kernel, is that rank's status, and the peers hear of it") {
  struct asked {
    const bool* armed;
    bool allows(index_t, index_t) const {
      if (*armed) throw std::runtime_error("no such query");
      return true;
    }
  };
  struct with_intervals : asked {
    interval_pair key_intervals(index_t q) const { return {{0, q + this->allows(q, q)}, {}}; }
  };
  const auto told = [](auto mask, const char* threw) {
    std::vector<errc> codes(2);
    run_ranks(2, [&](threads::transport world) {
      bool armed = false;
      auto own = mask;
      own.armed = &armed;
      auto plan = plan_decode<float>(ring(world), own, {.heads = 1, .kv_heads = 1, .head_dim = 1, .cache_rows = 2});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      check(world.recover());  // everybody is here
      float q = 1, k[2] = {}, v[2] = {}, out = -1;
      const std::array<index_t, 4> one{1, 1, 1, 1}, rows{1, 2, 1, 1};
      armed = world.rank() == 1;
      status s = plan.advance(empty_cache(2).grown(3), 1, memory);
      if (s.ok())
        s = plan.forward({.q = dense_view<const float>(&q, one),
                          .k = dense_view<const float>(k, rows),
                          .v = dense_view<const float>(v, rows),
                          .out = dense_view(&out, one)},
                         memory, on_host{});
      codes[static_cast<std::size_t>(world.rank())] = s.code();
      const std::string report = std::string("rank 1 gave up: ") + threw + ": no such query";
      if (world.report() != report || (armed && s.words() != threw)) raise(error(s.code(), world.report()));
    });
    return codes;
  };
  const std::vector<errc> want{errc::peer_failed, errc::invalid_argument};
  CHECK(told(asked{}, "decode: the kernel or the mask threw") == want);
  CHECK(told(with_intervals{}, "decode: the mask threw") == want);
}

TEST_CASE("a plan that cannot be is one sentence while planning, and ranks that disagree hear of it in prepare") {
  const auto said = [](const decode_shape& n, const any_mask& mask = past) {
    std::vector<recorded_message> log;
    const auto plan = try_plan_decode<float>(mesh(recorder(1, 4, log), {.ring = 4, .all_to_all = 1}), mask, n);
    return plan.ok() ? std::string("planned") : std::string(plan.failure().what());
  };
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 4, .cache_rows = 3}) == "planned");
  CHECK(said({.heads = 4, .kv_heads = 3, .head_dim = 4, .cache_rows = 3}) ==
        "[seqpar] plan_decode: kv_heads must divide heads (4), got 3");
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 257, .cache_rows = 3}) ==
        "[seqpar] plan_decode: head_dim must be 1 to 256, got 257");
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 4, .queries = 0, .cache_rows = 3}) ==
        "[seqpar] plan_decode: queries must be 1 to 2^31 - 2, got 0");
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 4, .cache_rows = -1}) ==
        "[seqpar] plan_decode: cache_rows must be 0 to 2^31 - 2, got -1");
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 4, .queries = index_t{1} << 62, .cache_rows = 3}) ==
        "[seqpar] plan_decode: queries must be 1 to 2^31 - 2, got 4611686018427387904");
  for (const decode_shape& n :
       {decode_shape{.batch = index_t{1} << 60, .heads = 4, .kv_heads = 4, .head_dim = 4, .cache_rows = 3},
        {.heads = index_t{1} << 61, .kv_heads = 1, .head_dim = 4, .cache_rows = 3},
        {.batch = 1 << 20, .heads = 64, .kv_heads = 1, .head_dim = 128, .cache_rows = 1 << 30}})
    CHECK(said(n) == "[seqpar] plan_decode: the tensors have more than 2^62 bytes; give smaller sizes");
  CHECK(said({.heads = 4, .kv_heads = 2, .head_dim = 4, .cache_rows = 3}, any_mask(first_keys{-1}))
            .starts_with("[seqpar] plan_decode: the mask: first_keys: "));
  std::vector<std::string> heard(3);
  run_ranks(3, [&](threads::transport world) {
    auto plan = plan_decode<float>(ring(world),
                                   {.heads = 4, .kv_heads = 2, .head_dim = 4, .cache_rows = world.rank() == 1 ? 9 : 8});
    const host_memory memory(plan.memory());
    try {
      plan.prepare(memory, on_host{});
    } catch (const error& e) {
      heard[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  for (const std::string& text : heard)
    CHECK(text ==
          "[seqpar] plan_decode: ranks disagree on cache_rows: expected 8 (ranks 0,2 of 3), got 9 (rank 1); give every "
          "rank the same");
}

TEST_CASE("a mask that views tables is kept by the plan, and replaced by advance as documents grow") {
  std::vector<std::vector<float>> out(2);
  run_ranks(2, [&](threads::transport world) {
    const any_cache cache = empty_cache(2).grown(6);
    auto bounds = std::make_unique<std::vector<index_t>>(pack({2, 4}));
    auto plan = plan_decode<float>(ring(world), seqpar::within{documents{*bounds}, causal{}},
                                   {.heads = 1, .kv_heads = 1, .head_dim = 1, .cache_rows = 8});
    bounds.reset();  // the plan has its own copy
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> k(8, 0.f), v, q(1, 1.f), o(1);
    for (index_t i = 0; i < 8; ++i) v.push_back(static_cast<float>(i * 2 + world.rank()));  // v = position
    const auto run = [&](const any_cache& now) {
      const std::array<index_t, 4> rows{1, 8, 1, 1}, one{1, 1, 1, 1};
      check(plan.forward({.q = dense_view<const float>(q.data(), one),
                          .k = dense_view<const float>(k.data(), rows),
                          .v = dense_view<const float>(v.data(), rows),
                          .out = dense_view(o.data(), one)},
                         memory, on_host{}));
      out[static_cast<std::size_t>(world.rank())].push_back(o[0]);
      (void)now;
    };
    check(plan.advance(cache, 1, memory));
    run(cache);  // 5 sees 2 … 5
    {
      const std::vector<index_t> next = pack({2, 4, 2});
      check(plan.advance(cache.grown(2), 1, seqpar::within{documents{next}, causal{}}, memory));
    }
    run(cache);  // 7 sees 6, 7: intervals are in the tables, the new bounds may be gone
  });
  for (const auto& rank : out) CHECK(rank == std::vector<float>{3.5f, 6.5f});
}

}  // namespace seqpar::test
