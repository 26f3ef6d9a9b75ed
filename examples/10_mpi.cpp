// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over the ranks of mpirun, beside the same attention on one rank: mpirun -n 3 10_mpi
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <seqpar/mpi.hpp>

namespace sp = seqpar;

namespace {

constexpr sp::index_t tokens = 90, heads = 2, dim = 16;

/// out of the rows that this rank holds of a causal sequence dealt by zigzag.
template <class Transport>
std::vector<float> attend(const Transport& world, const sp::zigzag& layout) {
  const sp::mesh team = sp::ring(world);
  auto plan =
      sp::plan_attention<float>(team, layout, sp::causal{}, {.heads = heads, .kv_heads = heads, .head_dim = dim});
  const sp::host_memory memory(plan.memory());
  plan.prepare(memory, sp::on_host{});

  const sp::index_t n = plan.q_rows();
  std::vector<float> q(static_cast<std::size_t>(n * heads * dim)), k = q, v = q, out = q;
  std::vector<float> lse(static_cast<std::size_t>(n * heads));
  for (std::size_t i = 0; i < q.size(); ++i) {  // the numbers of a row follow from its place in the sequence
    const auto row = static_cast<sp::index_t>(i) / (heads * dim), rest = static_cast<sp::index_t>(i) % (heads * dim);
    const float x = static_cast<float>(layout.global_of(team.index(), row) * heads * dim + rest);
    q[i] = std::sin(x), k[i] = std::cos(3 * x), v[i] = std::sin(7 * x);
  }
  const auto view = [&](std::vector<float>& x) { return sp::dense_view(x.data(), {1, n, heads, dim}); };
  const auto numbers = sp::dense_heads(lse.data(), {1, heads, n});
  sp::check(plan.forward({.q = view(q), .k = view(k), .v = view(v), .out = view(out), .lse = numbers}, memory,
                         sp::on_host{}));
  return out;
}

/// The largest difference between this rank's rows and those that one rank computes alone.
float difference(const sp::mpi::transport& world) {
  const sp::zigzag shared{.tokens = tokens, .ranks = world.size()};
  const std::vector<float> mine = attend(world, shared);
  const std::vector<float> all = attend(sp::self{}, sp::zigzag{.tokens = tokens, .ranks = 1});
  float most = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto row = static_cast<sp::index_t>(i) / (heads * dim), rest = static_cast<sp::index_t>(i) % (heads * dim);
    const sp::index_t there = shared.global_of(world.rank(), row) * heads * dim + rest;
    most = std::max(most, std::abs(mine[i] - all[static_cast<std::size_t>(there)]));
  }
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  float most = 0;
  {
    sp::mpi::world world(MPI_COMM_WORLD, {.deadline = std::chrono::minutes(1)});  // ends before MPI_Finalize
    most = difference(sp::mpi::transport(world));
    std::printf("rank %d of %d: differs from one rank by %g\n", world.rank(), world.size(), static_cast<double>(most));
  }
  MPI_Finalize();
  return most < 1e-5f ? 0 : 1;
}
