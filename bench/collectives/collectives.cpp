// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collectives: every exchange verb over a transport, in the manner of nccl-tests.
#include <bench/collectives/collectives.hpp>

#include <charconv>
#include <cstdio>
#include <stdexcept>

#include <bench/support/thread_verbs.hpp>

namespace {

using namespace seqpar;
using namespace seqpar::bench;

struct bad_command : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* usage =
    "collectives: every exchange verb over a transport, beside a plain program, results checked\n"
    "\n"
    "  --transport T   threads (default); mpi, under mpirun -n RANKS; nccl, a thread and a device each\n"
    "  --verb V[,V…]   scatter gather gather_to_root broadcast reshard unstripe all_to_all halo all_reduce "
    "reduce_scatter\n"
    "                  (default: all that the transport has; over nccl there are no sums)\n"
    "  --min, --max    sizes in bytes, or 64K, 16M, 1G (default: 1K to 64M)\n"
    "  --factor N      from one size to the next, 2 or more (default: 4)\n"
    "  --ranks N       threads, or devices (default: 2, or all devices); over mpi mpirun says it\n"
    "  --clock C       wall (default), or processor: what ranks compute, where others use the machine, too\n"
    "  --rounds N      the best of so many is told (default: 20)\n";

constexpr const char* definitions =
    "# size    bytes of the largest buffer of any rank, in or out\n"
    "# time    of the slowest rank, best round\n"
    "# algbw   size / time, in 10^9 bytes a second\n"
    "# busbw   algbw * k, where k * size is what a rank's link must carry one way however the verb is done:\n"
    "#         (n-1)/n scatter gather gather_to_root all_to_all reduce_scatter; 1 broadcast; 2(n-1)/n all_reduce;\n"
    "#         reshard, unstripe, halo: the most that a rank wants, or is wanted, from others\n"
    "# plain   threads: memcpy by every rank of as many bytes as it gets; mpi: MPI_Isend, MPI_Irecv, MPI_Waitall and\n"
    "#         memcpy of the same blocks; %: plain / time\n"
    "# extra   bytes sent / bytes wanted from others\n"
    "# wrong   4-byte words that are not what the verb's equation gives\n";

index_t number(std::string_view name, std::string_view text, index_t least, index_t most) {
  index_t n = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  if (failed != std::errc{} || shift < 0 || n > most >> shift || n << shift < least)
    throw bad_command(std::string(name) + " takes a whole number, or one with K, M or G, from " +
                      std::to_string(least) + " to " + std::to_string(most) + ", not `" + std::string(text) + "`");
  return n << shift;
}

std::vector<verb> verbs(std::string_view text) {
  std::vector<verb> list;
  do {
    const std::string_view name = text.substr(0, text.find(','));
    const auto* at = std::find(std::begin(verb_names), std::end(verb_names), name);
    if (at == std::end(verb_names)) throw bad_command("unknown verb `" + std::string(name) + "`");
    list.push_back(static_cast<verb>(at - std::begin(verb_names)));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
  } while (!text.empty());
  return list;
}

command parsed(int argc, char** argv) {
  command c;
  constexpr index_t largest = index_t{1} << 40;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--transport")
      c.transport = value;
    else if (name == "--verb")
      c.verbs = verbs(value);
    else if (name == "--min")
      c.min = number(name, value, 1, largest);
    else if (name == "--max")
      c.max = number(name, value, 1, largest);
    else if (name == "--factor")
      c.factor = number(name, value, 2, 1 << 20);
    else if (name == "--ranks")
      c.ranks = static_cast<int>(number(name, value, 1, 1024));
    else if (name == "--rounds")
      c.work.rounds = static_cast<int>(number(name, value, 1, 1000));
    else if (name == "--clock" && (value == "wall" || value == "processor"))
      c.work.by = value == "wall" ? clock_of::wall : clock_of::processor;
    else
      throw bad_command("unknown option, or no value: `" + std::string(name) + "`");
  }
  if (c.min > c.max)
    throw bad_command("--min " + std::to_string(c.min) + " is more than --max " + std::to_string(c.max) +
                      ": there is no size between");
  if (c.transport == "mpi" && c.ranks > 0) throw bad_command("over mpi mpirun says how many ranks, not --ranks");
  if (c.verbs.empty())
    for (std::size_t v = 0; v < std::size(verb_names); ++v)
      if (c.transport != "nccl" || !sums(static_cast<verb>(v))) c.verbs.push_back(static_cast<verb>(v));
  return c;
}

class table {
 public:
  explicit table(const command& c) : transport_(c.transport) {}
  void operator()(const ask& a, const figures& f) {
    if (rows_++ == 0)
      std::printf("# seqpar collectives over %s, %d ranks\n%s#\n#%15s %12s %7s %12s %9s %9s %12s %6s %6s %6s\n",
                  transport_.c_str(), a.ranks, definitions, "verb", "size B", "row B", "time us", "algbw", "busbw",
                  "plain us", "%", "extra", "wrong");
    std::printf("%16s %12lld %7lld %12.2f %9.3f %9.3f", name_of(a.what).data(), static_cast<long long>(f.size),
                static_cast<long long>(a.row_bytes), f.seconds * 1e6, f.algbw(), f.busbw());
    if (f.plain_seconds > 0)
      std::printf(" %12.2f %6.1f", f.plain_seconds * 1e6, f.percent_of_plain());
    else
      std::printf(" %12s %6s", "-", "-");
    std::printf(" %6.3f %6.0f\n", f.wanted_bytes > 0 ? f.sent_bytes / f.wanted_bytes : 1, f.wrong_words);
    std::fflush(stdout);
    wrong_ += f.wrong_words;
  }
  bool right() const {
    if (rows_ > 0) std::printf("# %.0f words wrong in %d rows: %s\n", wrong_, rows_, wrong_ == 0 ? "OK" : "FAILED");
    return wrong_ == 0;
  }

 private:
  std::string transport_;
  int rows_ = 0;
  double wrong_ = 0;
};

}  // namespace

#ifndef COLLECTIVES_MPI
void seqpar::bench::measure_mpi(const command&, const report&) {
  throw bad_command("built without MPI; configure where it is found");
}
#endif
#ifndef COLLECTIVES_NCCL
void seqpar::bench::measure_nccl(const command&, const report&) {
  throw bad_command("built without NCCL; configure where it is found");
}
#endif

int main(int argc, char** argv) {
  if (argc > 1 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(usage, stdout);
    return 0;
  }
  try {
    const command c = parsed(argc, argv);
    table shown(c);
    const auto tell = [&](const ask& a, const figures& f) { shown(a, f); };
    if (c.transport == "threads")
      measure_threads(c.asks(c.ranks > 0 ? c.ranks : 2), c.work, tell);
    else if (c.transport == "mpi")
      measure_mpi(c, tell);
    else if (c.transport == "nccl")
      measure_nccl(c, tell);
    else
      throw bad_command("--transport takes threads, mpi or nccl");
    return shown.right() ? 0 : 1;
  } catch (const bad_command& e) {
    std::fprintf(stderr, "collectives: %s; see --help\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
