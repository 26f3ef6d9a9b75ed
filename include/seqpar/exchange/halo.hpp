// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Halo exchange: every rank gets its own rows and those around them, in time, in height and width, or in all three.
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/windows.hpp>

namespace seqpar {
inline namespace v0_1 {

/// How far a window reaches beyond its own rows, and what stands beyond the ends of the sequence. Any width is legal,
/// wider than the neighbour's shard too: rows come from whoever owns them.
struct halo_width {
  index_t before = 0, after = 0;
  seqpar::border border = border::clamp;
};

/// Along a sequence, in units of `unit` tokens (a frame of h·w tokens, say).
struct sequence_halo {
  index_t before = 0, after = 0;
  seqpar::border border = border::clamp;
  extent unit = 1;
};

/// On frames × height × width, corners included.
struct grid_halo {
  halo_width time = {}, height = {}, width = {};
};

namespace detail {

inline failure check_width(const char* where, const char* axis, const halo_width& w) {
  if (w.before < 0 || w.after < 0)
    return invalid(where, {axis, ": before and after must not be negative, got ", w.before, " and ", w.after});
  if (w.before > unbounded || w.after > unbounded)
    return invalid(where, {axis, ": a halo of ", w.before, " and ", w.after, " is too wide; give 2^62 or less"});
  return {};
}

constexpr interval widened(interval own, const halo_width& w) {
  constexpr index_t last = (std::numeric_limits<index_t>::max)();
  return own.empty() ? interval{}
                     : interval{own.lo - w.before, own.hi + (w.after < last - own.hi ? w.after : last - own.hi)};
}

}  // namespace detail

/// Each run [lo, hi) of units that follow one another on a rank becomes the window [lo − before, hi + after):
///
///   out[first + i] = row (lo − before)·unit + i of the sequence, 0 ≤ i < (before + hi − lo + after)·unit
///
/// clamped to the sequence, or filled (border). A contiguous rank has one window; zigzag has two, one after the other,
/// each whole by itself: rows in both come twice. A rank without rows has no window. Rows are tokens of row_bytes.
/// With placement::in_place, `in` and `out` are the padded buffer. Adjoint: halo gradients are added to the owner's.
/// Fails: a layout without order: units in parts, or a rank with three or more units of which no two follow one another
/// (striped by one unit, a reversed order); tokens that are no whole units; negative widths.
template <class Transport, sequence_layout L>
requires(!std::same_as<L, grid>) result<window_exchange<Transport>> try_plan_halo(const mesh<Transport>& team,
                                                                                  const L& layout,
                                                                                  const sequence_halo& halo,
                                                                                  const exchange_options& options) {
  const char* where = "plan_halo";
  const halo_width time{halo.before, halo.after, halo.border};
  if (failure f = detail::check_windows(where, team, layout, options)) return *f;
  if (failure f = detail::check_width(where, "the halo", time)) return *f;
  std::vector<std::vector<box>> own;
  if (failure f = detail::boxes_of_runs(where, layout, team.size(), halo.unit, own)) return *f;
  const auto boxes = [&](int r) {
    detail::rank_boxes b{own[static_cast<std::size_t>(r)], {}};
    for (const box& o : b.own) b.padded.push_back({detail::widened(o.t, time), o.h, o.w});
    return b;
  };
  return detail::plan_boxes(where, team, {layout.token_count() / halo.unit, 1, halo.unit}, boxes, {halo.border},
                            options, {}, true);
}
template <class Transport, sequence_layout L>
requires(!std::same_as<L, grid>) window_exchange<Transport> plan_halo(const mesh<Transport>& team, const L& layout,
                                                                      const sequence_halo& halo,
                                                                      const exchange_options& options) {
  return try_plan_halo(team, layout, halo, options).value();
}

/// The tile of a rank, widened on all sides of all frames:
///
///   out[t, y, x] = in(t0 − time.before + t, h0 − height.before + y, w0 − width.before + x)
///
/// Rows are pixels of row_bytes; `format` says how boxes lie in memory, options.columns are the channels where they do
/// not come last. Tiles may be uneven or empty, halos wider than tiles.
template <class Transport>
result<window_exchange<Transport>> try_plan_halo(const mesh<Transport>& team, const grid& tiles, const grid_halo& halo,
                                                 const exchange_options& options, const box_format& format = {}) {
  const char* where = "plan_halo";
  if (failure f = detail::check_windows(where, team, tiles, options)) return *f;
  for (const auto& [axis, w] : {std::pair{"time", halo.time}, {"height", halo.height}, {"width", halo.width}})
    if (failure f = detail::check_width(where, axis, w)) return *f;
  const auto boxes = [&](int r) {
    const box own{{0, tiles.frames}, tiles.h_span(r), tiles.w_span(r)};
    if (own.empty()) return detail::rank_boxes{{box{}}, {box{}}};
    return detail::rank_boxes{
        {own},
        {{detail::widened(own.t, halo.time), detail::widened(own.h, halo.height), detail::widened(own.w, halo.width)}}};
  };
  return detail::plan_boxes(where, team, {tiles.frames, tiles.height, tiles.width}, boxes,
                            {halo.time.border, halo.height.border, halo.width.border}, options, format, true);
}
template <class Transport>
window_exchange<Transport> plan_halo(const mesh<Transport>& team, const grid& tiles, const grid_halo& halo,
                                     const exchange_options& options, const box_format& format = {}) {
  return try_plan_halo(team, tiles, halo, options, format).value();
}

}  // namespace v0_1
}  // namespace seqpar
