// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any window a rank: the inputs of a strided or dilated convolution, overlapping tiles, a crop.
#pragma once

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

/// The window as it is held: clamped axes end with the sequence.
constexpr box held(const box& b, const frame_shape& shape, const borders& over) {
  const auto cut = [](interval i, index_t n, border o) {
    return i.empty() ? interval{} : o == border::clamp ? intersection(i, {0, n}) : i;
  };
  const box c{cut(b.t, shape.t, over.t), cut(b.h, shape.h, over.h), cut(b.w, shape.w, over.w)};
  return c.t.empty() || c.h.empty() || c.w.empty() ? box{} : c;
}

inline bool countable(const box& b, index_t bytes) {
  index_t left = unbounded / bytes;
  for (index_t n : {b.t.size(), b.h.size(), b.w.size()}) {
    if (n > left) return false;
    if (n > 0) left /= n;
  }
  return true;
}

/// The common tail: boxes_of(r) is what rank r owns and wants, alike on every rank. `halo`: window i lies around box i.
template <class Transport, class BoxesOf>
result<window_exchange<Transport>> plan_boxes(const char* where, const mesh<Transport>& team, const frame_shape& shape,
                                              BoxesOf&& boxes_of, const borders& over, const exchange_options& options,
                                              const box_format& format, bool halo) {
  if (format.pitch < 0) return invalid(where, "pitch must not be negative, got " + std::to_string(format.pitch));
  if (options.convention != gradient::sum)
    return invalid(where, "ranks use a window each in their own way; give gradient::sum");
  const bool in_place = options.placement == placement::in_place;
  const index_t column_bytes = options.row_bytes / options.columns;
  const interval columns{0, options.columns};

  std::vector<holding> all_owned, all_wanted;
  statement said(where);
  std::uint64_t h = 17;
  rank_boxes mine;
  buffer_places owned, padded;
  std::vector<run> blank;
  bool once = true;
  for (int r = 0; r < team.size(); ++r) {
    rank_boxes b = boxes_of(r);
    for (box& p : b.padded) {
      p = held(p, shape, over);
      if (!countable(p, options.row_bytes))
        return invalid(where, "the window of rank " + std::to_string(r) + " has more than 2^62 bytes; give less");
    }
    if (in_place) {
      bool around = b.own.size() == b.padded.size();
      for (std::size_t i = 0; around && i < b.own.size(); ++i) around = b.padded[i].contains(b.own[i]);
      if (!around)
        return invalid(where, "the window of rank " + std::to_string(r) +
                                  " does not hold the rows that the rank owns, as placement::in_place needs; give "
                                  "placement::apart");
    }
    const buffer_places to = lay_out(b.padded, format, options.columns, column_bytes);
    const buffer_places from = in_place ? to : lay_out(b.own, format, options.columns, column_bytes);
    box_holding want(shape, columns), own(shape, columns);
    for (std::size_t i = 0; i < b.padded.size(); ++i) want.append(b.padded[i], over, to.first[i], to.of[i]);
    for (std::size_t i = 0; i < b.own.size(); ++i) {
      index_t first = from.first[i];
      if (in_place) {
        const box &o = b.own[i], &p = b.padded[i];
        first += (o.t.lo - p.t.lo) * from.of[i].t + (o.h.lo - p.h.lo) * from.of[i].h + (o.w.lo - p.w.lo) * from.of[i].w;
      }
      own.append(b.own[i], over, first, from.of[i]);
    }
    once = once && b.own == b.padded;
    for (const auto* list : {&b.own, &b.padded}) {
      h = statement::mix(h, static_cast<index_t>(list->size()));
      for (const box& x : *list)
        for (interval i : {x.t, x.h, x.w}) h = statement::mix(statement::mix(h, i.lo), i.hi);
    }
    all_owned.push_back(std::move(own.held));
    all_wanted.push_back(std::move(want.held));
    if (r == team.index()) {
      mine = std::move(b);
      owned = from;
      padded = to;
      blank = std::move(want.blank);
    }
  }
  for (index_t n : {shape.t, shape.h, shape.w}) h = statement::mix(h, n);
  for (border b : {over.t, over.h, over.w}) h = statement::mix(h, static_cast<index_t>(b));
  said.add_hash("the windows and borders", static_cast<index_t>(h >> 1));
  said.add_hash("the order of boxes in memory", static_cast<index_t>(format.order));
  said.add("the pitch", format.pitch);
  said.add_hash("the placement", static_cast<index_t>(options.placement));

  std::vector<placed_window> windows;
  for (std::size_t i = 0; i < mine.padded.size(); ++i) {
    const box& p = mine.padded[i];
    windows.push_back({p, p.inside(shape.all()), halo ? mine.own[i] : box{}, padded.first[i]});
  }
  const auto shape_of_first =
      mine.own.empty() ? std::array<index_t, 3>{} : shape_of((in_place ? mine.padded : mine.own)[0]);
  auto made = make_exchange(
      team, [&](int r) -> const holding& { return all_owned[static_cast<std::size_t>(r)]; },
      [&](int r) -> const holding& { return all_wanted[static_cast<std::size_t>(r)]; }, options, std::move(said), once);
  if (!made.ok()) return made.failure();
  return window_exchange<Transport>(std::move(made).value(), std::move(windows), std::move(blank), std::move(owned),
                                    std::move(padded), shape_of_first, options);
}

/// Boxes of `unit` tokens a frame: one for as many units as follow one another, in the sequence as on the rank.
template <class L>
failure boxes_of_runs(const char* where, const L& layout, int ranks, index_t unit, std::vector<std::vector<box>>& all) {
  if (unit < 1) return invalid(where, "unit must be at least 1, got " + std::to_string(unit));
  if (layout.token_count() % unit != 0)
    return invalid(where, std::to_string(layout.token_count()) + " tokens are no whole number of units of " +
                              std::to_string(unit) + "; give whole units");
  for (int r = 0; r < ranks; ++r) {
    const auto fail = [&](const char* what) {
      return invalid(where, "rank " + std::to_string(r) + what + "; give a layout in order, with a granule that is a " +
                                "multiple of the unit " + std::to_string(unit));
    };
    std::vector<interval> pieces;  // of tokens
    const auto add = [&](index_t first, index_t count) {
      if (!pieces.empty() && pieces.back().hi == first)
        pieces.back().hi += count;
      else
        pieces.push_back({first, first + count});
    };
    for_each_run(layout, r, [&](run x) {
      if (x.step == 1 && x.count > 0)
        add(x.first, x.count);
      else
        for (index_t i = 0; i < x.count; ++i) add(x.at(i), 1);
    });
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
