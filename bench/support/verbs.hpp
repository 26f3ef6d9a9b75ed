// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every exchange verb at one size: planned over any transport, filled, timed beside a plain program, and checked.
#pragma once

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <seqpar/exchange/broadcast.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/exchange/halo.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/exchange/scatter.hpp>
#include <seqpar/exchange/sums.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>

namespace seqpar::bench {

/// reshard: zigzag → contiguous, long pieces; unstripe: striped → contiguous, single rows. From all_reduce on they add.
enum class verb {
  scatter,
  gather,
  gather_to_root,
  broadcast,
  reshard,
  unstripe,
  all_to_all,
  halo,
  all_reduce,
  reduce_scatter
};
inline constexpr std::string_view verb_names[] = {"scatter",    "gather",        "gather_to_root", "broadcast",
                                                  "reshard",    "unstripe",      "all_to_all",     "halo",
                                                  "all_reduce", "reduce_scatter"};
constexpr bool sums(verb v) {
  return v >= verb::all_reduce;
}
constexpr std::string_view name_of(verb v) {
  return verb_names[static_cast<std::size_t>(v)];
}

/// What is asked of a verb. `rows` rows make the largest buffer of any rank, in or out.
struct ask {
  verb what;
  int ranks;
  index_t rows, row_bytes;

  /// The whole sequence: where every rank has a shard only, it is all shards.
  index_t tokens() const {
    const bool sharded =
        what == verb::reshard || what == verb::unstripe || what == verb::all_to_all || what == verb::halo;
    return sharded ? rows * ranks : rows;
  }
  /// Rows that a halo reaches into its neighbours: a sixteenth.
  index_t reach() const { return std::max<index_t>(1, rows / 16); }
  contiguous shards() const { return {.tokens = tokens(), .ranks = ranks}; }
  zigzag folded() const { return {.tokens = tokens(), .ranks = ranks}; }
  striped cards() const { return {.tokens = tokens(), .ranks = ranks}; }
  /// All-to-all cuts rows into as many columns (heads) as there are ranks.
  index_t columns() const { return what == verb::all_to_all ? ranks : 1; }

