// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any window a rank: the inputs of a strided or dilated convolution, overlapping tiles, a crop.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/window_exchange.hpp>
#include <seqpar/layout/grid.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What stands beyond the ends, by axis, for windows that are given one by one.
struct grid_border {
  border time = border::clamp, height = border::clamp, width = border::clamp;
};

namespace detail {

/// What one rank owns and wants. Boxes lie one after the other in memory.
struct rank_boxes {
  std::vector<box> own, padded;
};

/// Bytes that a run may have to address for a box, gaps of its format and fp32 sums of each of its rows included.
inline long double reach_of(const box& b, const box_format& format, const exchange_options& o) {
  const auto size = [](interval i) { return static_cast<long double>(i.hi) - static_cast<long double>(i.lo); };
  const auto of = [](index_t n) { return static_cast<long double>(n); };
  if (b.empty()) return 0;
  const long double line = size(b.w) * of(o.row_bytes) + of(format.pitch) * of(o.columns);
  const long double rows_in_a_pixel = format.pitch == 0 ? 1 : of(o.row_bytes);
  return 4 * size(b.t) * size(b.h) * line * of(std::max<index_t>(o.batch, 1)) * rows_in_a_pixel;
}

/// Repeated rows of an edge are a run each, of all ranks in every rank's plan.
inline constexpr index_t most_edge_runs = index_t{1} << 26;

/// The common tail: boxes_of(r) is what rank r owns and wants, alike on every rank. `halo`: window i lies around box i.
template <class Transport, class BoxesOf>
result<window_exchange<Transport>> plan_boxes(const char* where, const mesh<Transport>& team, const frame_shape& shape,
                                              BoxesOf&& boxes_of, const borders& over, const exchange_options& options,
                                              const box_format& format, bool halo) {
  if (format.pitch < 0) return invalid(where, {"pitch must not be negative, got ", format.pitch});
  if (options.convention != gradient::sum)
    return invalid(where, "ranks use a window each in their own way; give gradient::sum");
  const bool in_place = options.placement == placement::in_place;
  const interval columns{0, options.columns};
  const auto lay_out = [&](const std::vector<box>& boxes) {
    return buffer_places(boxes, format, options.columns, options.row_bytes / options.columns);
  };

  std::vector<holding> all_owned, all_wanted;
  statement said(where);
  std::uint64_t h = 17;
  rank_boxes mine;
  std::vector<box> parts;  // that rows go to, of all ranks
  index_t edge_runs = 0;
  for (int r = 0; r < team.size(); ++r) {
    rank_boxes b = boxes_of(r);
    const auto wrong = [&](const char* what) { return invalid(where, {"the window of rank ", r, what}); };
    for (box& p : b.padded) p = held(p, shape, over);
    long double reach = 0;
    for (const auto* list : {&b.own, &b.padded})
      for (const box& p : *list) reach += reach_of(p, format, options);
    if (reach > 0x1p62L) return wrong(" may take more than 2^62 bytes; give less");
    if (in_place) {
      bool around = b.own.size() == b.padded.size();
      for (std::size_t i = 0; around && i < b.own.size(); ++i) around = b.padded[i].contains(b.own[i]);
      if (!around)
        return wrong(" does not hold the rows that the rank owns, as placement::in_place needs; give placement::apart");
    }
    const buffer_places to = lay_out(b.padded), from = lay_out(in_place ? b.padded : b.own);
    box_holding want(shape, columns), own(shape, columns);
    for (std::size_t i = 0; i < b.padded.size(); ++i) {
      const box part = filled(b.padded[i], shape, over);
      if (!shape.all().contains(part)) {
        edge_runs += std::min(want.runs_of(part, to.boxes[i]), most_edge_runs + 1);
        if (edge_runs > most_edge_runs)
          return wrong(" repeats too many rows of an edge (2^26 runs at most); clamp, fill with zeros, or give less");
      }
      want.append(b.padded[i], part, to.boxes[i]);
      parts.push_back(part);
    }
    for (std::size_t i = 0; i < b.own.size(); ++i)
      own.append(in_place ? b.padded[i] : b.own[i], b.own[i], from.boxes[i]);
    for (const auto* list : {&b.own, &b.padded}) {
      h = statement::mix(h, static_cast<index_t>(list->size()));
      for (const box& x : *list)
        for (interval i : {x.t, x.h, x.w}) h = statement::mix(statement::mix(h, i.lo), i.hi);
    }
    all_owned.push_back(std::move(own.held));
    all_wanted.push_back(std::move(want.held));
    if (r == team.index()) mine = std::move(b);
  }
  for (index_t n : {shape.t, shape.h, shape.w}) h = statement::mix(h, n);
  for (border b : {over.t, over.h, over.w}) h = statement::mix(h, static_cast<index_t>(b));
  said.add_hash("the windows and borders", static_cast<index_t>(h >> 1));
  said.add_hash("the order of boxes in memory", static_cast<index_t>(format.order));
  said.add("the pitch", format.pitch);
  said.add_hash("the placement", static_cast<index_t>(options.placement));

  buffer_places padded = lay_out(mine.padded), owned = in_place ? padded : lay_out(mine.own);
  std::vector<placed_window> windows;
  for (std::size_t i = 0; i < mine.padded.size(); ++i) {
    const box& p = mine.padded[i];
    windows.push_back({p, p.inside(shape.all()), halo ? mine.own[i] : box{}, padded.boxes[i].first,
                       without(p, filled(p, shape, over))});
  }
  const auto owns = [&](int r) -> const holding& { return all_owned[static_cast<std::size_t>(r)]; };
  const auto wants = [&](int r) -> const holding& { return all_wanted[static_cast<std::size_t>(r)]; };
  auto made = make_exchange(team, owns, wants, options, std::move(said), wanted_once(std::move(parts), shape));
  if (!made.ok()) return made.failure();
  return window_exchange<Transport>(std::move(made).value(), std::move(windows), std::move(owned), std::move(padded),
                                    options);
}

/// Units of a run that do not follow one another have a window each; a run of more is taken for no order.
inline constexpr index_t most_lone_units = index_t{1} << 20;

/// Boxes of `unit` tokens a frame: one for as many units as follow one another, in the sequence as on the rank.
template <class L>
failure boxes_of_runs(const char* where, const L& layout, int ranks, index_t unit, std::vector<std::vector<box>>& all) {
  if (unit < 1) return invalid(where, {"unit must be at least 1, got ", unit});
  if (layout.token_count() % unit != 0)
    return invalid(where,
                   {layout.token_count(), " tokens are no whole number of units of ", unit, "; give whole units"});
  for (int r = 0; r < ranks; ++r) {
    const auto fail = [&](const char* what) {
      return invalid(
          where, {"rank ", r, what, "; give a layout in order, with a granule that is a multiple of the unit ", unit});
    };
    std::vector<interval> pieces;  // of tokens
    bool scattered = false;
    const auto add = [&](index_t first, index_t count) {
      if (!pieces.empty() && pieces.back().hi == first)
        pieces.back().hi += count;
      else
        pieces.push_back({first, first + count});
    };
    for_each_run(layout, r, [&](run x) {
      if (x.step == 1 && x.count > 0)
        add(x.first, x.count);
      else if (x.count > most_lone_units)
        scattered = true;
      else
        for (index_t i = 0; i < x.count; ++i) add(x.at(i), 1);
    });
    if (scattered)
      return fail(" owns many units in a row that do not follow one another: there is no order for a halo");
    std::vector<box>& boxes = all.emplace_back();
    bool neighbours = pieces.size() < 3;
    for (const interval& p : pieces) {
      if (p.lo % unit != 0 || p.size() % unit != 0) return fail(" owns units in parts or not in order");
      neighbours = neighbours || p.size() > unit;
      boxes.push_back({{p.lo / unit, p.hi / unit}, {0, 1}, {0, unit}});
    }
    if (!neighbours) return fail(" owns no two units that follow one another: there is no order for a halo");
  }
  return {};
}

template <class Transport, class L>
failure check_windows(const char* where, const mesh<Transport>& team, const L& layout,
                      const exchange_options& options) {
  if (failure f = check_exchange(where, options)) return f;
  return check_layout(where, "the layout", layout, team.size());
}

}  // namespace detail

