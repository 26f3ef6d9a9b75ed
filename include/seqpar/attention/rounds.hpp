// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sequence stage as rounds: which key/value rows each ring member needs of which other, and when they move.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/attention/position_set.hpp>
#include <seqpar/attention/shape.hpp>
#include <seqpar/exchange/route.hpp>
#include <seqpar/mask/detail/mask_view.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// The keys that some of the queries in `runs` may see.
template <class = when_used>
position_set reach_of(const mask_view& mask, const std::vector<run>& runs, index_t k_tokens) {
  position_set set;
  for (const run& r : runs) {
    const index_t most = r.step == 1 || r.step == -1 ? r.count : 4096;
    for (index_t i = 0; i < r.count; i += most) {
      mask.reach({r.at(i), std::min(most, r.count - i), r.step}, k_tokens, [&](interval keys) { set.add(keys); });
      if (most < r.count) set.pack();
    }
  }
  return set;
}

inline index_t count_of(const std::vector<run>& runs) {
  index_t n = 0;
  for (const run& r : runs) n += r.count;
  return n;
}

/// Rows packed one behind the other.
template <class = when_used>
holding packed_rows(const std::vector<run>& runs, interval columns) {
  holding h{{}, columns};
  index_t place = 0;
  for (const run& r : runs) {
    h.append(r, place);
    place += r.count;
  }
  return h;
}

/// One round as one ring member sees it. `keys` are the positions of the rows that arrive, in their order.
/// direct:     keys come from their owner, or owners one after another; their gradients go straight back (kv, in the
///             sense `add`).
/// pass_along: keys come from the neighbour that had them in the round before; gradients collected so far for the same
///             source come with `sums` (positions in `summed`), and `own_sums` says where this round's join them.
/// double_ring: direct from a member of my window, which owns the keys or, in step `window`, has them for its window.
struct ring_round {
  int source = 0;  ///< ring index of the (first) owner of these keys
  std::vector<run> keys = {};
  route kv = {};
  std::vector<run> summed = {};
  route sums = {}, own_sums = {};
  route once = {};    ///< of visiting queries: for what a row has once, whatever its heads
  int window = 0;     ///< the step of double_ring, 0: keys of my own window
  bool here = false;  ///< the keys are the rows that I have for my window
  index_t slot = 0;   ///< how many rounds before this one need room of their own
  index_t rows() const { return count_of(keys); }
  bool idle() const { return kv.incoming().empty() && kv.outgoing().empty(); }
};

/// double_ring, step o: rows of the member at my place o windows before mine that someone in my window wants.
struct window_step {
  std::vector<run> keys = {};
  route kv = {};
  index_t rows() const { return count_of(keys); }
  bool idle() const { return kv.incoming().empty() && kv.outgoing().empty(); }
};

/// All rounds of ring member `me`; peers in the routes are ring indices.
struct ring_plan {
  std::vector<ring_round> rounds;                                       ///< rounds 1 … R−1
  std::vector<window_step> windows;                                     ///< double_ring: steps 1, 2, …
  std::size_t slots() const { return rounds.size() - windows.size(); }  ///< rounds that need room of their own
  route home_sums, own_home_sums;  ///< pass_along: the last neighbour brings the gradients of my own keys, packed
  /// Over all members and rounds: sizes equal on all ranks.
  index_t most_rows = 0, most_sent = 0, most_summed = 0, most_window_rows = 0;
  index_t all_rows = 0;  ///< direct: received by all members in all rounds
};

/// `blocks[r]` are the key positions of ring member r in the order they lie there; needs[r] what its queries may see;
/// columns: the kv heads of each row.
template <class = when_used>
class ring_planner {
 public:
  ring_planner(const std::vector<std::vector<run>>& blocks, std::vector<position_set>& needs, interval columns)
      : blocks_(blocks), needs_(needs), columns_(columns), size_(static_cast<int>(blocks.size())) {}

