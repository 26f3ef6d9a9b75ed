// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention across two nodes by ring, all-to-all and mesh, on the links of scripts/two-nodes: the time of each, and
// what its bytes need on these links. Ends with 1 if results are not those of threads bit by bit, or if the interfaces
// have not carried what the plans say.
//   scripts/two-nodes --wiring rail -- two_nodes [--tokens N] [--batch N] [--repeat N]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <bench/two_nodes/links.hpp>
#include <examples/support/table.hpp>
#include <seqpar/mpi.hpp>
#include <tests/support/recipe.hpp>

namespace two_nodes {
namespace {

using namespace seqpar;

/// Causal attention with Qwen2-7B's heads, or with as many kv heads. Sequences are short, so that on processors which
/// are slow beside the links it is the links that take the time.
struct workload {
  index_t tokens = 128, batch = 4;
  int repeat = 5;
  index_t heads = 28, kv_heads = 28, head_dim = 128;
};

struct contender {
  const char* name;
  mesh_shape team;
  schedule order;
  index_t window = 0;
};

/// The first is what the others are compared with.
std::vector<contender> contenders(int per_node) {
  const int all = 2 * per_node;
  const mesh_shape ring{.ring = all, .all_to_all = 1}, exchange{.ring = 1, .all_to_all = all};
  const mesh_shape heads_inside{.ring = 2, .all_to_all = per_node, .inside = axis::all_to_all};
  const mesh_shape ring_inside{.ring = per_node, .all_to_all = 2, .inside = axis::ring};
  return {{"ring, pass_along", ring, schedule::pass_along},
          {"ring, direct", ring, schedule::direct},
          {"ring, double ring", ring, schedule::double_ring, per_node},
          {"all-to-all", exchange, schedule::direct},
          {"mesh, all-to-all inside, pass_along", heads_inside, schedule::pass_along},
          {"mesh, all-to-all inside, direct", heads_inside, schedule::direct},
          {"mesh, ring inside, direct", ring_inside, schedule::direct}};
}

enum class pass { forward, backward };

/// One rank's part of the work.
template <class World>
class part {
 public:
  part(const World& world, const contender& c, const workload& w, agreement check = agreement::checked)
      : plan_(plan_attention<float>(
            mesh(world, c.team),
            nested<zigzag, contiguous>{{.tokens = w.tokens, .ranks = c.team.ring},
                                       {.tokens = w.tokens, .ranks = c.team.all_to_all},
                                       c.team.inside},
            causal{}, {.batch = w.batch, .heads = w.heads, .kv_heads = w.kv_heads, .head_dim = w.head_dim},
            {.passes = forward_backward,
             .schedule = c.order,
             .window = c.window,
             .moves = {side::keys, side::keys},  // whatever the shape: only who is near differs
             .check = check})),
        memory_(plan_.memory()),
        w_(w) {
    plan_.prepare(memory_, on_host{});
    const index_t rows = w.batch * plan_.q_rows(), me = world.rank();
    const index_t wide = rows * w.heads * w.head_dim, narrow = rows * w.kv_heads * w.head_dim;
    q_ = test::filled(test::tag::q, wide, me * wide), dout_ = test::filled(test::tag::dout, wide, me * wide);
    k_ = test::filled(test::tag::k, narrow, me * narrow), v_ = test::filled(test::tag::v, narrow, me * narrow);
    out_.resize(q_.size()), dq_.resize(q_.size()), dk_.resize(k_.size()), dv_.resize(v_.size());
    lse_.resize(static_cast<std::size_t>(rows * w.heads));
  }

