// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Frames are encoded once and kept; every rollout and both prefills draw on them, and no video token is lost.
#include <doctest/doctest.h>

#include <atomic>

#include <seqpar/exchange/sums.hpp>
#include <seqpar/exchange/two_stage.hpp>
#include <tests/exchange/ranks.hpp>

using namespace exchange_test;

namespace {

/// Tokens of a prefill of `tokens`, of which `video` from `first` on are video, that the published rule gives no rank:
/// V div P video tokens each, the last rank counting back from the end of the video.
std::vector<index_t> lost_by_floor_division(index_t tokens, index_t first, index_t video, index_t ranks) {
  const index_t each = video / ranks;
  std::vector<index_t> lost;
  for (index_t t = 0; t < tokens; ++t) {
    const bool on_first = t < first + each, on_last = t >= first + video - each;
    const bool between = t >= first && t < first + (ranks - 1) * each;
    if (!on_first && !on_last && !between) lost.push_back(t);
  }
  return lost;
}

}  // namespace

TEST_CASE("all video tokens arrive, whether or not the ranks divide them, where a floor division loses 14 and 15") {
  CHECK(lost_by_floor_division(24, 2, 16, 4).empty());
  CHECK(lost_by_floor_division(26, 2, 18, 4) == std::vector<index_t>{14, 15});
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t video : {0, 1, 16, 18}) {
      // every frame is one row; 2 tokens of prompt before, 2 behind, 4 of the response
      const assembly s =
          assembly(std::vector<index_t>(static_cast<std::size_t>(video), 1)).text(2).items(0, video).text(6);
      const layouts every(s.token_count(), ranks);
      const item_deal deal = deal_items(video, ranks);
      for (const any_layout& layout : every.all()) {
        std::vector<std::atomic<int>> arrived(static_cast<std::size_t>(video));
        on_ranks(ranks, [&](const team_type& team, flight_record&) {
          auto prefill = plan_two_stage(team, s, deal, layout, {.row_bytes = sizeof(float)});
          const host_memory memory = prepared(prefill);
          std::vector<float> frames, text(8, -1), out(static_cast<std::size_t>(prefill.rows()), -2);
          for (index_t i : deal.items_of(team.index())) frames.push_back(static_cast<float>(i));
          check(prefill.forward(frames.data(), text.data(), out.data(), memory, on_host{}));
          for (index_t i = 0; i < prefill.rows(); ++i) {
            const index_t t = layout.global_of(team.index(), i);
            if (t < 2 || t >= 2 + video) {
              require(at(out, i) == -1.f, "a token of text");
            } else {
              require(at(out, i) == static_cast<float>(t - 2), "a token of the video");
              ++arrived[static_cast<std::size_t>(t - 2)];
            }
          }
        });
        for (const auto& n : arrived) CHECK(n == 1);
      }
    }
}

