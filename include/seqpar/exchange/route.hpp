// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one engine: who owns which rows, who wants which, and the blocks that move between them.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include <seqpar/detail/function_ref.hpp>
#include <seqpar/detail/sort_by.hpp>
#include <seqpar/exchange/holding.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Rows that move as a block: for o < repeat, i < count: local row owner + o·owner_outer + i·owner_step of the owner is
/// local row wanter + o·wanter_outer + i·wanter_step of the wanter.
struct stretch {
  index_t owner, owner_step, wanter, wanter_step, count;
  index_t repeat = 1, owner_outer = 0, wanter_outer = 0;
};

/// What moves between one owner and one wanter. Both compute the same list, so that the blocks of both sides agree.
struct leg {
  int peer = 0;              ///< the other side
  interval columns;          ///< of the whole row
  index_t owner_column = 0;  ///< where these columns begin in the owner's and in the wanter's memory
  index_t wanter_column = 0;
  std::vector<stretch> stretches;

  index_t rows() const {
    index_t n = 0;
    for (const stretch& s : stretches) n += s.count * s.repeat;
    return n;
  }
  index_t blocks() const {
    index_t n = 0;
    for (const stretch& s : stretches) n += s.repeat;
    return n;
  }
  index_t entries() const { return rows() * columns.size(); }
};

namespace detail {

/// Builds a list of stretches, merging rows that go on in a line and folding equal lines that repeat evenly.
template <class = when_used>
class stretch_list {
 public:
  void append(index_t owner, index_t owner_step, index_t wanter, index_t wanter_step, index_t count) {
    if (!list_.empty()) {
      stretch& s = list_.back();
      if (s.count == 1 && count == 1) {
        s.owner_step = owner - s.owner;
        s.wanter_step = wanter - s.wanter;
        s.count = 2;
        return;
      }
      const bool continues = owner == s.owner + s.count * s.owner_step && wanter == s.wanter + s.count * s.wanter_step;
      if (continues && s.count > 1 && (count == 1 || (owner_step == s.owner_step && wanter_step == s.wanter_step))) {
        s.count += count;
        return;
      }
      fold();
    }
    list_.push_back({owner, owner_step, wanter, wanter_step, count});
  }
  std::vector<stretch> finish() {
    fold();
    return std::vector<stretch>(list_);  // a copy has no spare room
  }

 private:
  /// The last line joins its predecessor when it repeats it at an even distance.
  void fold() {
    if (list_.size() < 2) return;
    const stretch& s = list_.back();
    stretch& p = list_[list_.size() - 2];
    const bool same =
        s.count == p.count && (s.count == 1 || (s.owner_step == p.owner_step && s.wanter_step == p.wanter_step));
    if (!same) return;
    if (p.repeat == 1) {
      p.owner_outer = s.owner - p.owner;
      p.wanter_outer = s.wanter - p.wanter;
    } else if (s.owner != p.owner + p.repeat * p.owner_outer || s.wanter != p.wanter + p.repeat * p.wanter_outer) {
      return;
    }
    ++p.repeat;
    list_.pop_back();
  }

  std::vector<stretch> list_;
};

/// A holding arranged for search: pieces grouped by the power of two that their span of rows fits in, ascending in each
/// group. One that meets [lo, hi] begins at most that power before lo, so few others are looked at.
class holding_index {
 public:
  template <class = when_used>
  explicit holding_index(const holding& h) : columns_(h.columns) {
    pieces_.reserve(h.pieces.size());
    for (const row_piece& p : h.pieces)
      if (p.rows.count > 0) pieces_.push_back({span_of(p.rows), p});
    sort_by(pieces_, [](const entry& e) { return std::pair(width_of(e.rows), e.rows.lo); });
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const int width = width_of(pieces_[i].rows);
      if (groups_.empty() || groups_.back().width != width) groups_.push_back({width, i, i});
      groups_.back().end = i + 1;
    }
  }