  holding holds(int r) const {
    const interval columns{0, this->columns()};
    if (what == verb::scatter || what == verb::broadcast) return all_rows(r == 0 ? rows : 0, columns);
    if (sums(what)) return all_rows(rows, columns);
    if (what == verb::reshard) return holding_of(folded(), r, columns);
    if (what == verb::unstripe) return holding_of(cards(), r, columns);
    return holding_of(shards(), r, columns);
  }
  holding wants(int r) const {
    const interval columns{0, this->columns()};
    switch (what) {
      case verb::gather:
      case verb::broadcast:
      case verb::all_reduce:
        return all_rows(rows, columns);
      case verb::gather_to_root:
        return all_rows(r == 0 ? rows : 0, columns);
      case verb::all_to_all:
        return all_rows(tokens(), {r, r + 1});
      case verb::halo: {
        const index_t lo = r * rows, hi = lo + rows;
        const interval wide = intersection({lo - reach(), hi + reach()}, {0, tokens()});
        holding h{{}, columns};
        h.append({wide.lo, wide.size(), 1}, 0);
        return h;
      }
      default:
        return holding_of(shards(), r, columns);
    }
  }
};

/// An `ask` whose largest buffer has about `bytes` bytes, a whole number of rows for every rank.
inline ask ask_for(verb what, int ranks, index_t bytes) {
  const index_t row = round_up(std::clamp<index_t>(bytes / 1024, 64, 8192), 64 * ranks);
  return {what, ranks, std::max<index_t>(1, bytes / row / (2 * ranks)) * 2 * ranks, row};
}

/// One rank's plan, whatever its type.
template <class Exec>
struct job {
  memory_sizes sizes;
  std::function<void(const memory&)> prepare;
  std::function<status(void* in, void* out, const memory&)> run;
};

template <class Exec, class Plan>
job<Exec> job_of(Plan plan, Exec exec) {
  const auto kept = std::make_shared<Plan>(std::move(plan));
  return {kept->memory(), [=](const memory& m) { kept->prepare(m, exec); },
          [=](void* in, void* out, const memory& m) { return kept->forward(in, out, m, exec); }};
}

template <class Transport, class Exec>
job<Exec> plan_job(const Transport& world, const ask& a, Exec exec) {
  const mesh team = ring(world);
  const exchange_options o{.row_bytes = a.row_bytes, .columns = a.columns(), .passes = forward_only};
  switch (a.what) {
    case verb::scatter:
      return job_of(plan_scatter(team, a.shards(), 0, o), exec);
    case verb::gather:
      return job_of(plan_gather(team, a.shards(), o), exec);
    case verb::gather_to_root:
      return job_of(plan_gather(team, a.shards(), 0, o), exec);
    case verb::broadcast:
      return job_of(plan_broadcast(team, a.rows, 0, o), exec);
    case verb::reshard:
      return job_of(plan_reshard(team, a.folded(), a.shards(), o), exec);
    case verb::unstripe:
      return job_of(plan_reshard(team, a.cards(), a.shards(), o), exec);
    case verb::halo:
      return job_of(plan_halo(team, a.shards(), {.before = a.reach(), .after = a.reach()}, o), exec);
    case verb::all_to_all:
      return job_of(plan_exchange(
                        team, [&](int r) { return a.holds(r); }, [&](int r) { return a.wants(r); }, o),
                    exec);
    default:
      break;
  }
  if constexpr (std::same_as<Exec, on_host>) {
    const index_t n = a.rows * a.row_bytes / static_cast<index_t>(sizeof(float));
    if (a.what == verb::reduce_scatter)
      return job_of(plan_reduce_scatter<float>(team, a.shards(), {.row_bytes = a.row_bytes}), exec);
    const auto kept = std::make_shared<all_reduce<float, Transport>>(plan_all_reduce<float>(team, n));
    return {kept->memory(), [=](const memory& m) { kept->prepare(m, exec); },
            [=](void* in, void* out, const memory& m) {
              const auto count = static_cast<std::size_t>(n);
              return kept->forward(std::span<const float>(static_cast<float*>(in), count),
                                   std::span<float>(static_cast<float*>(out), count), m, exec);
            }};
  } else {
    raise(error(errc::invalid_argument, std::string(name_of(a.what)) + " adds by kernels, which this program lacks"));
  }
}

/// Calls f(word, row, word of the row) for all 4-byte words of a holding packed in memory.
template <class F>
void for_each_word(const holding& h, const ask& a, F&& f) {
  const index_t column = a.row_bytes / a.columns() / 4, words = h.columns.size() * column;
  for (const row_piece& p : h.pieces)
    for (index_t i = 0; i < p.rows.count; ++i)
      for (index_t w = 0; w < words; ++w)
        f((p.place + i * p.place_step) * words + w, p.rows.at(i), h.columns.lo * column + w);
}
inline index_t bytes_of(const holding& h, const ask& a) {
  return h.entries() * (a.row_bytes / a.columns());
}
/// Small whole numbers, so that sums are exact.
inline float value_of(index_t row, index_t word) {
  return static_cast<float>((row * 31 + word * 7) % 251);
}
inline std::vector<float> filled(const ask& a, int rank) {
  const holding h = a.holds(rank);
  std::vector<float> in(static_cast<std::size_t>(bytes_of(h, a) / 4));
  const float own = sums(a.what) ? static_cast<float>(rank) : 0;
  for_each_word(h, a,
                [&](index_t at, index_t row, index_t w) { in[static_cast<std::size_t>(at)] = value_of(row, w) + own; });
  return in;
}
/// How many words of a result are not those that the verb's equation gives.
inline index_t wrong_words(const ask& a, int rank, const std::vector<float>& out) {
  index_t wrong = 0;
  const index_t n = a.ranks;
  for_each_word(a.wants(rank), a, [&](index_t at, index_t row, index_t w) {
    const float one = value_of(row, w);
    const float right = sums(a.what) ? static_cast<float>(n) * one + static_cast<float>(n * (n - 1) / 2) : one;
    wrong += out[static_cast<std::size_t>(at)] != right;
  });
  return wrong;
}

/// Bytes that a rank's link must carry one way, however the verb is done: what it wants from others, or what others
/// want of it, each row once; a sum over all ranks needs both.
inline index_t least_bytes(const ask& a, const route& way, int rank) {
  const index_t column = a.row_bytes / a.columns();
  const index_t in = way.entries_received() * column;
  if (a.what == verb::reduce_scatter || a.what == verb::all_reduce)
    return a.rows * a.row_bytes / a.ranks * (a.ranks - 1) * (a.what == verb::all_reduce ? 2 : 1);
  return std::max(in, std::min(way.entries_sent(), a.holds(rank).entries()) * column);
}

/// wall: what a user waits. processor: what the rank's thread computes, for a machine that others use, too; a rank that
/// sleeps while it waits (threads) is charged for its copies alone.
enum class clock_of { wall, processor };
inline double now(clock_of c) {
  timespec t{};
  clock_gettime(c == clock_of::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct effort {
  clock_of by = clock_of::wall;
  int rounds = 20;
  index_t bytes_a_round = index_t{16} << 20;  ///< so often is a verb repeated between two looks at the clock
};

/// What one rank knows after a measurement; times are the slowest rank's, the best of the rounds.
struct figures {
  index_t size = 0;  ///< bytes of the largest buffer
  double seconds = 0, plain_seconds = 0, least_bytes = 0, wrong_words = 0;
  double sent_bytes = 0, wanted_bytes = 0;  ///< of all ranks
  double algbw() const { return static_cast<double>(size) / seconds / 1e9; }
  double busbw() const { return least_bytes / seconds / 1e9; }
  double percent_of_plain() const { return 100 * plain_seconds / seconds; }
};

/// Site: what a kind of rank has (sites.hpp). finish() waits for what was started; plain(…) is the same bytes moved by
/// a program without seqpar, or nothing.
template <class Transport, class Site>
figures measure(const Transport& world, Site& site, const ask& a, const effort& e) {
  const int me = world.rank();
  auto plan = plan_job(world, a, site.exec());
  const auto region_of = [&](index_t bytes) { return region{site.take(bytes), bytes}; };
  const memory given{region_of(plan.sizes.tables), region_of(plan.sizes.scratch), region_of(plan.sizes.exchange),
                     region_of(plan.sizes.saved)};
  plan.prepare(given);
  const std::vector<float> filling = filled(a, me);
  std::vector<float> result(static_cast<std::size_t>(bytes_of(a.wants(me), a) / 4), -1);
  const auto bytes = [](const std::vector<float>& x) { return static_cast<index_t>(x.size() * sizeof(float)); };
  void *in = site.take(bytes(filling)), *out = site.take(bytes(result));
  site.write(in, filling.data(), bytes(filling));
  site.write(out, result.data(), bytes(result));

  const route way = route::between(
      me, a.ranks, [&](int r) { return a.holds(r); }, [&](int r) { return a.wants(r); });
  const index_t column = a.row_bytes / a.columns();
  figures f{.size = a.rows * a.row_bytes,
            .least_bytes = site.largest(static_cast<double>(least_bytes(a, way, me))),
            .sent_bytes = site.total(static_cast<double>(way.entries_sent() * column)),
            .wanted_bytes = site.total(static_cast<double>(way.entries_received() * column))};
  const auto repeats = std::clamp<index_t>(e.bytes_a_round / f.size, 1, 500);
  const auto time_of = [&](const auto& once, double& best) {
    static_cast<void>(site.largest(0));
    const double start = now(e.by);
    for (index_t i = 0; i < repeats; ++i) once();
    site.finish();
    static_cast<void>(site.largest(0));  // a rank that got no core begins late: who began first waits for it here
    const double took = site.largest(now(e.by) - start);
    if (best == 0 || took / static_cast<double>(repeats) < best) best = took / static_cast<double>(repeats);
  };
  const auto run = [&] { check(plan.run(in, out, given)); };
  run();  // also connects
  site.finish();
  site.read(result.data(), out, bytes(result));
  f.wrong_words = site.total(static_cast<double>(wrong_words(a, me, result)));
  const std::function<void()> plain = site.plain(a, way, me, in, out);
  // In turns, so that whatever else the machine does falls on both alike.
  for (int i = 0; i < e.rounds; ++i) {
    time_of(run, f.seconds);
    if (plain) time_of(plain, f.plain_seconds);
  }
  site.give_back();
  return f;
}

}  // namespace seqpar::bench
