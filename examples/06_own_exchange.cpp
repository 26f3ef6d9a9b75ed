// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exchange of your own: each of four ranks gets its rows of a sequence with one row of each neighbour around them,
// and the gradients of those rows go back to their owners. Returns 0 when every value is right.
#include <cstdio>
#include <vector>

#include <seqpar/exchange/exchange.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/transport/threads.hpp>

// [snippet]
// What rank r owns: its rows of the layout. What it wants: the same rows and one beside them on each side.
constexpr seqpar::contiguous layout{.tokens = 10, .ranks = 4};  // 3, 3, 2 and 2 rows

seqpar::holding owned(int r) {
  return seqpar::holding_of(layout, r);
}

seqpar::holding wanted(int r) {
  const seqpar::index_t first = r == 0 ? 0 : layout.global_of(r, 0) - 1;
  const seqpar::index_t last = layout.global_of(r, layout.count_of(r) - 1) + (r == 3 ? 0 : 1);
  seqpar::holding h;
  h.append({first, last - first + 1, 1}, 0);  // rows first, first + 1, … lie at places 0, 1, …
  return h;
}

void widen(const seqpar::threads::transport& world, std::vector<float>& x, std::vector<float>& dx) {
  auto halo = seqpar::plan_exchange(seqpar::ring(world), owned, wanted, {.row_bytes = sizeof(float)});
  const seqpar::host_memory memory(halo.memory());
  halo.prepare(memory, seqpar::on_host{});

  std::vector<float> wide(static_cast<std::size_t>(halo.wanted_rows()));
  seqpar::check(halo.forward(x.data(), wide.data(), memory, seqpar::on_host{}));

  const std::vector<float> dwide(wide.size(), 1.f);  // of a loss that sums all of `wide`, on every rank
  seqpar::check(halo.adjoint<float>(dwide.data(), dx.data(), memory, seqpar::on_host{}));
  x = wide;
}
// [/snippet]

int main() {
  std::vector<float> wide[4], gradient[4];
  seqpar::run_ranks(4, [&](seqpar::threads::transport world) {
    const int r = world.rank();
    for (seqpar::index_t i = 0; i < layout.count_of(r); ++i)
      wide[r].push_back(static_cast<float>(layout.global_of(r, i)));
    gradient[r].resize(wide[r].size());
    widen(world, wide[r], gradient[r]);
  });
  const std::vector<float> want[4] = {{0, 1, 2, 3}, {2, 3, 4, 5, 6}, {5, 6, 7, 8}, {7, 8, 9}};
  // a row beside a border has two wanters
  const std::vector<float> dwant[4] = {{1, 1, 2}, {2, 1, 2}, {2, 2}, {2, 1}};
  for (int r = 0; r < 4; ++r) {
    std::printf("rank %d sees", r);
    for (float x : wide[r]) std::printf(" %g", static_cast<double>(x));
    std::printf("; gradients of its own rows:");
    for (float x : gradient[r]) std::printf(" %g", static_cast<double>(x));
    std::printf("\n");
    if (wide[r] != want[r] || gradient[r] != dwant[r]) return 1;
  }
  return 0;
}
