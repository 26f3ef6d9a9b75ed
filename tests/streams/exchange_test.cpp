// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <seqpar/exchange/halo.hpp>
#include <seqpar/exchange/item_deal.hpp>
#include <seqpar/exchange/sums.hpp>
#include <seqpar/exchange/two_stage.hpp>
#include <tests/exchange/harness.hpp>
#include <tests/streams/engine.hpp>

using namespace exchange_test;
using test::on_device_threads;
using test::on_nccl;

namespace {
template <class Engine>
void check_all(int ranks) {
  int turn = ranks;
  for (index_t tokens : {5, 24}) {
    CAPTURE(tokens);
    CHECK(broken_movements<Engine>(tokens, ranks, ++turn) == "");
  }
}
}  // namespace

TEST_CASE("every verb and pair of layouts moves over NCCL exactly what is wanted, and its adjoint is the transpose") {
  for (int ranks : {1, 3})
    if (ranks <= test::devices()) check_all<on_nccl>(ranks);
}

TEST_CASE("every verb and pair of layouts moves over threads with streams exactly what is wanted") {
  for (int ranks : {2, 4}) check_all<on_device_threads>(ranks);
}

TEST_CASE("small sums of host numbers go over NCCL too") {
  if (test::devices() < 3) return;
  on_nccl{}.run({.ranks = 3}, [](nccl::transport t) {
    const auto team = ring(t);
    auto sum = plan_all_reduce<double>(team, 5);
    const host_memory memory(sum.memory());
    sum.prepare(memory, on_host{});
    std::vector<double> x(5, 1 + t.rank());
    check(sum.forward(x, x, memory, on_host{}));
    if (x != std::vector<double>(5, 6)) raise(error(errc::invalid_argument, "another sum"));
  });
}

namespace {
/// What each rank of an engine gets from verbs that do more than move rows: zeros of borders, text, planes of channels.
template <class Engine>
std::vector<std::vector<float>> windows_and_text(const Engine& on) {
  constexpr int ranks = 3;
  std::vector<std::vector<float>> got(ranks);
  on.run({.ranks = ranks}, [&](typename Engine::transport t) {
    const auto team = ring(t);
    auto&& site = on.site(t);
    std::vector<float>& mine = got[static_cast<std::size_t>(t.rank())];
    const auto filled = [&](index_t count) {
      std::pmr::vector<float> x(static_cast<std::size_t>(count), site.memory);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(100 * t.rank() + static_cast<int>(i));
      return x;
    };
    const auto keep = [&](const auto& x) {
      site.settle();
      mine.insert(mine.end(), x.begin(), x.end());
    };
    const auto ready = [&](auto& plan) {
      test::guarded_memory memory(plan.memory(), site.memory);
      plan.prepare(memory, site.exec);
      return memory;
    };
    const grid frames{.frames = 2, .height = 3, .width = 4, .split_h = 3, .split_w = 1};
    auto halo = plan_halo(team, frames, grid_halo{.height = {1, 1, border::zero}, .width = {1, 0, border::edge}},
                          {.row_bytes = 8, .columns = 2}, {box_order::tchw});
    const auto halo_memory = ready(halo);
    const auto x = filled(halo.owned_bytes() / 4), dy = filled(halo.padded_bytes() / 4);
    auto y = filled(halo.padded_bytes() / 4), dx = filled(halo.owned_bytes() / 4);
    check(halo.forward(x.data(), y.data(), halo_memory, site.exec));
    keep(y);
    check(halo.template adjoint<float>(dy.data(), dx.data(), halo_memory, site.exec));
    keep(dx);

    assembly sequence({2, 3, 1});
    sequence.text(2).item(0).text(1).items(1, 2).item(0);
    auto stage = plan_two_stage(team, sequence, deal_items(3, ranks),
                                zigzag{.tokens = sequence.token_count(), .ranks = ranks}, {.row_bytes = 8});
    const auto stage_memory = ready(stage);
    const auto visual = filled(stage.visual_rows() * 2), text = filled(stage.text_rows() * 2),
               dout = filled(stage.rows() * 2);
    auto out = filled(stage.rows() * 2), dvisual = filled(stage.visual_rows() * 2),
         dtext = filled(stage.text_rows() * 2);
    check(stage.forward(visual.data(), text.data(), out.data(), stage_memory, site.exec));
    keep(out);
    check(stage.template adjoint<float>(dout.data(), dvisual.data(), dtext.data(), stage_memory, site.exec));
    keep(dvisual);
    keep(dtext);
  });
  return got;
}
}  // namespace

TEST_CASE("halos and two-stage sharding on streams give what they give on the host, backward too") {
  const auto want = windows_and_text(test::on_threads{});
  CHECK(windows_and_text(on_device_threads{}) == want);
  if (test::devices() >= 3) CHECK(windows_and_text(on_nccl{}) == want);
}
