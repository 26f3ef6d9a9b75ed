// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every exchange verb over thread ranks with shards of 64 MB (or `exchange_bench BYTES`), beside memcpy on as many
// threads in the same run.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include <bench/support/thread_verbs.hpp>

namespace {

using namespace seqpar;
using namespace seqpar::bench;

void show(benchmark::State& state, const ask& a) {
  figures best;
  for (auto _ : state) {
    measure_threads({a}, {}, [&](const ask&, const figures& f) {
      state.SetIterationTime(f.seconds);
      if (best.size == 0 || f.seconds < best.seconds) best = f;
    });
    if (best.wrong_words != 0) return state.SkipWithError("wrong results");
  }
  state.counters["GB/s"] = best.algbw();
  if (best.plain_seconds > 0) state.counters["percent_of_memcpy"] = best.percent_of_plain();
  state.counters["sent_over_wanted"] = best.wanted_bytes > 0 ? best.sent_bytes / best.wanted_bytes : 1;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  // What Google Benchmark leaves of the command line: bytes of a shard.
  const index_t shard = argc > 1 ? std::strtol(argv[1], nullptr, 10) : index_t{64} << 20;
  for (int ranks : {2, 4})
    for (std::size_t v = 0; v < std::size(verb_names); ++v) {
      const verb what = static_cast<verb>(v);
      const bool whole = what == verb::gather;  // its largest buffer has the shards of all
      const ask a = ask_for(what, ranks, whole ? ranks * shard : shard);
      benchmark::RegisterBenchmark((std::string(name_of(what)) + "/ranks:" + std::to_string(ranks)).c_str(),
                                   [=](benchmark::State& s) { show(s, a); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  benchmark::RunSpecifiedBenchmarks();
}
