// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A planned movement of rows: a route, the memory it needs, and its three senses.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <seqpar/detail/agreement.hpp>
#include <seqpar/exchange/carry.hpp>
#include <seqpar/exchange/detail/plan_checks.hpp>
#include <seqpar/exchange/detail/run_checks.hpp>
#include <seqpar/exchange/ownership.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/memory.hpp>

namespace seqpar {
inline namespace v0_1 {

/// How the gradient of a value that several ranks received is made. Where each is wanted by one rank only (scatter,
/// gather to a root, reshard) both mean the same: it goes back to the owner.
enum class gradient {
  sum,        ///< each rank used it differently: the owner gets the sum over ranks
  replicated  ///< all ranks used it alike: the owner takes its own slice; no bytes
};

/// Whether rows that are wanted lie in other memory than rows that are owned, or beside them in one buffer (a halo
/// around its interior): then forward and adjoint are given that buffer as both, and a row that is wanted where it lies
/// stays.
enum class placement { apart, in_place };

/// What an adjoint can sum: 16-bit and fp32 elements in fp32, double in double.
template <class T>
concept summable = element<T> || std::same_as<T, double>;

/// A row is `row_bytes` bytes; with `columns` > 1 it is cut into that many equal columns, which holdings may own apart.
struct exchange_options {
  extent row_bytes;
  index_t batch = 1;
  index_t columns = 1;
  gradient convention = gradient::sum;
  seqpar::placement placement = placement::apart;
  seqpar::passes passes = forward_backward;  ///< forward_only: no memory for the adjoint
  agreement check = agreement::checked;
};

/// Rows in memory: column c of row i of item b at pointer + b·batch_stride + i·row_stride + c·column_stride, in bytes;
/// 0 means dense.
struct row_buffer {
  void* pointer = nullptr;
  index_t row_stride = 0, batch_stride = 0, column_stride = 0;
  row_buffer(void* p, index_t row = 0, index_t batch = 0, index_t column = 0)
      : pointer(p), row_stride(row), batch_stride(batch), column_stride(column) {}
  row_buffer(const void* p, index_t row = 0, index_t batch = 0, index_t column = 0)
      : row_buffer(const_cast<void*>(p), row, batch, column) {}
};

/// Moves rows from owners to wanters: out[j] = in[i] for every wanted row (route.hpp has the equation).
///
/// Memory: the adjoint lands sums of other ranks in scratch; forward and inverse need none. Runs allocate nothing.
/// Determinism: bitwise; sums are added in ascending order of ranks, in fp32.
/// Fails: prepare throws when ranks disagree; runs return a local status before anything is posted and tell the peers.
template <transport Transport>
class exchange {
 public:
  static_assert(detail::moves_strided<Transport>());
  exchange(mesh<Transport> team, route way, std::vector<run> own_places, index_t own_rows, index_t own_columns,
           index_t wanted_rows, index_t wanted_columns, const exchange_options& options, detail::statement said)
      : team_(std::move(team)),
        way_(std::move(way)),
        group_(team_.transport().group()),
        options_(options),
        own_places_(std::move(own_places)),
        own_rows_(own_rows),
        own_columns_(own_columns),
        sums_{own_columns * column_bytes(), column_bytes(), own_rows * own_columns * column_bytes()},
        wanted_rows_(wanted_rows),
        wanted_columns_(wanted_columns),
        said_(std::move(said)) {}

  const route& way() const { return way_; }
  index_t own_rows() const { return own_rows_; }        ///< rows of `in` on this rank
  index_t wanted_rows() const { return wanted_rows_; }  ///< rows of `out` on this rank
  /// Payload bytes that forward sends from this rank to others.
  index_t bytes_sent() const { return way_.entries_sent() * options_.batch * column_bytes(); }
  index_t bytes_received() const { return way_.entries_received() * options_.batch * column_bytes(); }

  memory_sizes memory() const {
    carver c;
    (void)walk(c);
    return {.scratch = c.bytes()};
  }

  /// Collective: compares what the ranks asked for, reserves what runs post. Throws error.
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    if (failure f = try_prepare(given, exec)) raise(*f);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    if (team_.moved_from()) return error(gone());
    if (status s = check_memory(given, memory()); !s.ok()) return error(fail(s));
    if (options_.check == agreement::checked)
      if (failure f = detail::agree(team_, said_)) return f;
    std::vector<int> peers;
    add_peers(peers, team_, way_);
    if (status s = connect_peers(team_.transport(), peers, exec); !s.ok()) return error(fail(s));
    if (status s = first_all_gather(); !s.ok()) return error(fail(s));
    if constexpr (requires { exec.load(); })
      if (status s = exec.load(); !s.ok()) return error(fail(s));
    const index_t out = detail::block_count(way_.outgoing()) * options_.batch,
                  in = detail::block_count(way_.incoming()) * options_.batch;
    group_.reserve(std::max(out, in), std::max(out, in));
    prepared_ = true;
    return {};
  }

  /// out = rows wanted, from `in` = rows owned.
  template <class Exec>
  status forward(row_buffer in, row_buffer out, const seqpar::memory& given, Exec exec) const {
    const row_array owner = owned(in), wanter = wanted(out);
    if (status s = ready(given, owner, wanter, detail::holder::wanter, exec); !s.ok()) return fail(s);
    begin();
    if constexpr (gathering_group<group_type>)
      if (all_gather_) {  // a rank's own rows come with the others'
        for (index_t b = 0; b < options_.batch; ++b)
          group_.gather_all(owner.rows(b, 0, own_rows_, 1, 0, own_columns_),
                            wanter.rows(b, 0, wanted_rows_, 1, 0, wanted_columns_));
        return carry([](const auto&) {}, given, exec);
      }
    post_copy(group_, team_, way_, owner, wanter);
    return carry([&](const auto& work) { copy_own(work, way_, owner, wanter); }, given, exec);
  }

  /// The way back where every entry is wanted by one rank: in = what the wanters hold in `out`.
  template <class Exec>
  status inverse(row_buffer out, row_buffer in, const seqpar::memory& given, Exec exec) const {
    const row_array owner = owned(in), wanter = wanted(out);
    if (status s = ready(given, owner, wanter, detail::holder::owner, exec); !s.ok()) return fail(s);
    if (!wanted_once_)
      return fail({errc::invalid_argument, "exchange: inverse needs every entry to be wanted once; use adjoint"});
    begin("inverse");
    post_inverse(group_, team_, way_, owner, wanter);
    return carry([&](const auto& work) { copy_own_back(work, way_, owner, wanter); }, given, exec);
  }

  /// d_in = Σ over ranks that received the row of d_out (sum), or this rank's own d_out (replicated). Elements are T.
  /// In place, d_in may be d_out: the gradient of each owned row then stands where the row does.
  template <summable T, class Exec>
  status adjoint(row_buffer d_out, row_buffer d_in, const seqpar::memory& given, Exec exec) const {
    using Sum = std::conditional_t<std::same_as<T, double>, double, float>;
    const row_array owner = owned(d_in), wanter = wanted(d_out);
    if (status s = ready(given, owner, wanter, detail::holder::owner, exec); !s.ok()) return fail(s);
    if (options_.passes == forward_only)
      return fail({errc::not_prepared, "exchange: planned for the forward pass only; plan with forward_backward"});
    if (column_bytes() % static_cast<index_t>(sizeof(T)) != 0)
      return fail({errc::invalid_argument, "exchange: a row is not a whole number of gradient elements"});
    for (const row_array* a : {&owner, &wanter})
      for (index_t at : {static_cast<index_t>(reinterpret_cast<std::intptr_t>(a->pointer)), a->row_stride,
                         a->batch_stride, a->column_stride, sums_.row, sums_.column, sums_.item})
        if (at % static_cast<index_t>(alignof(T)) != 0)
          return fail(
              {errc::invalid_argument, "exchange: a gradient's pointer or stride is no multiple of its element"});
    carver c(given.scratch);
    const scratch mine = walk(c);
    const index_t wider = sizeof(Sum) / sizeof(T);
    const row_array sums{mine.sums,         options_.batch,       sums_.item * wider,
                         sums_.row * wider, sums_.column * wider, column_bytes() * wider};
    const auto work = space_of(exec);
    work.zero(dense_block(mine.sums, options_.batch * sums_.item * wider));
    if (!sums_travel()) {
      detail::for_each_line(way_.own(), options_.batch, [&](const detail::line& n) {
        work.template store<Sum, T>(detail::owner_block(sums, way_.own(), n),
                                    detail::wanter_block(wanter, way_.own(), n), write::add);
      });
    } else {
      begin("adjoint");
      post_add(group_, team_, way_, wanter, mine.staging);
      if (status s = carry([](const auto&) {}, given, exec); !s.ok()) return s;
      add_up<Sum, T>(work, team_.index(), way_, sums, wanter, mine.staging);
    }
    for (index_t b = 0; b < options_.batch; ++b)
      for (const run& places : own_places_)
        work.template store<T, Sum>(owner.rows(b, places.first, places.count, places.step, 0, own_columns_),
                                    sums.rows(b, places.first, places.count, places.step, 0, own_columns_),
                                    write::assign);
    return work.outcome();
  }

  /// Set while planning: is every entry wanted by one rank only?
  void wanted_once(bool yes) { wanted_once_ = yes; }
  /// Set while planning: do all ranks of the transport, in their order, give equal shares of what all want?
  void all_gather(bool yes) { all_gather_ = yes; }
  /// Also compared by prepare.
  void also_said(const char* name, index_t value) { said_.add_hash(name, value); }

 protected:
  /// How owned rows lie as planned, in bytes: their sums lie so in scratch, each element as wide as its sum.
  struct sum_places {
    index_t row, column, item;
  };
  /// Both buffers are boxes, whose rows and columns may interleave (a pitch, planes): whether they lie apart is checked
  /// there. Of the `rows` of `out` those at the end may be nobody's.
  void holds_boxes(index_t rows, const sum_places& sums) {
    interleaved_ = true;
    wanted_rows_ = rows;
    sums_ = sums;
  }
  /// A local error found before anything is posted: the peers are told.
  static status gone() { return {errc::not_prepared, "exchange: this plan was moved from; use where it went"}; }
  status fail(status s) const {
    if (!team_.moved_from()) team_.transport().abort(s);
    return s;
  }

 private:
  using group_type = typename Transport::group_type;
  /// Of a byte each: engines connect for a collective, too, when they meet the first.
  status first_all_gather() const {
    if constexpr (gathering_group<group_type>) {
      if (!all_gather_) return {};
      std::vector<std::byte> bytes(static_cast<std::size_t>(team_.size()) + 1);
      group_type g = team_.transport().group();
      g.reserve(team_.size(), team_.size());
      g.label({"connect", 0});
      g.gather_all(dense_block(bytes.data(), 1), dense_block(bytes.data() + 1, team_.size()));
      if (status s = team_.transport().launch(g, on_host{}); !s.ok()) return s;
      return team_.transport().wait(g, on_host{});
    }
    return {};
  }
  /// An empty group for the messages of one run.
  /// Messages are called by the verb: "reshard", and the other ways "adjoint of reshard".
  void begin(const char* way = nullptr) const {
    const std::string_view operation = said_.operation();
    const char* verb = said_.operation() + (operation.starts_with("plan_") ? 5 : 0);
    group_.clear();
    group_.label({way ? way : verb, 0, said_.plan(), way ? verb : ""});
  }
  struct scratch {
    std::byte* staging;
    std::byte* sums;
    std::byte* packed;  ///< for transports that pack
  };
  scratch walk(carver& c) const {
    scratch s{};
    if constexpr (packing_group<group_type>) s.packed = c.take<std::byte>(pack_bytes());
    if (options_.passes == forward_only) return s;
    s.staging = c.take<std::byte>(sums_travel() ? staging_bytes(way_, options_.batch, column_bytes()) : 0);
    s.sums = c.take<std::byte>(options_.batch * sums_.item * 2);  // an fp32 sum for the narrowest element, of two bytes
    return s;
  }
  index_t pack_bytes() const {
    const index_t messages = packed_bytes(way_, options_.batch, column_bytes());
    if (!gathering_group<group_type> || !all_gather_) return messages;
    const auto whole = [&](index_t rows, index_t columns) {
      return round_up(rows * columns * column_bytes(), pack_alignment) * options_.batch;
    };
    return std::max(messages, whole(own_rows_, own_columns_) + whole(wanted_rows_, wanted_columns_));
  }
  bool sums_travel() const { return options_.convention == gradient::sum || wanted_once_; }
  index_t column_bytes() const { return options_.row_bytes / options_.columns; }
  row_array array(const row_buffer& b, index_t rows, index_t columns) const {
    if (options_.placement == placement::in_place) {  // one buffer has one shape
      rows = std::max(own_rows_, wanted_rows_);
      columns = std::max(own_columns_, wanted_columns_);
    }
    const index_t row = b.row_stride ? b.row_stride : columns * column_bytes();
    const index_t column = b.column_stride ? b.column_stride : column_bytes();
    return {b.pointer, options_.batch, b.batch_stride ? b.batch_stride : rows * row, row, column, column_bytes()};
  }
  row_array owned(const row_buffer& b) const { return array(b, own_rows_, own_columns_); }
  row_array wanted(const row_buffer& b) const { return array(b, wanted_rows_, wanted_columns_); }

  template <class Exec>
  status ready(const seqpar::memory& given, const row_array& owner, const row_array& wanter, detail::holder written,
               const Exec& exec) const {
    if (team_.moved_from()) return gone();
    if (!prepared_) return {errc::not_prepared, "exchange: call prepare first"};
    if (status s = check_memory(given, memory()); !s.ok()) return s;
    const detail::placed_array o{owner, own_rows_, own_columns_}, w{wanter, wanted_rows_, wanted_columns_};
    if (o.has_bytes() && !owner.pointer) return {errc::invalid_argument, "exchange: in (d_in) has rows and is null"};
    if (w.has_bytes() && !wanter.pointer) return {errc::invalid_argument, "exchange: out (d_out) has rows and is null"};
    const bool one_buffer = options_.placement == placement::in_place && owner.pointer == wanter.pointer &&
                            owner.row_stride == wanter.row_stride && owner.batch_stride == wanter.batch_stride &&
                            owner.column_stride == wanter.column_stride;
    const detail::placed_array& result = written == detail::holder::owner ? o : w;
    if (!interleaved_ && !one_place_each(result))
      return {errc::overlapping_buffers, "exchange: the strides of a result let its rows overlap; give them room"};
    const index_t used = memory().scratch;
    const detail::placed_array work{{given.scratch.pointer, 1, used, used, used, used}, 1, 1};
    if (may_share(o, work) || may_share(w, work))
      return {errc::overlapping_buffers, "exchange: memory.scratch overlaps in or out; give separate memory"};
    if (!one_buffer && may_share(o, w))
      return {errc::overlapping_buffers, "exchange: in and out overlap; give separate buffers"};
    for (const auto& [name, array] : {std::pair{"in (d_in)", o}, {"out (d_out)", w}, {"memory.scratch", work}})
      if (const char* text =
              array.has_bytes() ? detail::problem_of_memory(space_of(exec), array.array.pointer) : nullptr)
        return {errc::invalid_argument, text, -1, name};
    return {};
  }
  template <class Own, class Exec>
  status carry(Own&& own, const seqpar::memory& given, Exec exec) const {
    if constexpr (packing_group<group_type>) {
      carver c(given.scratch);
      group_.pack_into(walk(c).packed, pack_bytes());
    }
    if (status s = team_.transport().launch(group_, exec); !s.ok()) return fail(s);
    const auto work = space_of(exec);
    own(work);
    if (status s = work.outcome(); !s.ok()) {
      static_cast<void>(fail(s));
      static_cast<void>(team_.transport().wait(group_, exec));  // no peer reads the caller's memory any more
      return s;
    }
    return team_.transport().wait(group_, exec);
  }

  mesh<Transport> team_;
  route way_;
  mutable group_type group_;
  exchange_options options_;
  std::vector<run> own_places_;  ///< rows of `in` that this rank owns
  index_t own_rows_, own_columns_;
  sum_places sums_;
  index_t wanted_rows_, wanted_columns_;
  bool prepared_ = false, wanted_once_ = false, all_gather_ = false, interleaved_ = false;
  detail::statement said_;
};

namespace detail {

inline failure check_exchange(const char* where, const exchange_options& o) {
  if (o.row_bytes < 1) return invalid(where, {"row_bytes must be at least 1, got ", o.row_bytes});
  if (o.batch < 0) return invalid(where, {"batch must not be negative, got ", o.batch});
  if (o.columns < 1 || o.row_bytes % o.columns != 0)
    return invalid(where, {"columns must divide row_bytes, got ", o.columns});
  return {};
}

/// Does every rank of the transport, in their order, hold an equal share of rows that all want whole?
template <class Transport>
bool is_all_gather(const mesh<Transport>& team, function_ref<holding(int)> holds, function_ref<holding(int)> wants) {
  const index_t share = holds(0).rows();
  bool is = team.size() > 1 && team.size() == team.transport().size() && share > 0;
  for (int r = 0; is && r < team.size(); ++r) {
    const holding own = holds(r), want = wants(r);
    const auto one_piece = [&](const holding& h, run rows) {
      return h.pieces.size() == 1 && h.columns == holds(0).columns && h.pieces[0].place == 0 &&
             h.pieces[0].rows == rows && h.pieces[0].place_step == 1;
    };
    is = team.rank_of(r) == r && one_piece(own, {r * share, share, 1}) && one_piece(want, {0, team.size() * share, 1});
  }
  return is;
}

/// The verbs' common tail.
template <class Transport>
result<exchange<Transport>> make_exchange(const mesh<Transport>& team, function_ref<holding(int)> holds,
                                          function_ref<holding(int)> wants, const exchange_options& options,
                                          statement said, bool wanted_once) {
  const char* where = said.operation();
  said.add("row_bytes", options.row_bytes);
  said.add("batch", options.batch);
  said.add("columns", options.columns);
  said.add_hash("the gradient convention", static_cast<index_t>(options.convention));
  for (int r = 0; options.placement == placement::in_place && r < team.size(); ++r)
    if (failure f = check_in_place(where, holds(r), wants(r), r)) return *f;
  const holding own = holds(team.index()), want = wants(team.index());
  const auto extent_of_places = [](const holding& h) {  // the memory that holds them: up to the last place
    index_t n = 0;
    for (const row_piece& p : h.pieces)
      if (p.rows.count > 0) n = std::max({n, p.place + 1, p.place + (p.rows.count - 1) * p.place_step + 1});
    return n;
  };
  std::vector<run> places;
  const auto keep = [&](run r) { places.push_back(r); };
  run_joiner join(keep);
  for (const row_piece& p : own.pieces) join({p.place, p.rows.count, p.place_step});
  join.finish();
  for (int r = 0; r < team.size(); ++r)
    if (exceeds_64_bits({std::max(holds(r).rows(), wants(r).rows()), options.row_bytes, options.batch,
                         std::max<index_t>(8, team.size())}))
      return invalid(where, {"the rows of rank ", r, " have more than 2^62 bytes; give smaller sizes"});
  exchange<Transport> e(team, route::between(team.index(), team.size(), holds, wants), std::move(places),
                        extent_of_places(own), own.columns.size(), extent_of_places(want), want.columns.size(), options,
                        std::move(said));
  e.wanted_once(wanted_once);
  e.all_gather(options.placement == placement::apart && is_all_gather(team, holds, wants));
  return e;
}

}  // namespace detail

/// Any owners and wants: holds(r) and wants(r) give the holding of member r, alike on every rank.
/// Fails: a row with two owners, a wanted row without one, two rows at one place, columns outside of the row.
template <class Transport, class Holds, class Wants>
result<exchange<Transport>> try_plan_exchange(const mesh<Transport>& team, Holds&& holds, Wants&& wants,
                                              const exchange_options& options) {
  const char* where = "plan_exchange";
  if (failure f = detail::check_exchange(where, options)) return *f;
  const detail::ownership owned(team.size(), holds), wanted(team.size(), wants);
  for (int r = 0; r < team.size(); ++r)
    for (const detail::ownership* all : {&owned, &wanted})
      if (failure f = detail::check_holding(where, all->of(r), r, options.columns)) return *f;
  if (failure f = detail::check_ownership(where, owned, wanted)) return *f;
  const bool once = wanted.disjoint();
  for (int r = 0; options.convention == gradient::replicated && !once && r < team.size(); ++r)
    if (owned.of(r).entries() != detail::ownership(1, [&](int) { return owned.of(r); }).entries_of(wanted.of(r)))
      return detail::invalid(where, {"rank ", r,
                                     " does not want all rows that it owns, which gradient::replicated takes the "
                                     "gradient from; use gradient::sum"});
  detail::statement said(where);
  std::uint64_t h = 3;
  for (int r = 0; r < team.size(); ++r)
    for (const holding* rows : {&owned.of(r), &wanted.of(r)}) {
      for (index_t v : {rows->columns.lo, rows->columns.hi, static_cast<index_t>(rows->pieces.size())})
        h = detail::statement::mix(h, v);
      for (const row_piece& p : rows->pieces)
        for (index_t v : {p.rows.first, p.rows.count, p.rows.step, p.place, p.place_step})
          h = detail::statement::mix(h, v);
    }
  said.add_hash("the holdings", static_cast<index_t>(h >> 1));
  const auto of = [](const detail::ownership& all) { return [&all](int r) -> const holding& { return all.of(r); }; };
  return detail::make_exchange(team, of(owned), of(wanted), options, std::move(said), once);
}
template <class Transport, class Holds, class Wants>
exchange<Transport> plan_exchange(const mesh<Transport>& team, Holds&& holds, Wants&& wants,
                                  const exchange_options& options) {
  return try_plan_exchange(team, holds, wants, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