  /// Hops s = 1 … R−1, from r−s to r, `hops` of them to a round.
  ring_plan direct(int me, int hops) {
    ring_plan plan;
    std::vector<index_t> wanted_rows(blocks_.size()), sent_rows(blocks_.size());
    for (int first = 1; first < size_; first += hops) {
      const int end = std::min(first + hops, size_);
      const auto keys_of = [&](int who) {
        std::vector<run> keys;
        for (int s = first; s < end; ++s)
          for (const run& r : wanted(who, wrap(who - s))) keys.push_back(r);
        return keys;
      };
      std::fill(sent_rows.begin(), sent_rows.end(), 0);
      for (int r = 0; r < size_; ++r) {
        index_t& rows = wanted_rows[at(r)] = 0;
        for (int s = first; s < end; ++s) {
          const index_t n = count_of(wanted(r, wrap(r - s)));
          rows += n;
          plan.all_rows += n;
          sent_rows[at(wrap(r - s))] += n;
        }
        plan.most_rows = std::max(plan.most_rows, rows);
      }
      plan.most_sent = std::max(plan.most_sent, *std::max_element(sent_rows.begin(), sent_rows.end()));
      const auto takes_part = [&](int distance) { return wrap(distance) >= first && wrap(distance) < end; };
      const holding nothing{{}, columns_};
      ring_round r{.source = wrap(me - first), .keys = keys_of(me)};
      r.kv = route::between(
          me, size_, [&](int m) { return m == me || takes_part(me - m) ? packed(blocks_[at(m)]) : nothing; },
          [&](int m) { return m == me              ? packed(r.keys)
                              : takes_part(m - me) ? packed(keys_of(m))
                                                   : nothing; });
      plan.rounds.push_back(std::move(r));
    }
    return plan;
  }

  ring_plan pass_along(int me) {
    ring_plan plan;
    for (int r = 0; r < size_; ++r)
      for (int s = 1; s < size_; ++s) {
        plan.most_rows = std::max(plan.most_rows, count_of(downstream(wrap(r - s), r)));
        plan.most_summed = std::max(plan.most_summed, count_of(upstream(wrap(r - s), r)));
      }
    const int from = wrap(me - 1), to = wrap(me + 1);
    for (int s = 1; s < size_; ++s) {
      const int source = wrap(me - s), passed = wrap(to - s);  // what I get, what the next member gets of me
      ring_round r{.source = source, .keys = downstream(source, me), .summed = upstream(source, me)};
      r.kv = route::step(from, packed(s == 1 ? blocks_[at(source)] : downstream(source, from)), packed(r.keys), to,
                         packed(s == 1 ? blocks_[at(me)] : downstream(passed, me)), packed(downstream(passed, to)));
      if (s > 1)  // sums of the round before travel behind the keys
        r.sums = route::step(from, packed(upstream(source, from)), at_places(upstream(source, from), r.summed), to,
                             packed(upstream(passed, me)), at_places(upstream(passed, me), upstream(passed, to)));
      r.own_sums = route::between(
          0, 1, [&](int) { return packed(r.summed); }, [&](int) { return at_places(wanted(me, source), r.keys); });
      plan.rounds.push_back(std::move(r));
    }
    if (size_ > 1) {
      const std::vector<run> mine = upstream(me, from), passed = upstream(to, me);
      plan.home_sums = route::step(from, packed(mine), packed(mine), to, packed(passed), packed(passed));
      plan.own_home_sums = route::between(
          0, 1, [&](int) { return packed(blocks_[at(me)]); }, [&](int) { return packed(mine); });
      plan.most_summed = std::max(plan.most_summed, count_of(mine));
    }
    return plan;
  }

