// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which key rows each member of a ring wants of each other, from layouts, mask and mesh alone.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include <seqpar/attention/setup.hpp>
#include <seqpar/cost/pieces.hpp>
#include <seqpar/exchange/detail/plan_checks.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Rows wanted, received, or pairs seen: the fullest member beside the mean one.
struct spread {
  double mean = 0, most = 0;
  constexpr double most_over_mean() const { return mean > 0 ? most / mean : 1; }  ///< 1: even, or nothing at all
};

namespace detail {
template <class List>
spread spread_of(const List& list) {
  spread s;
  for (const auto& x : list) {
    s.mean += static_cast<double>(x) / static_cast<double>(list.size());
    s.most = std::max(s.most, static_cast<double>(x));
  }
  return s;
}
}  // namespace detail

/// rows(w, o) = |{ keys of ring member o that some query of ring member w may see }|, o ≠ w: what `direct` moves.
///
/// Every member (ring w, all-to-all u) wants them of (o, u), for its kv heads. Queries and keys of a ring member are
/// those of its whole all-to-all group; joint queries count, joint keys are nobody's.
///
/// Steps: pieces of the mask + runs of the layouts, where the mask's pieces are known (mask_pieces), and one per query
/// where sets with gaps interleave (docs/cost.md); else as the plan's own reach. Fails (error): what a plan refuses of
/// layouts, mask, shape and mesh, and sizes whose bytes or pairs 64 bits may not count.
class needs {
 public:
  template <sequence_layout QLayout, sequence_layout KvLayout, attention_mask Mask>
  needs(const mesh_shape& team, const QLayout& q, const KvLayout& kv, const Mask& mask, const attention_shape& shape,
        const mask_pieces& pieces)
      : team_(team), shape_(shape) {
    if (failure f = problem_of_sizes(q, kv)) raise(*f);
    const bool front = shape.joint_at == joint_place::front;
    joint_keys_ = {front ? 0 : index_t{kv.token_count()}, (front ? 0 : kv.token_count()) + shape.joint_kv};
    const auto gathered = [&](const auto& layout, int r, index_t offset) {
      std::vector<run> runs;
      for (int u = 0; u < team_.all_to_all; ++u)
        for_each_run(layout, team_.member_at(r, u), [&](run x) {
          if (x.count > 0) runs.push_back({x.first + offset, x.count, x.step});
        });
      return runs;
    };
    for (int m = 0; m < team_.size(); ++m) {
      q_rows_.push_back(q.count_of(m));
      kv_rows_.push_back(kv.count_of(m));
    }
    check_pieces("needs", pieces);
    for (int r = 0; r < ring_size(); ++r) {
      queries_.push_back(gathered(q, r, front ? shape.joint_q : 0));
      keys_.push_back(gathered(kv, r, front ? shape.joint_kv : 0));
      std::vector<run>& asking = queries_.back();
      const interval joint = detail::share(shape.joint_q, ring_size(), r);
      if (!joint.empty()) asking.push_back({(front ? 0 : q.token_count()) + joint.lo, joint.size(), 1});
      detail::position_set set;
      if constexpr (detail::steady<Mask>::known) {
        set = pieces.reach(asking, pairs_.emplace_back());
      } else {
        const index_t q_tokens = q.token_count() + shape.joint_q, k_tokens = kv.token_count() + shape.joint_kv;
        set = detail::reach_of(bound(mask, q_tokens, k_tokens), asking, k_tokens);
        pairs_.push_back(pieces.pairs(asking));
      }
      wanted_.push_back(set.listed());
      index_t rows = -detail::rows_among(keys_.back(), wanted_.back()) -
                     detail::rows_among({{joint_keys_.lo, joint_keys_.size(), 1}}, wanted_.back());
      received_.push_back(rows + wanted_.back().size());
    }
  }
  template <sequence_layout QLayout, sequence_layout KvLayout, attention_mask Mask>
  needs(const mesh_shape& team, const QLayout& q, const KvLayout& kv, const Mask& mask, const attention_shape& shape)
      : needs(team, q, kv, mask, shape,
              mask_pieces(mask, q.token_count() + shape.joint_q, kv.token_count() + shape.joint_kv)) {}
  template <sequence_layout Layout, attention_mask Mask>
  needs(const mesh_shape& team, const Layout& layout, const Mask& mask, const attention_shape& shape)
      : needs(team, layout, layout, mask, shape) {}
  /// Rows need no shape. Bytes do, and are refused without one.
  template <sequence_layout Layout, attention_mask Mask>
  needs(const mesh_shape& team, const Layout& layout, const Mask& mask)
      : needs(team, layout, mask, attention_shape{.heads = 1, .kv_heads = 1, .head_dim = 1}) {
    has_shape_ = false;
  }

  const mesh_shape& team() const { return team_; }
  const attention_shape& shape() const { return shape_; }
  int ring_size() const { return static_cast<int>(team_.ring); }
  index_t q_rows(int member) const { return q_rows_[at(member)]; }    ///< what the layouts give it
  index_t kv_rows(int member) const { return kv_rows_[at(member)]; }  ///< of keys
  /// Of ring member r's group, as they lie; its joint queries last.
  const std::vector<run>& queries(int r) const& { return queries_[at(r)]; }
  const std::vector<run>& keys(int r) const& { return keys_[at(r)]; }
  /// Positions of the keys that its queries may see, ascending, one by one where they have gaps.
  std::vector<interval> wanted(int r) const { return wanted_[at(r)].one_by_one(); }
  void queries(int, a_view_must_not_outlive_its_table = {}) const&& = delete;
  void keys(int, a_view_must_not_outlive_its_table = {}) const&& = delete;
  index_t pairs(int r) const { return pairs_[at(r)]; }  ///< (query, key) pairs that its queries see, joint ones too

