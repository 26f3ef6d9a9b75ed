// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Labels and positions of a shard: the row of the next token, wherever it lies, and the place of a token in time.
#pragma once

#include <algorithm>
#include <concepts>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/detail/whole_rows.hpp>
#include <seqpar/layout/laws.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {

/// The bounds that the layout itself draws: of its documents, of its copies; else of the one sequence.
template <class L>
result<std::vector<index_t>> own_bounds(const char* where, const L& layout) {
  if constexpr (has_documents<L> && !deals_once<L>)
    if (broken_document_law(layout))
      return invalid(where, "the layout's documents do not follow one another in the global order; give bounds");
  std::vector<index_t> bounds{0};
  while (bounds.back() < layout.token_count()) bounds.push_back(document_at(layout, bounds.back()).hi);
  return bounds;
}

/// The bounds of all documents of a sequence: the given ones (of one copy, or of the whole), or the layout's own.
template <class L>
result<std::vector<index_t>> bounds_of(const char* where, const L& layout, std::span<const index_t> given) {
  if (given.empty()) return own_bounds(where, layout);
  if (given.front() != 0 || !std::is_sorted(given.begin(), given.end()))
    return invalid(where, "the bounds of the documents must ascend from 0; use pack()");
  std::vector<index_t> bounds(given.begin(), given.end());
  if constexpr (has_copies<L>) {
    const index_t once = layout.token_count() / 2;
    if (bounds.back() == once) {
      for (std::size_t i = 1, n = bounds.size(); i < n; ++i) bounds.push_back(once + bounds[i]);
    } else if (const auto at = std::lower_bound(bounds.begin(), bounds.end(), once);
               at != bounds.end() && *at != once) {
      bounds.insert(at, once);  // a document does not go on from the clean into the noisy copy
    }
  }
  if (bounds.back() != layout.token_count())
    return invalid(where, {"the documents have ", given.back(), " tokens, the layout ", layout.token_count(),
                           "; let the bounds end with the last token"});
  return bounds;
}

/// f(document, run, row): consecutive local rows from `row` on that lie in one document. Those of one document may come
/// as several runs; documents of a run with a negative step come backwards.
template <class L, class F>
void for_each_run_in_documents(const L& layout, int rank, std::span<const index_t> bounds, F&& f) {
  index_t row = 0;
  for_each_run(layout, rank, [&](run r) {
    if (r.count > 0) {
      const interval span = span_of(r);
      auto end = std::upper_bound(bounds.begin(), bounds.end(), span.lo);
      for (; end != bounds.end() && *(end - 1) < span.hi; ++end) {
        const interval document{*(end - 1), *end};
        if (document.empty()) continue;
        const common_run in = intersect(r, {document.lo, document.size(), 1});
        if (in.count > 0) f(document, run{r.at(in.a_first), in.count, r.step * in.a_step}, row + in.a_first);
      }
    }
    row += r.count;
  });
}

}  // namespace detail

/// out[i] on member r = the row of global token layout.global_of(r, i) + offset, or `ignore` in every element where
/// that token does not exist or belongs to another document. Planned by plan_neighbours. `ignore` is an element: an
/// integer is one column of a row, a floating-point number fills it.
///
/// Every row that another rank needs moves once. Runs allocate nothing. Adjoint: each gradient goes back to the row's
/// owner; ignored rows give none.
template <transport Transport>
class neighbour_exchange {
 public:
  neighbour_exchange(mesh<Transport> team, exchange<Transport> moves, std::vector<run> ignored, index_t rows,
                     const exchange_options& options)
      : team_(std::move(team)),
        moves_(std::move(moves)),
        ignored_(std::move(ignored)),
        rows_(rows),
        options_(options) {}

