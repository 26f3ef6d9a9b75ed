// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two-stage multimodal sharding: rows of images, where they were encoded, and text are brought to a token layout.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/exchange/detail/whole_rows.hpp>
#include <seqpar/exchange/item_deal.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A sequence assembled from text and the rows of visual items, in this order:
///
///   assembly prompt(rows_of_items);
///   prompt.text(12).items(0, 64).text(5).item(64).text(20);
///
/// Text rows are numbered 0, 1, … as they come: the rows of the text buffer. An item may occur several times or not at
/// all, and may have no rows.
class assembly {
 public:
  struct part {
    index_t begin, rows;      ///< tokens begin … begin + rows − 1
    index_t item, first_row;  ///< are rows first_row … of the item; −1: of the text
  };
  /// Row `row` of `item`; of the text where item is −1.
  struct source {
    index_t item, row;
    friend bool operator==(const source&, const source&) = default;
  };

  explicit assembly(std::vector<index_t> rows_of_items) : rows_(std::move(rows_of_items)) {}

  template <class = when_used>
  assembly& text(index_t rows) {
    append(rows, -1, text_rows_);
    return *this;
  }
  template <class = when_used>
  assembly& item(index_t i) {
    if (i < 0 || i >= item_count())
      note({"item ", i, ", which is not one of the ", item_count(), " items"});
    else
      append(rows_of(i), i, 0);
    return *this;
  }
  /// The frames of a video, say: items first, first + 1, …
  template <class = when_used>
  assembly& items(index_t first, index_t count) {
    if (count < 0 || first < 0 || count > item_count() - first)
      note({"items ", first, " and on, ", count, " of them, which are not all among the ", item_count(), " items"});
    else
      for (index_t i = first; i < first + count; ++i) item(i);
    return *this;
  }

  index_t token_count() const { return tokens_; }
  index_t text_rows() const { return text_rows_; }
  index_t item_count() const { return static_cast<index_t>(rows_.size()); }
  index_t rows_of(index_t i) const { return rows_[static_cast<std::size_t>(i)]; }
  const std::vector<part>& parts() const { return parts_; }

  template <class = when_used>
  source source_of(index_t token) const {
    const part& p = *first_part(token);
    return {p.item, p.first_row + token - p.begin};
  }
  /// The part that holds a token.
  template <class = when_used>
  std::vector<part>::const_iterator first_part(index_t token) const {
    return std::upper_bound(parts_.begin(), parts_.end(), token,
                            [](index_t t, const part& p) { return t < p.begin + p.rows; });
  }
  /// What is wrong, or "".
  const std::string& problem() const { return wrong_; }

 private:
  template <class = when_used>
  void append(index_t rows, index_t item, index_t first_row) {
    if (rows < 0 || rows > unbounded - tokens_) return note({"a part of ", rows, " rows"});
    if (rows > 0) parts_.push_back({tokens_, rows, item, first_row});
    tokens_ += rows;
    if (item < 0) text_rows_ += rows;
  }
  template <class = when_used>
  void note(detail::words what) {
    if (wrong_.empty()) wrong_ = detail::sentence(what);
  }

  std::vector<index_t> rows_;
  std::vector<part> parts_;  ///< none is empty
  index_t tokens_ = 0, text_rows_ = 0;
  std::string wrong_;
};

/// out[i] on member r = the row that token layout.global_of(r, i) of the assembly comes from. Planned by
/// plan_two_stage.
///
///   visual   rows of the items that the first stage gave this rank, item after item
///   text     all text rows, on every rank: they cost no bytes
///
/// Each visual row that another rank wants moves once for each token that it becomes; no rank has a full copy. Runs
/// allocate nothing.
///
/// Adjoint: d_visual[row] = Σ over its tokens, on all ranks, of d_out; d_text[row] = d_out where this rank has its
/// token, else 0: the gradient of this rank's replica, as of every replicated weight. Their sum over ranks is the
/// gradient of the text (all_reduce); an embedding table whose gradients are summed over ranks anyway needs no such
/// sum.
template <transport Transport>
class two_stage_exchange {
 public:
  two_stage_exchange(mesh<Transport> team, exchange<Transport> moves, std::vector<row_piece> text, index_t text_rows,
                     index_t rows, const exchange_options& options)
      : team_(std::move(team)),
        moves_(std::move(moves)),
        text_(std::move(text)),
        text_rows_(text_rows),
        rows_(rows),
        options_(options) {}