  /// Rows of `owner` that `wanter` wants.
  index_t rows(int wanter, int owner) const {
    return wanter == owner ? 0 : detail::rows_among(keys_[at(owner)], wanted_[at(wanter)]);
  }
  /// Σ over owners of rows(wanter, owner).
  index_t rows_received(int wanter) const { return received_[at(wanter)]; }
  interval joint_keys() const { return joint_keys_; }  ///< positions
  /// Positions of an interval that are not joint keys'.
  index_t dealt_keys(interval i) const { return i.size() - intersection(i, joint_keys_).size(); }
  /// Σ over hops of the most rows that one member receives: a ring whose members wait for each other in every round.
  index_t rows_in_step() const {
    index_t rows = 0;
    for (int s = 1; s < ring_size(); ++s) {
      index_t most = 0;
      for (int w = 0; w < ring_size(); ++w) most = std::max(most, rows_of_hop(w, s));
      rows += most;
    }
    return rows;
  }
  /// Rows received, over what a full ring brings to each member: (R−1)/R · tokens.
  spread of_full_ring() const {
    std::vector<index_t> rows;
    for (int r = 0; r < ring_size(); ++r) rows.push_back(rows_received(r));
    index_t tokens = 0;
    for (index_t n : kv_rows_) tokens += n;
    const double ring = static_cast<double>(tokens) * (ring_size() - 1) / ring_size();
    const spread s = detail::spread_of(rows);
    return ring > 0 ? spread{s.mean / ring, s.most / ring} : spread{};
  }
  /// A set, and what `wanter` wants, too.
  std::vector<interval> with_wanted(const std::vector<interval>& set, int wanter) const {
    const detail::position_set::list& more = wanted_[at(wanter)];
    return more.combs.empty() ? detail::merged(set, more.parts) : detail::merged(set, more.one_by_one());
  }
  /// Rows of `owner` at positions of a set (of several members: with_wanted).
  index_t rows_in(const std::vector<interval>& set, int owner) const {
    return detail::rows_among(keys_[at(owner)], set);
  }

  index_t rows_of_hop(int wanter, int s) const { return rows(wanter, (wanter - s + ring_size()) % ring_size()); }

  /// Query heads of all-to-all index u, and the kv heads that they need.
  interval heads_of(int u) const { return split().heads_of(u); }
  interval kv_heads_of(int u) const { return split().kv_heads_of(u); }

  /// Raises unless a shape was given.
  void check_has_shape(const char* where) const {
    if (!has_shape_)
      raise(detail::invalid(where,
                            "these needs have no shape, and so no bytes; make them with one: needs(team, layout, "
                            "mask, shape)"));
  }
  /// Raises unless the pieces are of as many queries and keys.
  void check_pieces(const char* where, const mask_pieces& pieces) const {
    const index_t queries = std::accumulate(q_rows_.begin(), q_rows_.end(), index_t{shape_.joint_q});
    const index_t keys = std::accumulate(kv_rows_.begin(), kv_rows_.end(), index_t{shape_.joint_kv});
    if (pieces.q_tokens() != queries || pieces.k_tokens() != keys)
      raise(detail::invalid(
          where, {"the pieces are of ", pieces.q_tokens(), " queries and ", pieces.k_tokens(), " keys, the layouts of ",
                  queries, " and ", keys, "; make mask_pieces(mask, ", queries, ", ", keys, ")"}));
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  detail::attention_setup split() const {
    detail::attention_setup s;
    s.shape = shape_;
    s.group_size = static_cast<int>(team_.all_to_all);
    return s;
  }
  template <class Q, class Kv>
  failure problem_of_sizes(const Q& q, const Kv& kv) const {
    const char* where = "needs";
    if (team_.ring < 1 || team_.all_to_all < 1 || team_.ring > std::numeric_limits<int>::max() / team_.all_to_all)
      return detail::invalid(where, {"ring and all_to_all must be at least 1, and their product fit in an int; got ",
                                     index_t{team_.ring}, " x ", index_t{team_.all_to_all}});
    if (failure f = detail::check_shape(where, shape_)) return f;
    if (failure f = detail::check_layout(where, "the layout", q, team_.size())) return f;
    const index_t batch = std::max<index_t>(1, shape_.batch);
    const index_t rows = std::max({index_t{1}, q.token_count() + shape_.joint_q, kv.token_count() + shape_.joint_kv});
    if (detail::exceeds_64_bits({batch, rows, shape_.heads, team_.ring, most_bytes_of_row}))
      return detail::invalid(
          where, {"batch x tokens x heads x ring members (", batch, " x ", rows, " x ", index_t{shape_.heads}, " x ",
                  index_t{team_.ring}, ") may move more bytes than 64 bits count; give smaller sizes"});
    if constexpr (std::is_same_v<Q, Kv>)
      if (q == kv) return {};
    return detail::check_layout(where, "the layout of the keys", kv, team_.size());
  }

  static constexpr index_t most_bytes_of_row = 2 * 256 * 2 * sizeof(float);  ///< of a head: k and v, dk and dv

  mesh_shape team_;
  attention_shape shape_;
  bool has_shape_ = true;
  interval joint_keys_;
  std::vector<std::vector<run>> queries_, keys_;
  std::vector<detail::position_set::list> wanted_;
  std::vector<index_t> pairs_, received_, q_rows_, kv_rows_;
};

}  // namespace v0_1
}  // namespace seqpar