TEST_CASE(
    "one encoding serves n rollouts, the policy in one layout and the reference in another; gradients come home") {
  constexpr int ranks = 4, rollouts = 3;
  constexpr index_t frames = 9, width = 2;
  const std::vector<index_t> rows(frames, 2);  // V = 18
  const item_deal deal = deal_items(index_t{frames}, ranks);
  // responses have other lengths; the prompt and its video are the same
  const auto sequence_of = [&](int rollout) {
    return assembly(rows).text(2).items(0, frames).text(2).text(4 + rollout);
  };
  std::atomic<int> encoded{0};
  // Σ over the rollouts' policy tokens of a gradient that depends on the token
  std::vector<double> want(18 * width, 0.);
  for (int k = 0; k < rollouts; ++k)
    for (index_t t = 0; t < 18; ++t)
      for (index_t e = 0; e < width; ++e) want[static_cast<std::size_t>(t * width + e)] += noise(t + 2, e, k);
  on_ranks(
      ranks,
      [&](const team_type& team, flight_record& record) {
        const int me = team.index();
        std::vector<double> cache;  // what this rank's encoder made, kept
        for (index_t frame : deal.items_of(me)) {
          ++encoded;
          for (index_t row = 0; row < 2; ++row)
            for (index_t e = 0; e < width; ++e) cache.push_back(noise(frame, row, e));
        }
        const std::vector<double> kept = cache;
        std::vector<double> d_cache(cache.size(), 0.), d(cache.size());
        for (int k = 0; k < rollouts; ++k) {
          const assembly s = sequence_of(k);
          const zigzag policy_layout{.tokens = s.token_count(), .ranks = ranks};
          const contiguous reference_layout{.tokens = s.token_count(), .ranks = ranks};
          const exchange_options options{.row_bytes = width * sizeof(double)};
          auto policy = plan_two_stage(team, s, deal, policy_layout, options);
          auto reference = plan_two_stage(team, s, deal, reference_layout,
                                          {.row_bytes = width * sizeof(double), .passes = forward_only});
          const host_memory m1 = prepared(policy), m2 = prepared(reference);
          std::vector<double> text, a(static_cast<std::size_t>(policy.rows() * width)),
              b(static_cast<std::size_t>(reference.rows() * width));
          for (index_t i = 0; i < s.text_rows() * width; ++i) text.push_back(noise(i, 5, k));
          check(policy.forward(cache.data(), text.data(), a.data(), m1, on_host{}));
          const index_t bytes = bytes_sent_by(
              record, [&] { return reference.forward(cache.data(), text.data(), b.data(), m2, on_host{}); });
          index_t wanted = 0;
          for (index_t t = 2; t < 20; ++t)
            wanted += deal.place_of((t - 2) / 2).rank == me && reference_layout.place_of(t).rank != me;
          require(bytes == wanted * 16, "bytes of a prefill");
          const auto right = [&](const auto& layout, const std::vector<double>& shard) {
            for (index_t i = 0; i < layout.count_of(me); ++i)
              for (index_t e = 0; e < width; ++e) {
                const auto from = s.source_of(layout.global_of(me, i));
                const double x = from.item < 0 ? noise(from.row * width + e, 5, k) : noise(from.item, from.row, e);
                require(at(shard, i * width + e) == x, "an embedding");
              }
          };
          right(policy_layout, a);
          right(reference_layout, b);
          std::vector<double> d_a, d_text(text.size());
          for (index_t i = 0; i < policy_layout.count_of(me); ++i)
            for (index_t e = 0; e < width; ++e) d_a.push_back(noise(policy_layout.global_of(me, i), e, k));
          check(policy.adjoint<double>(d_a.data(), d.data(), d_text.data(), m1, on_host{}));
          for (std::size_t i = 0; i < d.size(); ++i) d_cache[i] += d[i];
        }
        require(cache == kept, "the cache changed");
        std::size_t i = 0;
        for (index_t frame : deal.items_of(me))
          for (index_t j = 0; j < 2 * width; ++j, ++i)
            require(std::abs(d_cache[i] - at(want, frame * 2 * width + j)) <= 1e-14, "gradient of a frame");
      },
      7);
  CHECK(encoded == frames);
}

TEST_CASE("rollouts packed into one sequence draw on the same rows, whose gradients are summed") {
  constexpr int ranks = 3;
  assembly packed({3, 2});
  for (int k = 0; k < 4; ++k) packed.text(1).items(0, 2).text(1 + k);
  const item_deal deal = deal_items(index_t{2}, ranks);
  const striped layout{.tokens = packed.token_count(), .ranks = ranks};
  on_ranks(ranks, [&](const team_type& team, flight_record&) {
    auto plan = plan_two_stage(team, packed, deal, layout, {.row_bytes = sizeof(float)});
    const host_memory memory = prepared(plan);
    std::vector<float> d_out(static_cast<std::size_t>(plan.rows()), 1), d(static_cast<std::size_t>(plan.visual_rows())),
        d_text(static_cast<std::size_t>(plan.text_rows()));
    check(plan.adjoint<float>(d_out.data(), d.data(), d_text.data(), memory, on_host{}));
    for (float x : d) require(x == 4, "four rollouts");
    auto sum = plan_all_reduce<float>(team, plan.text_rows());  // where each rank needs the text's whole gradient
    const host_memory scratch = prepared(sum);
    check(sum.forward(d_text, std::span(d_text), scratch, on_host{}));
    for (float x : d_text) require(x == 1, "text");
  });
}