  index_t rows() const { return rows_; }  ///< of `in` and of `out`
  /// Rows of `out` without a neighbour.
  index_t ignored_rows() const {
    index_t n = 0;
    for (const run& r : ignored_) n += r.count;
    return n;
  }
  index_t bytes_sent() const { return moves_.bytes_sent(); }
  index_t bytes_received() const { return moves_.bytes_received(); }
  memory_sizes memory() const { return moves_.memory(); }
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    moves_.prepare(given, exec);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    return moves_.try_prepare(given, exec);
  }

  template <class T, class Exec>
  status forward(row_buffer in, row_buffer out, const T& ignore, const seqpar::memory& given, Exec exec) const {
    in = detail::whole_rows(in, rows_, options_);
    out = detail::whole_rows(out, rows_, options_);
    const detail::placed_array to = detail::placed(out, rows_, options_);
    if (status s = check(to, detail::placed(in, rows_, options_), given); !s.ok()) return fail(s);
    const index_t size = sizeof(T), bytes = to.array.column_bytes;
    if (std::integral<T> ? bytes != size : bytes % size != 0)  // an int beside 64-bit ids would fill them in halves
      return fail({errc::invalid_argument,
                   "exchange: ignore is not of the type of the elements; an integer is a whole column of a row"});
    if (status s = moves_.forward(in, out, given, exec); !s.ok()) return s;
    const auto work = space_of(exec);
    for (index_t b = 0; b < options_.batch; ++b)
      for (const run& rows : ignored_)
        work.fill(to.array.rows(b, rows.first, rows.count, rows.step, 0, options_.columns), ignore);
    return work.outcome();
  }

  template <summable T, class Exec>
  status adjoint(row_buffer d_out, row_buffer d_in, const seqpar::memory& given, Exec exec) const {
    d_in = detail::whole_rows(d_in, rows_, options_);
    d_out = detail::whole_rows(d_out, rows_, options_);
    const detail::placed_array to = detail::placed(d_in, rows_, options_);
    if (status s = check(to, detail::placed(d_out, rows_, options_), given); !s.ok()) return fail(s);
    return moves_.template adjoint<T>(d_out, d_in, given, exec);
  }

 private:
  status check(const detail::placed_array& to, const detail::placed_array& from, const seqpar::memory& given) const {
    return detail::check_buffers({to}, {from}, given.scratch, memory().scratch);
  }
  status fail(status s) const {
    team_.transport().abort(s);
    return s;
  }

  mesh<Transport> team_;
  exchange<Transport> moves_;
  std::vector<run> ignored_;  ///< rows of `out`
  index_t rows_;
  exchange_options options_;
};

namespace detail {
/// The errors and what the ranks compare name the verb that was called.
template <class Transport, sequence_layout L>
result<neighbour_exchange<Transport>> plan_neighbours_as(const char* where, const mesh<Transport>& team,
                                                         const L& layout, index_t offset,
                                                         const exchange_options& options,
                                                         std::span<const index_t> bounds) {
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (failure f = detail::check_layout(where, "the layout", layout, team.size())) return *f;
  if (options.placement == placement::in_place)
    return detail::invalid(where, "a row cannot be replaced by its neighbour in place; use placement::apart");
  if (offset < -unbounded || offset > unbounded)
    return detail::invalid(where, {"offset must lie within 2^62, got ", offset});
  if (layout.token_count() > unbounded / 2)
    return detail::invalid(where, "the sequence has more than 2^61 tokens; split it");
  auto found = detail::bounds_of(where, layout, bounds);
  if (!found) return found.failure();
  const std::vector<index_t>& documents = found.value();

  const interval columns{0, options.columns};
  const auto wants = [&](int r) {
    holding h{{}, columns};
    detail::for_each_run_in_documents(layout, r, documents, [&](interval document, run rows, index_t place) {
      const interval targets{document.lo - offset, document.hi - offset};  // rows whose neighbour is in the document
      const interval both = intersection(document, targets);
      if (both.empty()) return;
      const detail::common_run in = detail::intersect(rows, {both.lo, both.size(), 1});
      if (in.count > 0) h.append({rows.at(in.a_first) + offset, in.count, rows.step}, place + in.a_first);
    });
    return h;
  };
  holding mine = wants(team.index());
  std::sort(mine.pieces.begin(), mine.pieces.end(),
            [](const row_piece& a, const row_piece& b) { return a.place < b.place; });
  const index_t rows = layout.count_of(team.index());
  std::vector<run> ignored;
  index_t next = 0;
  for (const row_piece& p : mine.pieces) {
    if (p.place > next) ignored.push_back({next, p.place - next, 1});
    next = p.place + p.rows.count;
  }
  if (next < rows) ignored.push_back({next, rows - next, 1});

  detail::statement said(where);
  said.add_hash("the layout", detail::statement::hash_of_layout(layout));
  said.add("the offset", offset);
  std::uint64_t h = 5;
  for (index_t b : documents) h = detail::statement::mix(h, b);
  said.add_hash("the documents", static_cast<index_t>(h >> 1));
  auto moves = detail::make_exchange(
      team, [&](int r) { return holding_of(layout, r, columns); }, wants, options, std::move(said), true);
  if (!moves) return moves.failure();
  return neighbour_exchange<Transport>(team, std::move(moves.value()), std::move(ignored), rows, options);
}
}  // namespace detail