  index_t visual_rows() const { return moves_.own_rows(); }  ///< of `visual` on this rank
  index_t text_rows() const { return text_rows_; }           ///< of `text`
  index_t rows() const { return rows_; }                     ///< of `out` on this rank
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

  template <class Exec>
  status forward(row_buffer visual, row_buffer text, row_buffer out, const seqpar::memory& given, Exec exec) const {
    const views v = all(visual, text, out);
    if (status s = detail::check_buffers(arrays{v.out}, arrays{v.visual, v.text}, given.scratch, memory().scratch);
        !s.ok())
      return fail(s);
    if (status s = moves_.forward(visual, out, given, exec); !s.ok()) return s;
    const auto work = space_of(exec);
    for_each_text_block(v, [&](const block& in_text, const block& in_out) { work.copy(in_out, in_text); });
    return ended(work);
  }

  template <summable T, class Exec>
  status adjoint(row_buffer d_out, row_buffer d_visual, row_buffer d_text, const seqpar::memory& given,
                 Exec exec) const {
    const views v = all(d_visual, d_text, d_out);
    if (status s = detail::check_buffers(arrays{v.visual, v.text}, arrays{v.out}, given.scratch, memory().scratch);
        !s.ok())
      return fail(s);
    if (status s = moves_.template adjoint<T>(d_out, d_visual, given, exec); !s.ok()) return s;
    const auto work = space_of(exec);
    for (index_t b = 0; b < options_.batch; ++b) work.zero(v.text.array.rows(b, 0, text_rows_, 1, 0, options_.columns));
    for_each_text_block(v, [&](const block& in_text, const block& in_out) { work.copy(in_text, in_out); });
    return ended(work);
  }

 private:
  using arrays = std::initializer_list<detail::placed_array>;
  struct views {
    detail::placed_array visual, text, out;
  };
  views all(row_buffer& visual, row_buffer& text, row_buffer& out) const {
    visual = detail::whole_rows(visual, visual_rows(), options_);
    text = detail::whole_rows(text, text_rows_, options_);
    out = detail::whole_rows(out, rows_, options_);
    return {detail::placed(visual, visual_rows(), options_), detail::placed(text, text_rows_, options_),
            detail::placed(out, rows_, options_)};
  }
  template <class F>
  void for_each_text_block(const views& v, F&& f) const {
    for (index_t b = 0; b < options_.batch; ++b)
      for (const row_piece& p : text_)
        f(v.text.array.rows(b, p.rows.first, p.rows.count, p.rows.step, 0, options_.columns),
          v.out.array.rows(b, p.place, p.rows.count, p.place_step, 0, options_.columns));
  }
  template <space Space>
  status ended(const Space& work) const {
    const status s = work.outcome();
    return s.ok() ? s : fail(s);
  }
  status fail(status s) const {
    team_.transport().abort(s);
    return s;
  }

  mesh<Transport> team_;
  exchange<Transport> moves_;    ///< of visual rows
  std::vector<row_piece> text_;  ///< text rows and their places in `out`
  index_t text_rows_, rows_;
  exchange_options options_;
};

