// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When a gather is NCCL's own collective; counted on the stand-in.
#include <doctest/doctest.h>

#include <seqpar/exchange/gather.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/cuda_on_cpu/control.hpp>
#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {
/// Two items gathered from `tokens` dealt tokens, rows of `width` floats padded by `pad`, and summed back; whether each
/// element is what it must be.
template <class Mesh>
bool gathers(const Mesh& team, index_t tokens, index_t pad, index_t width = 2) {
  const stream_site site;
  const contiguous layout{.tokens = tokens, .ranks = team.size()};
  auto plan = plan_gather(team, layout, {.row_bytes = 4 * width, .batch = 2});
  const guarded_memory memory(plan.memory(), site.memory);
  plan.prepare(memory, site.exec);
  const index_t mine = layout.count_of(team.index()), row = width + pad;
  const auto value = [](index_t b, index_t token, index_t c) { return static_cast<float>(b * 1000 + token * 10 + c); };
  std::pmr::vector<float> in(static_cast<std::size_t>(2 * mine * row), site.memory), back(in.size(), -1.f, site.memory),
      out(static_cast<std::size_t>(2 * tokens * row), -1.f, site.memory);
  for (index_t b = 0; b < 2; ++b)
    for (index_t i = 0; i < mine; ++i)
      for (index_t c = 0; c < width; ++c)
        in[static_cast<std::size_t>((b * mine + i) * row + c)] = value(b, layout.global_of(team.index(), i), c);
  check(plan.forward({in.data(), row * 4}, {out.data(), row * 4}, memory, site.exec));
  check(plan.template adjoint<float>({out.data(), row * 4}, {back.data(), row * 4}, memory, site.exec));
  site.settle();
  bool right = true;
  for (index_t b = 0; b < 2; ++b)
    for (index_t i = 0; i < mine; ++i)
      for (index_t c = 0; c < row; ++c)
        right =
            right &&
            back[static_cast<std::size_t>((b * mine + i) * row + c)] ==
                (c < width ? static_cast<float>(team.size()) * value(b, layout.global_of(team.index(), i), c) : -1.f);
  for (index_t b = 0; b < 2; ++b)
    for (index_t g = 0; g < tokens; ++g)
      for (index_t c = 0; c < row; ++c)
        right =
            right && out[static_cast<std::size_t>((b * tokens + g) * row + c)] == (c < width ? value(b, g, c) : -1.f);
  return right;
}

/// Calls of ncclAllGather while each rank runs f(transport), which says whether all was right.
template <class F>
std::size_t all_gathers(F&& f, int ranks = 3) {
  const std::size_t before = cuda_on_cpu::calls("ncclAllGather");
  on_nccl{}.run({.ranks = ranks}, [&](nccl::transport t) {
    if (!f(t)) raise(error(errc::invalid_argument, "another row"));
  });
  return cuda_on_cpu::calls("ncclAllGather") - before;
}
}  // namespace

TEST_CASE("an even gather over all ranks in their order is one all-gather an item, of dense and of padded rows") {
  for (index_t pad : {0, 3}) {
    // one in prepare, and two items
    CHECK(all_gathers([&](nccl::transport t) { return gathers(ring(t), 12, pad); }) == 3 * 3);
    CHECK(all_gathers([&](nccl::transport t) {
            flight_record record(t.rank(), t.size());
            const bool right = gathers(ring(traced(t, record)), 12, pad);
            return right && record.bytes(direction::send) >= 2 * 2 * 4 * 8;
          }) == 3 * 3);
  }
}

TEST_CASE("where many ranks give little, each packed message of the way back has its room") {
  CHECK(all_gathers([](nccl::transport t) { return gathers(ring(t), 12, 1, 1); }, 6) == 6 * 3);
}

TEST_CASE("an uneven gather, one over some ranks, and one in another order are messages") {
  CHECK(all_gathers([](nccl::transport t) { return gathers(ring(t), 13, 0); }) == 0);
  CHECK(all_gathers([](nccl::transport t) {
          return gathers(mesh(t, {.ring = 3, .all_to_all = 1}, {2, 0, 1}), 12, 3);
        }) == 0);
  CHECK(all_gathers([](nccl::transport t) {
          return t.rank() == 1 || gathers(mesh(t, {.ring = 2, .all_to_all = 1}, {2, 0}), 12, 0);
        }) == 0);
}

}  // namespace seqpar::test
