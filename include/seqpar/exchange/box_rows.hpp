// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Boxes of a sequence of frames as rows of memory: where they lie, what goes into them, what stays blank.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <seqpar/detail/sort_by.hpp>
#include <seqpar/exchange/box_view.hpp>
#include <seqpar/exchange/holding.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What a window holds where it reaches over an end of the sequence.
enum class border {
  clamp,  ///< nothing: the window ends with the sequence
  zero,   ///< zeros, written by forward; their gradients are dropped
  edge    ///< the nearest row; its gradients are added to that row
};

namespace detail {

struct borders {
  border t = border::clamp, h = border::clamp, w = border::clamp;
};

/// Row (t, y, x) of the sequence is t·H·W + y·W + x.
struct frame_shape {
  index_t t, h, w;
  box all() const { return {{0, t}, {0, h}, {0, w}}; }
};

/// The position that an edge repeats at i.
constexpr index_t nearest(index_t i, index_t count) {
  return std::clamp<index_t>(i, 0, count - 1);
}

/// The part of a box that is `part(axis, positions, border)` along each axis, or the empty box.
template <class Part>
constexpr box cut(const box& b, const frame_shape& s, const borders& over, Part&& part) {
  const box c{part(b.t, s.t, over.t), part(b.h, s.h, over.h), part(b.w, s.w, over.w)};
  return c.empty() ? box{} : c;
}
/// A window as it lies in memory: clamped axes end with the sequence.
constexpr box held(const box& b, const frame_shape& s, const borders& over) {
  return cut(b, s, over, [](interval i, index_t n, border o) {
    return o == border::clamp ? intersection(i, {0, n}) : i;
  });
}
/// Its part that rows go to.
constexpr box filled(const box& b, const frame_shape& s, const borders& over) {
  return cut(b, s, over, [](interval i, index_t n, border o) {
    return o == border::edge && n > 0 ? i : intersection(i, {0, n});
  });
}

/// A box less a part of it, in at most six boxes.
template <class = when_used>
std::vector<box> without(const box& b, const box& part) {
  std::vector<box> rest;
  const auto add = [&](interval t, interval h, interval w) {
    if (const box c{t, h, w}; !c.empty()) rest.push_back(c);
  };
  if (part.empty()) {
    add(b.t, b.h, b.w);
    return rest;
  }
  add({b.t.lo, part.t.lo}, b.h, b.w);
  add({part.t.hi, b.t.hi}, b.h, b.w);
  add(part.t, {b.h.lo, part.h.lo}, b.w);
  add(part.t, {part.h.hi, b.h.hi}, b.w);
  add(part.t, part.h, {b.w.lo, part.w.lo});
  add(part.t, part.h, {part.w.hi, b.w.hi});
  return rest;
}

/// Is no row of the sequence wanted twice by these parts, which rows go to?
template <class = when_used>
bool wanted_once(std::vector<box> parts, const frame_shape& s) {
  std::erase_if(parts, [](const box& b) { return b.empty(); });
  for (box& b : parts)
    for (const auto& [along, n] : {std::pair{&b.t, s.t}, {&b.h, s.h}, {&b.w, s.w}}) {
      const interval from{nearest(along->lo, n), nearest(along->hi - 1, n) + 1};
      if (from.size() < along->size()) return false;  // an edge that repeats
      *along = from;
    }
  sort_by(parts, [](const box& b) { return b.t.lo; });
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = i + 1; j < parts.size() && parts[j].t.lo < parts[i].t.hi; ++j)
      if (!parts[i].inside(parts[j]).empty()) return false;
  return true;
}

/// Boxes one after the other in one buffer.
struct buffer_places {
  struct placed_box {
    index_t first;  ///< its first row
    std::array<index_t, 3> shape;
    box_places at;
  };
  std::vector<placed_box> boxes;
  index_t unit, column_stride, batch_stride = 0;  ///< bytes
  index_t rows = 0;                               ///< up to behind the last pixel

  template <class = when_used>
  buffer_places(const std::vector<box>& list, const box_format& format, index_t columns, index_t column_bytes) {
    const box_places none = places_of({0, 0, 0}, format, columns, column_bytes);
    unit = none.unit;
    column_stride = none.column_stride;
    index_t next = 0;
    for (const box& b : list) {
      const std::array<index_t, 3> shape{b.t.size(), b.h.size(), b.w.size()};
      const box_places p = places_of(shape, format, columns, column_bytes);
      boxes.push_back({next, shape, p});
      if (!b.empty()) rows = next + (shape[0] - 1) * p.t + (shape[1] - 1) * p.h + (shape[2] - 1) * p.w + 1;
      next += p.rows;
      unit = p.unit;
      column_stride = p.column_stride;
      batch_stride += p.batch_stride;
    }
  }
};

/// Gathers the holding of a rank from boxes.
class box_holding {
 public:
  box_holding(const frame_shape& shape, interval columns) : shape_(shape) { held.columns = columns; }

  holding held;

  /// The rows of `part` of box b, which lies at p. Places beyond an end take the nearest row.
  template <class = when_used>
  void append(const box& b, const box& part, const buffer_places::placed_box& p) {
    const bool whole = whole_frames(part, p.at);
    for (index_t t = part.t.lo; t < part.t.hi; ++t) {
      const index_t from = nearest(t, shape_.t), place = p.first + (t - b.t.lo) * p.at.t;
      if (whole) {  // all frames inside at once
        const index_t frames = inside_from(t, part.t, shape_.t);
        rows(from * shape_.h * shape_.w, frames * shape_.h * shape_.w, place, p.at.w);
        t += frames - 1;
        continue;
      }
      for (index_t y = part.h.lo; y < part.h.hi; ++y)
        line(part.w, (from * shape_.h + nearest(y, shape_.h)) * shape_.w,
             place + (y - b.h.lo) * p.at.h + (part.w.lo - b.w.lo) * p.at.w, p.at.w);
    }
  }
  /// How many runs of rows that takes.
  template <class = when_used>
  index_t runs_of(const box& part, const buffer_places::placed_box& p) const {
    const auto along = [](interval i, index_t n) {
      const interval inside = intersection(i, {0, n});
      return i.size() - inside.size() + (inside.empty() ? 0 : 1);
    };
    return whole_frames(part, p.at) ? along(part.t, shape_.t) : part.t.size() * part.h.size() * along(part.w, shape_.w);
  }

 private:
  /// How many positions from i on are inside; 1 where i itself is not.
  static index_t inside_from(index_t i, interval part, index_t count) {
    return i == nearest(i, count) ? std::min(part.hi, count) - i : 1;
  }
  bool whole_frames(const box& part, const box_places& p) const {
    return part.h == interval{0, shape_.h} && part.w == interval{0, shape_.w} && p.h == shape_.w * p.w &&
           p.t == shape_.h * p.h;
  }
  template <class = when_used>
  void line(interval w, index_t row, index_t place, index_t step) {
    for (index_t x = w.lo, count = 0; x < w.hi; x += count, place += count * step) {
      count = inside_from(x, w, shape_.w);
      rows(row + nearest(x, shape_.w), count, place, step);
    }
  }
  template <class = when_used>
  void rows(index_t row, index_t count, index_t place, index_t step) {
    if (count <= 0) return;
    if (!held.pieces.empty()) {
      row_piece& p = held.pieces.back();
      if (row == p.rows.at(p.rows.count) && place == p.place + p.rows.count * step && step == p.place_step) {
        p.rows.count += count;
        return;
      }
    }
    held.pieces.push_back({{row, count, 1}, place, step});
  }
  frame_shape shape_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