/// Stage 2. `encoders` deals the items over the ranks (item_deal or any layout of items), `layout` the tokens.
///
/// Fails: an assembly with a wrong part, items or tokens other than the layouts deal, gradient::replicated (every token
/// is used by one rank), placement::in_place, what every exchange refuses; the same on all ranks. Source: LongVILA's
/// MM-SP, whose all-reduce of a zero-filled full copy this replaces.
template <class Transport, sequence_layout Deal, sequence_layout L>
result<two_stage_exchange<Transport>> try_plan_two_stage(const mesh<Transport>& team, const assembly& sequence,
                                                         const Deal& encoders, const L& layout,
                                                         const exchange_options& options) {
  const char* where = "plan_two_stage";
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (failure f = detail::check_layout(where, "the deal of items", encoders, team.size())) return *f;
  if (failure f = detail::check_layout(where, "the layout", layout, team.size())) return *f;
  if (!sequence.problem().empty())
    return detail::invalid(where, {"the assembly has ", sequence.problem(), "; correct that part"});
  if (encoders.token_count() != sequence.item_count())
    return detail::invalid(where, {"the assembly has ", sequence.item_count(), " items, the deal ",
                                   encoders.token_count(), "; let both speak of the same items"});
  if (layout.token_count() != sequence.token_count())
    return detail::invalid(where, {"the parts add up to ", sequence.token_count(), " tokens, the layout has ",
                                   layout.token_count(), "; let the layout deal the assembled sequence"});
  if (options.convention != gradient::sum || options.placement != placement::apart)
    return detail::invalid(where,
                           "every token is used by one rank and lies apart; use gradient::sum, placement::apart");
  std::vector<index_t> first_row(1, 0);  // of each item, all visual rows numbered item after item
  for (index_t i = 0; i < sequence.item_count(); ++i) {
    if (sequence.rows_of(i) < 0 || sequence.rows_of(i) > unbounded - first_row.back())
      return detail::invalid(where, {"item ", i, " has ", sequence.rows_of(i), " rows; give 0 or more"});
    first_row.push_back(first_row.back() + sequence.rows_of(i));
  }
  const auto first_of = [&](index_t item) { return first_row[static_cast<std::size_t>(item)]; };

  const interval columns{0, options.columns};
  const auto holds = [&](int r) {
    holding h{{}, columns};
    index_t place = 0;
    const auto keep = [&](run rows) {
      h.append(rows, place);
      place += rows.count;
    };
    detail::run_joiner join(keep);
    for_each_run(encoders, r, [&](run items) {
      for (index_t i = 0; i < items.count; ++i) join({first_of(items.at(i)), sequence.rows_of(items.at(i)), 1});
    });
    join.finish();
    return h;
  };
  // The parts behind the tokens of rank r: f(part, their rows in its source, where they lie in `out`)
  const auto for_each_source = [&](int r, auto&& f) {
    index_t place = 0;
    for_each_run(layout, r, [&](run tokens) {
      if (tokens.count > 0) {
        const interval span = detail::span_of(tokens);
        for (auto p = sequence.first_part(span.lo); p != sequence.parts().end() && p->begin < span.hi; ++p) {
          const detail::common_run in = detail::intersect(tokens, {p->begin, p->rows, 1});
          if (in.count > 0) f(*p, run{p->first_row + in.b_first, in.count, in.b_step}, place + in.a_first);
        }
      }
      place += tokens.count;
    });
  };
  const auto wants = [&](int r) {
    holding h{{}, columns};
    for_each_source(r, [&](const assembly::part& p, run rows, index_t place) {
      if (p.item >= 0) h.append({first_of(p.item) + rows.first, rows.count, rows.step}, place);
    });
    return h;
  };
  std::vector<row_piece> text;
  for_each_source(team.index(), [&](const assembly::part& p, run rows, index_t place) {
    if (p.item < 0) text.push_back({rows, place, 1});
  });
  detail::statement said(where);
  std::uint64_t h = 9;
  for (const assembly::part& p : sequence.parts())
    for (index_t v : {p.rows, p.item}) h = detail::statement::mix(h, v);
  said.add_hash("the parts of the sequence", static_cast<index_t>(h >> 1));
  for (index_t row : first_row) h = detail::statement::mix(h, row);
  said.add_hash("the rows of the items", static_cast<index_t>(h >> 1));
  for (index_t i = 0; i < encoders.token_count(); ++i)
    for (index_t v : {index_t{encoders.place_of(i).rank}, encoders.place_of(i).local}) h = detail::statement::mix(h, v);
  said.add_hash("the deal of items", static_cast<index_t>(h >> 1));
  said.add_hash("the layout", detail::statement::hash_of_layout(layout));
  auto moves = detail::make_exchange(team, holds, wants, options, std::move(said), false);
  if (!moves) return moves.failure();
  return two_stage_exchange<Transport>(team, std::move(moves.value()), std::move(text), sequence.text_rows(),
                                       layout.count_of(team.index()), options);
}
template <class Transport, sequence_layout Deal, sequence_layout L>
two_stage_exchange<Transport> plan_two_stage(const mesh<Transport>& team, const assembly& sequence,
                                             const Deal& encoders, const L& layout, const exchange_options& options) {
  return try_plan_two_stage(team, sequence, encoders, layout, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
