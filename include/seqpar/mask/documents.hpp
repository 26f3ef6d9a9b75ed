// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Documents packed one after another in one sequence, and any mask inside each of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/mask/intervals.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The bounds of documents of these lengths, one after another: 0, l₀, l₀+l₁, …; bounds.back() is the token count.
template <class = when_used>
constexpr std::vector<index_t> pack(std::span<const index_t> lengths) {
  std::vector<index_t> bounds(1, 0);
  for (const index_t length : lengths) bounds.push_back(bounds.back() + length);
  return bounds;
}
template <class = when_used>
constexpr std::vector<index_t> pack(std::initializer_list<index_t> lengths) {
  return pack(detail::span_over(lengths.begin(), lengths.size()));
}

/// allows(q, k) = q and k lie in the same document: q_bounds[d] ≤ q < q_bounds[d+1] ∧ k_bounds[d] ≤ k < k_bounds[d+1].
/// A view of the two tables, which are one by default. A document may be empty on either side; positions beyond the
/// last bound see nothing and are seen by nobody.
struct documents {
  table_view<index_t> q_bounds, k_bounds = q_bounds;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr index_t count() const { return q_bounds.empty() ? 0 : size_of(q_bounds) - 1; }
  SEQPAR_HD constexpr interval q_span(index_t d) const { return {at(q_bounds, d), at(q_bounds, d + 1)}; }
  SEQPAR_HD constexpr interval k_span(index_t d) const { return {at(k_bounds, d), at(k_bounds, d + 1)}; }
  /// The document of a query (of a key), or count() beyond the last one; O(log count).
  SEQPAR_HD constexpr index_t of_query(index_t q) const { return find(q_bounds, q); }
  SEQPAR_HD constexpr index_t of_key(index_t k) const { return find(k_bounds, k); }

  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const { return band(q).contains(k); }
  SEQPAR_HD constexpr interval band(index_t q) const {
    const index_t d = of_query(q);
    if (d < count()) return k_span(d);
    const index_t end = count() > 0 ? at(k_bounds, count()) : 0;
    return {end, end};
  }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const {
    return covers_by(q, k, [](index_t, interval, interval) { return cover::all; });
  }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    interval open{};
    for_each_touched(q, [&](index_t d, interval) {
      if (!k_span(d).empty()) detail::append_piece(open, k_span(d), f);
    });
    if (!open.empty()) f(open);
  }

  /// f(document, its queries in q) for every document with a query in q; O(log count + documents touched).
  template <class F>
  constexpr void for_each_touched(interval q, F&& f) const {
    for (index_t d = of_query(q.lo); d < count() && q_span(d).lo < q.hi; ++d) {
      const interval part = intersection(q, q_span(d));
      if (!part.empty()) f(d, part);
    }
  }
  /// The cover of q × k where f(document, queries, keys) → cover tells it inside one document.
  template <class F>
  constexpr cover covers_by(interval q, interval k, F&& f) const {
    const index_t first = detail::greater(of_query(q.lo), of_key(k.lo));
    for (index_t d = first; d < count() && q_span(d).lo < q.hi && k_span(d).lo < k.hi; ++d) {
      const interval queries = intersection(q, q_span(d)), keys = intersection(k, k_span(d));
      if (queries.empty() || keys.empty()) continue;
      const cover inside = f(d, queries, keys);
      if (inside == cover::all && queries == q && keys == k) return cover::all;
      if (inside != cover::none) return cover::some;
    }
    return cover::none;
  }

  template <class Keep>
  constexpr documents rebound(Keep&& keep) const {
    const table q = keep(q_bounds);
    const bool shared = q_bounds.data() == k_bounds.data() && q_bounds.size() == k_bounds.size();
    return {q, shared ? q : table(keep(k_bounds))};
  }
  constexpr flaw problem() const {
    if (q_bounds.empty() || q_bounds.size() != k_bounds.size())
      return "documents: q_bounds and k_bounds need as many entries as there are documents, and one more; use pack()";
    if (q_bounds[0] != 0 || k_bounds[0] != 0) return "documents: the first bound is not 0; use pack()";
    for (std::size_t d = 1; d < q_bounds.size(); ++d)
      if (q_bounds[d] < q_bounds[d - 1] || k_bounds[d] < k_bounds[d - 1])
        return "documents: bounds descend; give lengths of 0 or more to pack()";
    return nullptr;
  }
  friend constexpr bool operator==(const documents&, const documents&) = default;

 private:
  using table = table_view<index_t>;
  SEQPAR_HD static constexpr index_t size_of(table t) { return static_cast<index_t>(t.size()); }
  SEQPAR_HD static constexpr index_t at(table t, index_t i) { return t[static_cast<std::size_t>(i)]; }
  /// The first document that ends after p: empty ones are passed over.
  SEQPAR_HD constexpr index_t find(table bounds, index_t p) const {
    index_t lo = 0, hi = count();
    while (lo < hi) {
      const index_t middle = lo + (hi - lo) / 2;
      if (at(bounds, middle + 1) <= p)
        lo = middle + 1;
      else
        hi = middle;
    }
    return lo;
  }
};