  void run(pass which) {
    const index_t rows = plan_.q_rows();
    const auto view = [&](std::vector<float>& x, index_t heads) {
      return dense_view(x.data(), {w_.batch, rows, heads, w_.head_dim});
    };
    const auto q = view(q_, w_.heads), k = view(k_, w_.kv_heads), v = view(v_, w_.kv_heads), out = view(out_, w_.heads);
    const auto lse = dense_heads(lse_.data(), {w_.batch, w_.heads, rows});
    if (which == pass::forward)
      check(plan_.forward({.q = q, .k = k, .v = v, .out = out, .lse = lse}, memory_, on_host{}));
    else
      check(plan_.backward({.q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .lse = lse,
                            .dout = view(dout_, w_.heads),
                            .dq = view(dq_, w_.heads),
                            .dk = view(dk_, w_.kv_heads),
                            .dv = view(dv_, w_.kv_heads)},
                           memory_, on_host{}));
  }
  std::vector<std::vector<float>> results() const { return {out_, lse_, dq_, dk_, dv_}; }

 private:
  attention_plan<float, causal, World> plan_;
  host_memory memory_;
  workload w_;
  std::vector<float> q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_;
};

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

/// The bench on one rank. Rank 0 says what there is to say.
class bench {
 public:
  bench(const mpi::transport& world, const workload& w) : world_(world), links_(world.size()), w_(w) {}

  bool run() {
    say("2 nodes x " + std::to_string(links_.per_node()) + " ranks, " + std::to_string(links_.count()) +
        (links_.count() > 1 ? " links of " : " link of ") + rate_text(links_.rate()) + "; one message alone gets " +
        rate_text(raw_rate()) +
        "\nby link: ms that the bytes of the fullest link need; by round: the same, if each round waits for the one "
        "before\n");
    for (const index_t kv_heads : {28, 4}) {
      w_.kv_heads = kv_heads;
      compare(contenders(links_.per_node()));
    }
    MPI_Bcast(&right_, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
    return right_;
  }

 private:
  struct figures {
    message_log log;  ///< of one run, all ranks
    std::vector<double> seconds;
    load counted;  ///< of all runs
  };

  bool speaks() const { return world_.rank() == 0; }
  void say(const std::string& text) const {
    if (speaks()) std::printf("%s", text.c_str()), std::fflush(stdout);
  }
  void fail(const std::string& what) {
    right_ = false;
    say("WRONG: " + what + "\n");
  }
  static std::string rate_text(double bits) {
    return bits > 0 ? demo::fixed_text(bits / 1e6, 0) + " Mbit/s" : "no limit";
  }

  /// Seconds between barriers.
  template <class F>
  static double time_of(F&& f) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    f();
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
  }

