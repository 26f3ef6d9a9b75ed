// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One call's tables as few rectangles with a diagonal band each, for kernels that cannot read tables (cuDNN SDPA,
// FlashAttention).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <seqpar/detail/sort_by.hpp>
#include <seqpar/kernel/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Query rows q … q + q_rows − 1 against key rows k … k + k_rows − 1 of one segment:
///
///   row q + i sees key k + j  ⇔  −left ≤ j − i ≤ right;   left, right ≥ 0, or `open`
///
/// so the diagonal starts in the top left corner. Every row sees a key and every key is seen.
struct rectangle {
  static constexpr std::int32_t open = std::numeric_limits<std::int32_t>::max();
  enum class form : std::uint8_t { full, causal, window };  ///< both sides open | left open | the rest
  std::int32_t q, q_rows, k, k_rows;
  std::int32_t left = open, right = open;

  constexpr form kind() const { return left != open ? form::window : right != open ? form::causal : form::full; }
  constexpr bool sees(std::int32_t i, std::int32_t j) const {
    return (left == open || i - j <= left) && (right == open || j - i <= right);
  }
  /// left and right as counted from the diagonal that ends in the bottom right corner (FlashAttention's convention);
  /// these are ≥ 0 too.
  struct band {
    std::int32_t left, right;
    friend constexpr bool operator==(band, band) = default;
  };
  constexpr band from_bottom_right() const {
    const std::int32_t down = k_rows - q_rows;
    return {left == open ? open : left + down, right == open ? open : right - down};
  }
  friend constexpr bool operator==(const rectangle&, const rectangle&) = default;
};

namespace detail {

/// Half-open key rows.
struct row_interval {
  std::int32_t lo, hi;
};

/// Where positions lie among the rows of a segment. Rows whose positions ascend are one stretch, whatever runs they are
/// made of: an interval of positions is an interval of its rows.
template <class = when_used>
class row_finder {
 public:
  explicit row_finder(std::span<const run> keys) {
    index_t row = 0, last = 0;
    for (run r : keys) {
      if (r.count == 0) continue;
      const bool down = r.step < 0;
      if (down) r = {r.at(r.count - 1), r.count, -r.step};
      if (stretches_.empty() || down || stretches_.back().down || r.first <= last)
        stretches_.push_back({pieces_.size(), 0, row, row, down});
      stretches_.back().end = row + r.count;
      ++stretches_.back().pieces;
      pieces_.push_back({r, row});
      row += r.count;
      last = r.at(r.count - 1);
    }
  }
  /// Adds the rows with lo ≤ position < hi to `rows`, in the order of the rows.
  void add_rows(interval positions, std::vector<row_interval>& rows) const {
    if (positions.empty()) return;
    for (const stretch& s : stretches_) {
      index_t lo = first_not_below(s, positions.lo), hi = first_not_below(s, positions.hi);
      if (s.down) {
        std::swap(lo, hi);
        lo = s.row + s.end - lo;
        hi = s.row + s.end - hi;
      }
      if (lo < hi) rows.push_back({static_cast<std::int32_t>(lo), static_cast<std::int32_t>(hi)});
    }
  }

 private:
  struct piece {
    run positions;
    index_t row;
  };
  struct stretch {
    std::size_t first, pieces;
    index_t row, end;
    bool down;  ///< one piece, from its last row to its first
  };
  /// The first row of a stretch whose position is not below `at`.
  index_t first_not_below(const stretch& s, index_t at) const {
    const auto pieces = std::span<const piece>(pieces_).subspan(s.first, s.pieces);
    const auto p = std::partition_point(pieces.begin(), pieces.end(),
                                        [&](const piece& x) { return x.positions.at(x.positions.count - 1) < at; });
    if (p == pieces.end()) return s.end;
    const index_t beyond = at - p->positions.first;
    return p->row + (beyond <= 0 ? 0 : (beyond + p->positions.step - 1) / p->positions.step);
  }
  std::vector<piece> pieces_;
  std::vector<stretch> stretches_;
};

/// A rectangle under way: [lo, hi) is what its last row sees. From row to row lo stays and then moves by one; hi moves
/// by one and then stays.
class band_strand {
 public:
  band_strand(std::int32_t row, row_interval keys) : first_row_(row), first_(keys), last_(keys) {}