  /// Windows of `width` members. Step o brings each window what someone in it wants of the window o before it, once, to
  /// the member at the owner's place; round (o, t) takes it from there, or from its owner where o is 0.
  ring_plan double_ring(int me, int width) {
    ring_plan plan;
    const int steps = size_ / width, own = me / width, place = me % width;
    std::vector<position_set> wanted_by(static_cast<std::size_t>(steps));
    for (int r = 0; r < size_; ++r) wanted_by[at(r / width)].add(needs_[at(r)]);
    const auto in_window = [&](int window, int i) { return wrap(window * width) + (i % width + width) % width; };
    const auto rows_for = [&](int window, int source) { return rows_in(blocks_[at(source)], wanted_by[at(window)]); };
    for (int r = 0; r < size_; ++r)
      for (int source = 0; source < size_; ++source) {
        if (r % width != source % width) plan.most_rows = std::max(plan.most_rows, count_of(wanted(r, source)));
        if (r % width == source % width && r != source)
          plan.most_window_rows = std::max(plan.most_window_rows, count_of(rows_for(r / width, source)));
      }
    plan.most_sent = plan.most_rows;
    for (int o = 0; o < steps; ++o) {
      if (o > 0) {
        const int from = in_window(own - o, place), to = in_window(own + o, place);
        window_step s{.keys = rows_for(own, from)};
        s.kv = route::step(from, packed(blocks_[at(from)]), packed(s.keys), to, packed(blocks_[at(me)]),
                           packed(rows_for(to / width, me)));
        plan.rounds.push_back({.source = from, .keys = s.keys, .window = o, .here = true});
        plan.windows.push_back(std::move(s));
      }
      for (int t = 1; t < width; ++t) {
        const int from = in_window(own, place - t), to = in_window(own, place + t);
        const int source = in_window(own - o, place - t), mine = in_window(own - o, place);
        const auto held = [&](int s) { return packed(o == 0 ? blocks_[at(s)] : rows_for(own, s)); };
        ring_round r{.source = source, .keys = wanted(me, source), .window = o};
        r.kv = route::step(from, held(source), packed(r.keys), to, held(mine), packed(wanted(to, mine)));
        plan.rounds.push_back(std::move(r));
      }
    }
    return plan;
  }

 private:
  holding packed(const std::vector<run>& rows) const { return packed_rows(rows, columns_); }
  static std::size_t at(int r) { return static_cast<std::size_t>(r); }
  int wrap(int r) const { return (r % size_ + size_) % size_; }
  std::vector<run> wanted(int who, int source) { return rows_in(blocks_[at(source)], needs_[at(who)]); }
  /// Rows of `source` that must still reach `who` or someone behind it on the way round.
  std::vector<run> downstream(int source, int who) { return along(source, who, source); }
  /// Rows of `source` that someone between it and `who` (included) has attended to.
  std::vector<run> upstream(int source, int who) { return along(source, wrap(source + 1), wrap(who + 1)); }
  std::vector<run> along(int source, int first, int end) {
    position_set set;
    int r = first;
    do {
      if (r != source) set.add(needs_[at(r)]);
      r = wrap(r + 1);
    } while (r != end);
    return rows_in(blocks_[at(source)], set);
  }
  /// The rows of `part` where they lie in `whole` packed.
  holding at_places(const std::vector<run>& part, const std::vector<run>& whole) const {
    holding h{{}, columns_};
    const holding_index index(packed(whole));
    const holding want = packed(part);
    std::size_t piece = 0;
    index_t taken = 0;
    index.for_each_common(want, [&](index_t place, index_t place_step, index_t row, index_t row_step, index_t count) {
      while (row - taken >= want.pieces[piece].rows.count) taken += want.pieces[piece++].rows.count;
      const run& r = want.pieces[piece].rows;
      h.pieces.push_back({{r.at(row - taken), count, row_step * r.step}, place, place_step});
    });
    return h;
  }

  const std::vector<std::vector<run>>& blocks_;
  std::vector<position_set>& needs_;
  interval columns_;
  int size_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
