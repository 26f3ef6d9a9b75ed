// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one engine: who owns which rows, who wants which, and the blocks that move between them.
#pragma once

#include <string>
#include <vector>

#include <seqpar/error.hpp>
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

/// Whether holdings are taken as they are (they come from layouts, whose laws are tested) or checked for two owners of
/// one row and for rows that nobody owns. The check looks at all ranks, so its error is the same on all of them.
enum class ownership { trusted, checked };

namespace detail {

/// Builds a list of stretches, merging rows that go on in a line and folding equal lines that repeat evenly.
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
    list_.shrink_to_fit();
    return std::move(list_);
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

/// A holding arranged for search: ascending pieces without gaps between rows, then strided ones.
class holding_index {
 public:
  explicit holding_index(const holding& h) : columns_(h.columns) {
    for (const row_piece& p : h.pieces) {
      if (p.rows.count == 0) continue;
      (p.rows.step == 1 || p.rows.count == 1 ? dense_ : strided_).push_back(p);
    }
    const auto by_first = [](const row_piece& a, const row_piece& b) { return a.rows.first < b.rows.first; };
    if (!std::is_sorted(dense_.begin(), dense_.end(), by_first)) std::sort(dense_.begin(), dense_.end(), by_first);
  }

  /// Calls f(owner place, step, wanter place, step, count) for all rows of `want` that are held, in the order of
  /// `want`.
  template <class F>
  void for_each_common(const holding& want, F&& f) const {
    std::vector<std::pair<common_run, const row_piece*>> found;
    for (const row_piece& w : want.pieces) {
      if (w.rows.count == 0) continue;
      found.clear();
      const index_t ends[] = {w.rows.first, w.rows.at(w.rows.count - 1)};
      const auto [lo, hi] = std::minmax(ends[0], ends[1]);
      auto p = std::upper_bound(dense_.begin(), dense_.end(), lo,
                                [](index_t row, const row_piece& d) { return row < d.rows.first; });
      if (p != dense_.begin()) --p;
      for (; p != dense_.end() && p->rows.first <= hi; ++p) add(found, w, *p);
      for (const row_piece& s : strided_) add(found, w, s);
      if (found.size() > 1)
        std::sort(found.begin(), found.end(),
                  [](const auto& a, const auto& b) { return a.first.a_first < b.first.a_first; });
      for (const auto& [o, owned] : found)
        f(owned->place + o.b_first * owned->place_step, o.b_step * owned->place_step,
          w.place + o.a_first * w.place_step, o.a_step * w.place_step, o.count);
    }
  }

  /// How many rows of `want` are held.
  index_t common_rows(const holding& want) const {
    index_t n = 0;
    for_each_common(want, [&](index_t, index_t, index_t, index_t, index_t count) { n += count; });
    return n;
  }

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
  static void add(std::vector<std::pair<common_run, const row_piece*>>& found, const row_piece& w, const row_piece& p) {
    if (const common_run o = intersect(w.rows, p.rows); o.count > 0) found.push_back({o, &p});
  }

  interval columns_;
  std::vector<row_piece> dense_, strided_;
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
  index_t entries_sent() const { return sum(outgoing_); }
  index_t entries_received() const { return sum(incoming_); }
  /// Host bytes that the route itself holds.
  index_t plan_bytes() const {
    index_t n = static_cast<index_t>(sizeof(route) + own_.stretches.capacity() * sizeof(stretch));
    for (const auto* legs : {&outgoing_, &incoming_})
      for (const leg& l : *legs) n += static_cast<index_t>(sizeof(leg) + l.stretches.capacity() * sizeof(stretch));
    return n;
  }

  /// The legs of rank `me` among all `ranks`. holds(r) and wants(r) give the holding of rank r.
  template <class Holds, class Wants>
  static route between(int me, int ranks, Holds&& holds, Wants&& wants) {
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
  static route step(int from, const holding& from_holds, const holding& i_want, int to, const holding& i_hold,
                    const holding& to_wants) {
    route r;
    add(r.incoming_, detail::holding_index(from_holds).leg_to(i_want, from));
    add(r.outgoing_, detail::holding_index(i_hold).leg_to(to_wants, to));
    return r;
  }

 private:
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

namespace detail {

/// The first row with two owners, or a wanted row without one; the same answer on every rank.
template <class Holds, class Wants>
failure check_ownership(const char* where, int ranks, Holds&& holds, Wants&& wants) {
  struct owned {
    row_piece piece;
    interval columns;
    int rank;
    index_t lo, hi;
  };
  std::vector<owned> all;
  std::vector<holding_index> index;
  for (int r = 0; r < ranks; ++r) {
    const holding h = holds(r);
    index.emplace_back(h);
    for (const row_piece& p : h.pieces)
      if (p.rows.count > 0 && !h.columns.empty()) {
        const auto [lo, hi] = std::minmax({p.rows.first, p.rows.at(p.rows.count - 1)});
        all.push_back({p, h.columns, r, lo, hi});
      }
  }
  std::sort(all.begin(), all.end(), [](const owned& a, const owned& b) { return a.lo < b.lo; });
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size() && all[j].lo <= all[i].hi; ++j) {
      if (intersection(all[i].columns, all[j].columns).empty()) continue;
      const common_run o = intersect(all[i].piece.rows, all[j].piece.rows);
      if (o.count > 0)
        return invalid(where, "row " + std::to_string(all[i].piece.rows.at(o.a_first)) + " has two owners (ranks " +
                                  std::to_string(std::min(all[i].rank, all[j].rank)) + " and " +
                                  std::to_string(std::max(all[i].rank, all[j].rank)) +
                                  "); let every row be held by exactly one rank");
    }
  for (int r = 0; r < ranks; ++r) {
    const holding w = wants(r);
    index_t found = 0;
    for (const holding_index& h : index) found += h.leg_to(w, 0).entries();
    if (found != w.entries())
      return invalid(where, "rank " + std::to_string(r) + " wants " + std::to_string(w.entries() - found) +
                                " entries that no rank owns; let every wanted row have an owner");
  }
  return {};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