  row_interval last() const { return last_; }
  bool may_start_at(std::int32_t lo) const { return lo == last_.lo + 1 || (lo == last_.lo && !lo_moves_); }
  bool may_end_at(std::int32_t hi) const { return hi == last_.hi || (hi == last_.hi + 1 && !hi_stays_); }
  void extend(row_interval keys) {
    lo_moves_ = keys.lo > last_.lo;
    hi_stays_ = keys.hi == last_.hi;
    last_ = keys;
    ++rows_;
  }
  rectangle closed() const {
    rectangle r{first_row_, rows_, first_.lo, last_.hi - first_.lo};
    if (last_.hi > first_.hi) r.right = first_.hi - first_.lo - 1;
    if (last_.lo > first_.lo) r.left = rows_ - 1 - (last_.lo - first_.lo);
    return r;
  }

 private:
  std::int32_t first_row_, rows_ = 1;
  row_interval first_, last_;
  bool lo_moves_ = false, hi_stays_ = false;
};

/// Grows rectangles downwards, row by row.
template <class = when_used>
class rectangle_builder {
 public:
  explicit rectangle_builder(index_t most) : most_(most) {}

  /// What the next row sees: disjoint, ascending, not touching. False when there are too many rectangles.
  bool add_row(std::span<const row_interval> keys) {
    next_.clear();
    std::size_t s = 0;
    for (const row_interval& all : keys) {
      std::size_t chain = 0;
      while (s < open_.size() && open_[s].last().lo <= all.lo && (chain = chain_over(all, s)) == 0) close(s++);
      if (chain == 0) next_.emplace_back(row_, all);
      for (std::int32_t lo = all.lo; chain > 0; --chain, ++s) {
        const std::int32_t hi = chain == 1 ? all.hi : open_[s + 1].last().lo;
        open_[s].extend({lo, hi});
        next_.push_back(open_[s]);
        lo = hi;
      }
    }
    while (s < open_.size()) close(s++);
    std::swap(open_, next_);
    ++row_;
    return static_cast<index_t>(done_.size() + open_.size()) <= most_;
  }

  std::vector<rectangle> finish() {
    for (std::size_t s = 0; s < open_.size(); ++s) close(s);
    open_.clear();
    sort_by(done_, [](const rectangle& r) { return std::pair(r.q, r.k); });
    return std::move(done_);
  }

 private:
  void close(std::size_t s) { done_.push_back(open_[s].closed()); }

  /// How many of the open rectangles from `s` on continue as exactly `keys`: none, one, or several when the gaps
  /// between them close in this very row.
  std::size_t chain_over(row_interval keys, std::size_t s) const {
    if (!open_[s].may_start_at(keys.lo)) return 0;
    for (std::size_t n = 1;; ++n, ++s) {
      if (open_[s].may_end_at(keys.hi)) return n;
      if (s + 1 == open_.size()) return 0;
      const std::int32_t border = open_[s + 1].last().lo;
      if (border != open_[s].last().hi + 1 || !open_[s].may_end_at(border) || !open_[s + 1].may_start_at(border))
        return 0;
    }
  }

  index_t most_;
  std::int32_t row_ = 0;
  std::vector<band_strand> open_, next_;
  std::vector<rectangle> done_;
};

}  // namespace detail

/// The pairs (query row, key row) that the tables allow, each in exactly one rectangle, and no others; in ascending
/// order of (q, k). A call is then the merge of the rectangles' calls, over all segments; rows that no rectangle names
/// see nothing. `keys` are the positions of one segment's rows. Rows are compared, not positions: a zigzag or striped
/// block is one causal rectangle. Greedy from the first row down; a row is in as few rectangles as its keys have
/// pieces. Host only. nullopt: no key intervals in the table, or more than `most` rectangles, and a kernel that reads
/// tables does better.
template <class = when_used>
std::optional<std::vector<rectangle>> rectangles(const query_table& queries, std::span<const run> keys, index_t most) {
  const std::size_t rows = queries.lo0.size();
  if (rows != queries.position.size()) return std::nullopt;
  const detail::row_finder finder(keys);
  detail::rectangle_builder builder(most);
  std::vector<detail::row_interval> found, seen;
  for (std::size_t i = 0; i < rows; ++i) {
    found.clear();
    seen.clear();
    finder.add_rows({queries.lo0[i], queries.hi0[i]}, found);
    finder.add_rows({queries.lo1[i], queries.hi1[i]}, found);
    detail::sort_by(found, [](const detail::row_interval& r) { return r.lo; });
    for (const detail::row_interval& r : found) {
      if (!seen.empty() && seen.back().hi == r.lo)
        seen.back().hi = r.hi;
      else
        seen.push_back(r);
    }
    if (!builder.add_row(seen)) return std::nullopt;
  }
  return builder.finish();
}

}  // namespace v0_1
}  // namespace seqpar