  /// Bits per second of a tenth of a second's bytes, one way over the first link.
  double raw_rate() const {
    const double bytes = links_.rate() > 0 ? links_.rate() / 80 : 1e8;
    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
    const auto transfer = [&] {
      const int n = static_cast<int>(bytes), far = links_.per_node();
      if (world_.rank() == 0) MPI_Send(data.data(), n, MPI_BYTE, far, 0, MPI_COMM_WORLD);
      if (world_.rank() == far) MPI_Recv(data.data(), n, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    transfer();
    return 8 * bytes / std::min({time_of(transfer), time_of(transfer), time_of(transfer)});
  }

  void compare(const std::vector<contender>& all) {
    std::vector<part<mpi::transport>> parts;
    std::vector<figures> forward, backward;
    for (const contender& c : all) {
      part<mpi::transport>& mine = parts.emplace_back(world_, c, w_);
      mine.run(pass::forward);  // and connects
      mine.run(pass::backward);
      int right = same_bits(mine.results(), results_of_threads(c));
      MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
      if (!right) fail(std::string(c.name) + ": not the bits of threads");
      forward.push_back({log_of(c, pass::forward), {}, links_.planned({})});
      backward.push_back({log_of(c, pass::backward), {}, links_.planned({})});
    }
    // In turns, so that whatever else the machine does falls on all alike.
    for (int i = 0; i < w_.repeat; ++i)
      for (std::size_t c = 0; c < all.size(); ++c) {
        measure(parts[c], pass::forward, forward[c]);
        measure(parts[c], pass::backward, backward[c]);
      }
    report("forward", all, forward);
    report("backward", all, backward);
  }

  void measure(part<mpi::transport>& mine, pass which, figures& f) const {
    const load before = links_.counted();
    f.seconds.push_back(time_of([&] { mine.run(which); }));
    const load after = links_.counted();
    for (std::size_t i = 0; i < after.size(); ++i) f.counted[i] += after[i] - before[i];
  }

  std::vector<std::vector<float>> results_of_threads(const contender& c) const {
    std::vector<std::vector<float>> results;
    run_ranks(world_.size(), [&](threads::transport t) {
      part same(t, c, w_);
      same.run(pass::forward);
      same.run(pass::backward);
      if (t.rank() == world_.rank()) results = same.results();
    });
    return results;
  }
  message_log log_of(const contender& c, pass which) const {
    message_log log;
    for (int rank = 0; speaks() && rank < world_.size(); ++rank)
      part(recorder(rank, world_.size(), log), c, w_, agreement::trusted).run(which);
    return log;
  }

  void report(const std::string& which, const std::vector<contender>& all, std::vector<figures>& f) {
    if (!speaks()) return;
    const auto milli = [](double seconds) { return demo::fixed_text(seconds * 1e3, 1); };
    const auto mega = [](index_t bytes) { return demo::fixed_text(static_cast<double>(bytes) / 1e6, 2); };
    const auto faster = [](double ring, double it) { return it > 0 ? demo::fixed_text(ring / it, 2) + "x" : ""; };
    const auto median = [](std::vector<double>& x) {
      std::sort(x.begin(), x.end());
      return x[x.size() / 2];
    };
    const auto by_link = [&](const figures& x) { return links_.seconds(fullest(links_.planned(x.log))); };
    const auto by_round = [&](const figures& x) { return links_.seconds(links_.round_by_round(x.log)); };
    demo::table table({which + ", " + std::to_string(w_.kv_heads) + " kv heads", "ms", "faster", "by link", "faster",
                       "by round", "faster", "MB fullest link", "MB all links", "counted/planned"});
    for (std::size_t i = 0; i < f.size(); ++i) {
      load planned = links_.planned(f[i].log);
      table.add({all[i].name, milli(median(f[i].seconds)), faster(median(f[0].seconds), median(f[i].seconds)),
                 milli(by_link(f[i])), faster(by_link(f[0]), by_link(f[i])), milli(by_round(f[i])),
                 faster(by_round(f[0]), by_round(f[i])), mega(fullest(planned)), mega(sum(planned)),
                 demo::fixed_text(
                     static_cast<double>(sum(f[i].counted)) / static_cast<double>(w_.repeat * sum(planned)), 3)});
      for (index_t& bytes : f[i].counted) bytes /= w_.repeat;
      if (!carried(f[i].counted, planned)) fail(which + " by " + all[i].name + ": the links carried other bytes");
    }
    say("\n" + table.text());
  }

  mpi::transport world_;
  links links_;
  workload w_;
  bool right_ = true;
};

workload parsed(int argc, char** argv) {
  workload w;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const long value = i + 1 < argc ? std::strtol(argv[i + 1], nullptr, 10) : 0;
    if (value < 1) refuse(std::string(name) + " takes a number from 1");
    if (name == "--tokens")
      w.tokens = value;
    else if (name == "--batch")
      w.batch = value;
    else if (name == "--repeat")
      w.repeat = static_cast<int>(value);
    else
      refuse("unknown option " + std::string(name));
  }
  return w;
}

}  // namespace
}  // namespace two_nodes

int main(int argc, char** argv) {
  if (argc > 1 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h"))
    return std::puts("usage: two_nodes [--tokens N] [--batch N] [--repeat N], under scripts/two-nodes") < 0;
  MPI_Init(&argc, &argv);
  int code = 2;
  try {
    // Ranks share cores: who waits leaves its own to others at once.
    seqpar::mpi::world world(MPI_COMM_WORLD,
                             {.deadline = std::chrono::minutes(1), .spin = std::chrono::nanoseconds(0)});
    code = two_nodes::bench(seqpar::mpi::transport(world), two_nodes::parsed(argc, argv)).run() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  MPI_Finalize();
  return code;
}