/// allows(q, k) = q and k lie in the same document d ∧ inner.allows(q − q_bounds[d], k − k_bounds[d]), where inner is
/// bound to the two lengths of d. So bottom-right causal is bottom-right in every document.
template <attention_mask Inner>
struct within {
  documents docs;
  Inner inner;

  static constexpr int max_intervals = [] {
    if constexpr (listed_mask<Inner>)
      return max_intervals_of<Inner>;
    else
      return 0;
  }();
  constexpr bool allows(index_t q, index_t k) const {
    const index_t d = docs.of_query(q);
    if (d >= docs.count() || !docs.k_span(d).contains(k)) return false;
    return inner_of(d).allows(q - docs.q_span(d).lo, k - docs.k_span(d).lo);
  }
  constexpr auto key_list(index_t q) const requires listed_mask<Inner> {
    interval_list<max_intervals> keys;
    const index_t d = docs.of_query(q);
    if (d >= docs.count()) return keys;
    const interval span = docs.k_span(d);
    const auto local = seqpar::key_list(inner_of(d), q - docs.q_span(d).lo);
    for (int i = 0; i < local.count; ++i) keys.add(placed(local.items[i], span));
    return keys;
  }
  constexpr interval_pair key_intervals(index_t q) const requires(listed_mask<Inner>&& max_intervals <= 2) {
    return *key_list(q).pair();
  }
  constexpr std::optional<interval_pair> try_key_intervals(index_t q) const
      requires(listed_mask<Inner> && (max_intervals > 2)) {
    return key_list(q).pair();
  }
  constexpr cover covers(interval q, interval k) const {
    return docs.covers_by(q, k, [&](index_t d, interval queries, interval keys) {
      return seqpar::covers(inner_of(d), moved(queries, -docs.q_span(d).lo), moved(keys, -docs.k_span(d).lo));
    });
  }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    docs.for_each_touched(q, [&](index_t d, interval queries) {
      const interval span = docs.k_span(d);
      seqpar::reach(inner_of(d), moved(queries, -docs.q_span(d).lo), span.size(),
                    [&](interval keys) { f(moved(keys, span.lo)); });
    });
  }
  template <class Keep>
  constexpr within rebound(Keep&& keep) const {
    return {docs.rebound(keep), seqpar::rebound(inner, keep)};
  }
  constexpr flaw problem() const { return docs.problem() ? docs.problem() : problem_of(inner); }
  std::string misfit(padded_length q, padded_length k) const {
    const auto part = [](padded_length whole, interval span) {
      return padded_length{intersection(span, {0, whole.real}).size(), span.size()};
    };
    std::string found;
    for (index_t d = 0; d < docs.count() && found.empty(); ++d)
      if (!docs.q_span(d).empty() && !docs.k_span(d).empty())
        found = misfit_of(inner, part(q, docs.q_span(d)), part(k, docs.k_span(d)));
    return found;
  }
  friend constexpr bool operator==(const within&, const within&) = default;

 private:
  constexpr auto inner_of(index_t d) const {
    return seqpar::bound(inner, docs.q_span(d).size(), docs.k_span(d).size());
  }
  static constexpr interval moved(interval x, index_t by) { return {x.lo + by, x.hi + by}; }
  static constexpr interval placed(interval local, interval span) {
    return moved(intersection(local, {0, span.size()}), span.lo);
  }
};
template <class Inner>
within(documents, Inner) -> within<Inner>;

}  // namespace v0_1
}  // namespace seqpar