/// The rows of the tokens `offset` behind (before, if negative) in the global order, in any layout.
///
/// Documents: those of `bounds` (as made by pack()), else those that the layout draws itself (document_at). The clean
/// and noisy copies of a paired layout are sequences of their own; bounds of one copy serve both.
///
/// Fails: bounds that do not ascend from 0 to the last token, placement::in_place, what every exchange refuses.
template <class Transport, sequence_layout L>
result<neighbour_exchange<Transport>> try_plan_neighbours(const mesh<Transport>& team, const L& layout, index_t offset,
                                                          const exchange_options& options,
                                                          std::span<const index_t> bounds = {}) {
  return detail::plan_neighbours_as("plan_neighbours", team, layout, offset, options, bounds);
}
template <class Transport, sequence_layout L>
neighbour_exchange<Transport> plan_neighbours(const mesh<Transport>& team, const L& layout, index_t offset,
                                              const exchange_options& options, std::span<const index_t> bounds = {}) {
  return try_plan_neighbours(team, layout, offset, options, bounds).value();
}

/// Next-token labels: the row of the successor of each own token, `ignore` at the end of a document.
/// Source: the label shift of causal language models, in the global order instead of inside a shard.
template <class Transport, sequence_layout L>
result<neighbour_exchange<Transport>> try_plan_successors(const mesh<Transport>& team, const L& layout,
                                                          const exchange_options& options,
                                                          std::span<const index_t> bounds = {}) {
  return detail::plan_neighbours_as("plan_successors", team, layout, 1, options, bounds);
}
template <class Transport, sequence_layout L>
neighbour_exchange<Transport> plan_successors(const mesh<Transport>& team, const L& layout,
                                              const exchange_options& options, std::span<const index_t> bounds = {}) {
  return try_plan_successors(team, layout, options, bounds).value();
}

/// Is every label one of `classes`, or `ignore`? When not, the peers are told: call it before labels are used.
template <class Transport, std::integral T>
status check_labels(const mesh<Transport>& team, std::span<const T> labels, index_t classes, T ignore) {
  for (const T& label : labels)
    if (label != ignore && (std::cmp_less(label, 0) || std::cmp_greater_equal(label, classes))) {
      const status s{errc::invalid_argument,
                     "labels: a label is neither a class nor the value to ignore",
                     {.given = static_cast<index_t>(label)}};
      team.transport().abort(s);
      return s;
    }
  return {};
}

/// out[i] = the position in time of row i of `rank`, for rotary embeddings: global_of(rank, i) less the first token of
/// its document, so that both copies of a token share theirs. Documents and bounds as in plan_neighbours.
/// Fails (error): a layout with a problem, a rank that it does not have; out has not layout.count_of(rank) elements;
/// the bounds are wrong.
template <sequence_layout L, class Integer>
void positions_of(const L& layout, int rank, std::span<Integer> out, std::span<const index_t> bounds = {}) {
  if (const flaw what = problem_of(layout)) raise(detail::invalid("positions_of", {"the layout: ", what}));
  if (rank < 0 || rank >= layout.rank_count())
    raise(detail::invalid("positions_of", {"rank ", rank, " is not one of ", layout.rank_count()}));
  if (static_cast<index_t>(out.size()) != layout.count_of(rank))
    raise(detail::invalid("positions_of",
                          {"out has ", out.size(), " elements, the rank ", layout.count_of(rank), " rows"}));
  const std::vector<index_t> documents = detail::bounds_of("positions_of", layout, bounds).value();
  detail::for_each_run_in_documents(layout, rank, documents, [&](interval document, run rows, index_t row) {
    for (index_t i = 0; i < rows.count; ++i)
      out[static_cast<std::size_t>(row + i)] = static_cast<Integer>(rows.at(i) - document.lo);
  });
}

}  // namespace v0_1
}  // namespace seqpar