/// Any window a rank: window_of(r) is the interval of units (of the layout's tokens) that rank r wants, alike on every
/// rank. For strides and dilations: the inputs of outputs [a, b) are [a·stride − pad, (b−1)·stride − pad +
/// dilation·(k−1)
/// + 1).
template <class Transport, sequence_layout L, class WindowOf>
requires(!std::same_as<L, grid>) result<window_exchange<Transport>> try_plan_windows(
    const mesh<Transport>& team, const L& layout, WindowOf&& window_of, border beyond, const exchange_options& options,
    extent unit = 1) {
  const char* where = "plan_windows";
  if (failure f = detail::check_windows(where, team, layout, options)) return *f;
  std::vector<std::vector<box>> own;
  if (failure f = detail::boxes_of_runs(where, layout, team.size(), unit, own)) return *f;
  const auto boxes = [&](int r) {
    return detail::rank_boxes{own[static_cast<std::size_t>(r)], {{window_of(r), {0, 1}, {0, unit}}}};
  };
  return detail::plan_boxes(where, team, {layout.token_count() / unit, 1, unit}, boxes, {beyond}, options, {}, false);
}
template <class Transport, sequence_layout L, class WindowOf>
requires(!std::same_as<L, grid>) window_exchange<Transport> plan_windows(const mesh<Transport>& team, const L& layout,
                                                                         WindowOf&& window_of, border beyond,
                                                                         const exchange_options& options,
                                                                         extent unit = 1) {
  return try_plan_windows(team, layout, window_of, beyond, options, unit).value();
}

/// The same on frames: box_of(r) is the box that rank r wants.
template <class Transport, class BoxOf>
result<window_exchange<Transport>> try_plan_windows(const mesh<Transport>& team, const grid& tiles, BoxOf&& box_of,
                                                    const grid_border& beyond, const exchange_options& options,
                                                    const box_format& format = {}) {
  const char* where = "plan_windows";
  if (failure f = detail::check_windows(where, team, tiles, options)) return *f;
  const auto boxes = [&](int r) {
    const box own{{0, tiles.frames}, tiles.h_span(r), tiles.w_span(r)};
    return detail::rank_boxes{{own.empty() ? box{} : own}, {box_of(r)}};
  };
  return detail::plan_boxes(where, team, {tiles.frames, tiles.height, tiles.width}, boxes,
                            {beyond.time, beyond.height, beyond.width}, options, format, false);
}
template <class Transport, class BoxOf>
window_exchange<Transport> plan_windows(const mesh<Transport>& team, const grid& tiles, BoxOf&& box_of,
                                        const grid_border& beyond, const exchange_options& options,
                                        const box_format& format = {}) {
  return try_plan_windows(team, tiles, box_of, beyond, options, format).value();
}

}  // namespace v0_1
}  // namespace seqpar