  /// Calls f(owner place, step, wanter place, step, count) for all rows of `want` that are held, in the order of
  /// `want`; only pieces that interleave inside one of its runs come one after the other.
  template <class = when_used>
  void for_each_common(const holding& want, function_ref<void(index_t, index_t, index_t, index_t, index_t)> f) const {
    std::vector<std::pair<common_run, const row_piece*>> found;
    std::vector<std::size_t> first(groups_.size());  // of each group, as long as `want` goes on
    for (const row_piece& w : want.pieces) {
      if (w.rows.count == 0) continue;
      found.clear();
      const interval rows = span_of(w.rows);
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        first[g] = first_after(groups_[g], rows.lo - (index_t{1} << groups_[g].width), first[g]);
        for (std::size_t i = first[g]; i < groups_[g].end && pieces_[i].rows.lo < rows.hi; ++i)
          if (const common_run o = intersect(w.rows, pieces_[i].piece.rows); o.count > 0)
            found.push_back({o, &pieces_[i].piece});
      }
      if (found.size() > 1) sort_by(found, [](const auto& x) { return x.first.a_first; });
      for (const auto& [o, owned] : found)
        f(owned->place + o.b_first * owned->place_step, o.b_step * owned->place_step,
          w.place + o.a_first * w.place_step, o.a_step * w.place_step, o.count);
    }
  }

  /// How many rows of `want` are held.
  template <class = when_used>
  index_t common_rows(const holding& want) const {
    index_t n = 0;
    for_each_common(want, [&](index_t, index_t, index_t, index_t, index_t count) { n += count; });
    return n;
  }

  /// The last row in `rows` that is held, or −1.
  template <class = when_used>
  index_t last_in(interval rows) const {
    index_t last = -1;
    for (const group& g : groups_)
      for (std::size_t i = first_after(g, rows.hi - 1, g.end); i > g.begin; --i) {
        const entry& e = pieces_[i - 1];
        if (e.rows.lo + (index_t{1} << g.width) <= (std::max)(rows.lo, last)) break;
        const common_run o = intersect(e.piece.rows, {rows.lo, rows.size(), 1});
        if (o.count > 0)
          last = (std::max)({last, e.piece.rows.at(o.a_first), e.piece.rows.at(o.a_first + (o.count - 1) * o.a_step)});
      }
    return last;
  }

  template <class = when_used>
  leg leg_to(const holding& want, int peer) const {
    const interval columns = intersection(columns_, want.columns);
    leg l{peer, columns, columns.lo - columns_.lo, columns.lo - want.columns.lo, {}};
    if (columns.empty()) return l;
    stretch_list list;
    for_each_common(want,
                    [&](index_t o, index_t os, index_t w, index_t ws, index_t n) { list.append(o, os, w, ws, n); });
    l.stretches = list.finish();
    return l;
  }

 private:
  struct entry {
    interval rows;
    row_piece piece;
  };
  struct group {
    int width;  ///< spans are at most 2^width
    std::size_t begin, end;
  };
  static int width_of(interval rows) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows.size() - 1)));
  }

  /// The first piece of the group that begins after `row`; `guess` is where the last search ended.
  template <class = when_used>
  std::size_t first_after(const group& g, index_t row, std::size_t guess) const {
    const auto after = [&](std::size_t i) { return i >= g.end || pieces_[i].rows.lo > row; };
    if (guess >= g.begin && after(guess) && (guess == g.begin || !after(guess - 1))) return guess;
    const auto at = [&](std::size_t i) { return pieces_.begin() + static_cast<std::ptrdiff_t>(i); };
    return static_cast<std::size_t>(
        std::partition_point(at(g.begin), at(g.end), [&](const entry& e) { return e.rows.lo <= row; }) -
        pieces_.begin());
  }

  interval columns_;
  std::vector<entry> pieces_;
  std::vector<group> groups_;
};

}  // namespace detail

/// What one rank sends and receives so that every rank gets the rows it wants from the rank that owns them.
///
///   copy:     wanter.row[j] = owner.row[i]          for every wanted entry, i and j the places of one global row
///   inverse:  owner.row[i] = wanter.row[j]          when every entry is wanted once
///   add:      owner.row[i] += Σ_wanters wanter.row[j], in ascending order of wanters
///
/// Every rank computes its own legs from everybody's holdings, without communicating. Entries of other ranks that are
/// wanted move exactly once. Source: PETSc's star forest; Tpetra's Import/Export.
class route {
 public:
  route() = default;

  const std::vector<leg>& outgoing() const { return outgoing_; }  ///< I own, the peer wants; ascending peers
  const std::vector<leg>& incoming() const { return incoming_; }  ///< the peer owns, I want; ascending peers
  const leg& own() const { return own_; }                         ///< I own and want
  /// The same rows for memory that has one column, whatever this route's are.
  template <class = when_used>
  route of_one_column() const {
    route r = *this;
    for (auto* legs : {&r.outgoing_, &r.incoming_})
      for (leg& l : *legs) l = {l.peer, {0, 1}, 0, 0, std::move(l.stretches)};
    r.own_ = {own_.peer, {0, 1}, 0, 0, own_.stretches};
    return r;
  }
  index_t entries_sent() const { return sum(outgoing_); }
  index_t entries_received() const { return sum(incoming_); }
  /// Host bytes that the route itself holds.
  template <class = when_used>
  index_t plan_bytes() const {
    index_t n = static_cast<index_t>(sizeof(route) + own_.stretches.capacity() * sizeof(stretch));
    for (const auto* legs : {&outgoing_, &incoming_})
      for (const leg& l : *legs) n += static_cast<index_t>(sizeof(leg) + l.stretches.capacity() * sizeof(stretch));
    return n;
  }

  /// The legs of rank `me` among all `ranks`. holds(r) and wants(r) give the holding of rank r.
  template <class = when_used>
  static route between(int me, int ranks, detail::function_ref<holding(int)> holds,
                       detail::function_ref<holding(int)> wants) {
    route r;
    const holding want = wants(me);
    const detail::holding_index mine(holds(me));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me) {
        r.own_ = mine.leg_to(want, me);
        continue;
      }
      add(r.outgoing_, mine.leg_to(wants(peer), peer));
      add(r.incoming_, detail::holding_index(holds(peer)).leg_to(want, peer));
    }
    return r;
  }

  /// A single step: I want rows of `from`, and `to` wants rows of mine. Neither may be me.
  template <class = when_used>
  static route step(int from, const holding& from_holds, const holding& i_want, int to, const holding& i_hold,
                    const holding& to_wants) {
    route r;
    add(r.incoming_, detail::holding_index(from_holds).leg_to(i_want, from));
    add(r.outgoing_, detail::holding_index(i_hold).leg_to(to_wants, to));
    return r;
  }

 private:
  template <class = when_used>
  static void add(std::vector<leg>& legs, leg l) {
    if (!l.stretches.empty()) legs.push_back(std::move(l));
  }
  static index_t sum(const std::vector<leg>& legs) {
    index_t n = 0;
    for (const leg& l : legs) n += l.entries();
    return n;
  }

  std::vector<leg> outgoing_, incoming_;
  leg own_;
};

}  // namespace v0_1
}  // namespace seqpar
