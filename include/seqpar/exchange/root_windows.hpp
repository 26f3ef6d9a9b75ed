// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Overlapping windows of a sequence that one member holds: raw frames for an encoder that runs on every rank.
#pragma once

#include <string>
#include <vector>

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The raw frames of one rank, and how many of the latents encoded from them are not to be kept.
struct root_window {
  interval frames;
  index_t drop = 0;
  friend constexpr bool operator==(const root_window&, const root_window&) = default;
};

/// Windows for an encoder that is causal in time and makes one latent of the first frame and one of every `ratio`
/// frames after it: latent 0 ↔ frame 0, latent t ↔ frames ratio·(t−1) + 1 … ratio·t. To keep the latents [a, b), with
/// h = max(0, a − halo):
///
///   h = 0:  frames [0, 1 + ratio·(b−1)),            drop a
///   h > 0:  frames [ratio·(h−1), 1 + ratio·(b−1)),  drop 1 + a − h
///
/// the 1 being the latent of the window's own first frame, which no latent of the sequence is. The halo must cover what
/// the encoder sees, less that one. Source: LongLive-2.0's feeding of its VAE (ratio 4, halo 28 where 27 suffice).
struct causal_windows {
  extent latents;
  extent ratio;
  extent halo;

  constexpr index_t frames() const { return latents == 0 ? 0 : 1 + ratio * (latents - 1); }
  constexpr root_window of(interval keep) const {
    if (keep.empty()) return {};
    const index_t end = 1 + ratio * (keep.hi - 1);
    if (keep.lo <= halo) return {{0, end}, keep.lo};
    const index_t h = keep.lo - halo;
    return {{ratio * (h - 1), end}, 1 + keep.lo - h};
  }
  constexpr flaw problem() const {
    if (latents < 0) return {"causal_windows: latents is negative; give 0 or more", latents};
    if (ratio < 1) return {"causal_windows: ratio is below 1; give 1 or more", ratio};
    if (halo < 0) return {"causal_windows: halo is negative; give 0 or more", halo};
    if (latents > unbounded / ratio) return "causal_windows: more than 2^62 frames; give fewer";
    return nullptr;
  }
  friend constexpr bool operator==(const causal_windows&, const causal_windows&) = default;
};

/// out[i] on member r = in[window_of(r).lo + i] of the root; windows may overlap, be empty, or leave frames out.
/// window_of(r) is alike on every rank. A row is a frame. Adjoint: the sum onto the root. Inverse: where no two windows
/// overlap.
/// Fails: a window that reaches beyond the frames, a root out of range.
template <class Transport, class WindowOf>
result<exchange<Transport>> try_plan_root_windows(const mesh<Transport>& team, index_t frames, WindowOf&& window_of,
                                                  int root, const exchange_options& options) {
  const char* where = "plan_root_windows";
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (failure f = detail::check_root(where, root, team.size())) return *f;
  if (frames < 0 || frames > unbounded) return detail::invalid(where, {"frames must be 0 … 2^62, got ", frames});
  if (options.convention != gradient::sum)
    return detail::invalid(where, "ranks use a window each in their own way; give gradient::sum");
  std::vector<interval> windows;
  std::uint64_t h = 19;
  for (int r = 0; r < team.size(); ++r) {
    const interval w = window_of(r);
    if (!w.empty() && (w.lo < 0 || w.hi > frames))
      return detail::invalid(where, {"the window [", w.lo, ", ", w.hi, ") of rank ", r, " reaches beyond the ", frames,
                                     " frames; clamp it"});
    windows.push_back(w.empty() ? interval{} : w);
    h = detail::statement::mix(detail::statement::mix(h, windows.back().lo), windows.back().hi);
  }
  detail::statement said(where);
  said.add("the number of frames", frames);
  said.add("the root", root);
  said.add_hash("the windows", static_cast<index_t>(h >> 1));
  const interval columns{0, options.columns};
  const auto wants = [&](int r) {
    const interval w = windows[static_cast<std::size_t>(r)];
    holding want{{}, columns};
    want.append({w.lo, w.size(), 1}, 0);
    return want;
  };
  return detail::make_exchange(
      team, [&](int r) { return all_rows(r == root ? frames : 0, columns); }, wants, options, std::move(said),
      detail::ownership(team.size(), wants).disjoint());
}
template <class Transport, class WindowOf>
exchange<Transport> plan_root_windows(const mesh<Transport>& team, index_t frames, WindowOf&& window_of, int root,
                                      const exchange_options& options) {
  return try_plan_root_windows(team, frames, window_of, root, options).value();
}

/// The same from the latents that a layout gives to each rank: the window of rank r is windows.of(its latents).
/// Fails also: a rank whose latents are not one run of neighbours.
template <class Transport, sequence_layout L>
result<exchange<Transport>> try_plan_root_windows(const mesh<Transport>& team, const L& latents,
                                                  const causal_windows& windows, int root,
                                                  const exchange_options& options) {
  const char* where = "plan_root_windows";
  if (failure f = detail::check_layout(where, "the layout of latents", latents, team.size())) return *f;
  if (const flaw what = windows.problem()) return detail::invalid(where, what);
  if (latents.token_count() != windows.latents)
    return detail::invalid(
        where, {"the layout deals ", latents.token_count(), " latents, of ", windows.latents, "; give both the same"});
  std::vector<interval> keep(static_cast<std::size_t>(team.size()));
  for (int r = 0; r < team.size(); ++r) {
    interval& k = keep[static_cast<std::size_t>(r)];
    bool one = true;
    for_each_run(latents, r, [&](run x) {
      if (x.count == 0) return;
      one = one && (x.count == 1 || x.step == 1) && (k.empty() || k.hi == x.first);
      k = {k.empty() ? x.first : k.lo, x.first + x.count};
    });
    if (!one)
      return detail::invalid(where,
                             {"the latents of rank ", r, " are not one run of neighbours; give a contiguous layout"});
  }
  return try_plan_root_windows(
      team, windows.frames(), [&](int r) { return windows.of(keep[static_cast<std::size_t>(r)]).frames; }, root,
      options);
}
template <class Transport, sequence_layout L>
exchange<Transport> plan_root_windows(const mesh<Transport>& team, const L& latents, const causal_windows& windows,
                                      int root, const exchange_options& options) {
  return try_plan_root_windows(team, latents, windows, root, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
