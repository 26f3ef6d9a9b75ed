// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention of a few queries that every rank has to a key/value cache whose tokens are dealt to the ranks.
#pragma once

#include <seqpar/attention/decode_arguments.hpp>
#include <seqpar/attention/decode_pass.hpp>
#include <seqpar/attention/decode_tables.hpp>
#include <seqpar/attention/plan.hpp>
#include <seqpar/mask/causal.hpp>

namespace seqpar {
inline namespace v0_1 {

/// One rank's part of
///
///   out = softmax(scale·q·kᵀ | mask)·v,   lse = log Σ exp(scale·q·kᵀ)   over the cache's rows on all ranks,
///
/// the same bits on every rank. Along the ring axis ranks hold tokens, along the all-to-all axis parts of the kv heads
/// (kv_heads_here()); the layout deals tokens over ring_size() ranks. Each rank attends to its own rows, the partials
/// (out, lse) are merged by merge_tree along the ring, then handed round along the all-to-all axis.
///
/// prepare once; advance when the cache has grown (once a step, for all layers); forward as often as wanted; all with
/// one exec, which without a word is the host. Memory: tables for cache_rows and `queries`, exchange equal on all
/// ranks; prepare on another exec than the host keeps twice the tables here. advance, append and forward allocate
/// nothing and never wait for a device. A captured forward may be replayed after later advances of as many queries,
/// where the mask gives intervals: they change what its tables say. advance itself is not for capture.
/// Bytes: a partial is batch·queries·heads·(value_dim + 1) floats; on the host before them every rank sends every other
/// a stamp of 8 bytes, which says what advance was given; see bytes_sent. No keys travel.
/// Fails: as attention_plan; on the host forward returns ranks_disagree, on all ranks, where their stamps differ: then
/// no partial has moved and the transport is as it was. agreement::trusted leaves the stamps out. A cache with more
/// rows than cache_rows is refused by append, advance and so by forward. Source: flash-decoding, Helix parallelism,
/// tree attention.
template <element T, attention_mask Mask, transport Transport, block_kernel Kernel = host_fast, element Out = T>
class decode_plan {
 public:
  using forward_type = decode_arguments<T, Out>;
  using append_type = append_arguments<T>;
  decode_plan(const decode_plan&) = delete;  // plans are moved, not copied: masks view tables of the plan
  decode_plan(decode_plan&&) = default;
  decode_plan& operator=(decode_plan&&) = default;

  /// Exact bytes by kind.
  const memory_sizes& memory() const { return sizes_; }
  const decode_shape& shape() const { return shape_; }
  interval kv_heads_here() const { return own_kv_; }  ///< the kv heads of this rank's cache
  /// Payload bytes that a run of so many queries sends from this rank to others.
  template <executor Exec = on_host>
  index_t bytes_sent(index_t queries, Exec = {}) const {
    const index_t hops = own_.empty() ? 0 : tree().partials_sent() + team_.all_to_all_size() - 1;
    const index_t stamps = compares<Exec>() ? (team_.size() - 1) * static_cast<index_t>(sizeof(stamp_)) : 0;
    return hops * partial_floats(queries, own_) * static_cast<index_t>(sizeof(float)) + stamps;
  }

  /// Collective: compares what the ranks gave, connects peers, reserves what runs post. Throws error.
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    if (failure f = try_prepare(given, exec)) raise(*f);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    if (team_.moved_from()) return error(gone());
    if (status s = check_memory(given, sizes_); !s.ok()) return error(fail(s));
    if (options_.check == agreement::checked)
      if (failure f = detail::agree(team_, said_)) return f;
    if (status s = connect_peers(team_.transport(), peers(), exec); !s.ok()) return error(fail(s));
    if (status s = load_kernel(exec); !s.ok()) return error(fail(s));
    prepared_ = advanced_ = false;
    in_place_ = std::same_as<Exec, on_host>;
    tables_at_ = given.tables.pointer;
    carver c(given.tables);
    if constexpr (!std::same_as<Exec, on_host>) {
      static_assert(decoding_space<decltype(space_of(exec))>,
                    "[seqpar] decode on this executor needs a space with put (space/concept.hpp), which "
                    "cuda::on_device of <seqpar/cuda.cuh> has");
      const auto work = space_of(exec);
      if (const char* wrong = detail::problem_of_memory(work, tables_at_))
        return error(fail({errc::invalid_argument, wrong, -1, "memory.tables"}));
      if (status s = copy_.start({tables_at_, sizes_.tables}, work); !s.ok()) return error(fail(s));
      c = carver(copy_.here());
    }
    tables_ = walk_tables(c);
    const index_t most = std::max(1, team_.size() - 1);
    group_.reserve(most, most);
    prepared_ = true;
    return {};
  }

  /// The cache as it is now and where the queries of the coming runs stand in it. Local; every rank does the same. The
  /// mask is the planned one, told this length, or another value of its type; a mask that is asked rather than giving
  /// intervals must keep what it views alive until the next advance.
  template <sequence_layout L, executor Exec = on_host>
  status advance(const L& cache, decode_queries queries, const seqpar::memory& given, Exec exec = {}) noexcept {
    return advance(cache, queries, mask_, given, exec);
  }
  template <sequence_layout L, executor Exec = on_host>
  status advance(const L& cache, decode_queries queries, const Mask& mask, const seqpar::memory& given,
                 Exec exec = {}) noexcept {
    advanced_ = false;
    if (status s = ready<Exec>(given); !s.ok()) return fail(s);
    if (status s = check_cache(cache); !s.ok()) return fail(s);
    if (const flaw wrong = problem_of(mask)) return fail({errc::invalid_argument, wrong, {.given = wrong.given}});
    const index_t tokens = cache.token_count();
    if (queries.count() < 0 || queries.count() > shape_.queries)
      return fail({errc::invalid_argument,
                   "decode: more queries than planned for; plan with more queries",
                   {queries.count(), shape_.queries, " queries"}});
    const run at = queries.of(tokens);
    if (!detail::lies_within(at, detail::most_position))
      return fail({errc::invalid_argument, "decode: a query's position is negative or beyond 2^31 - 2"});
    const auto write = [&] {
      now_.emplace(bound(mask, tokens, tokens));
      intervals_ = tables_.write_queries(at, tokens, [&](index_t q) { return try_key_intervals(*now_, q); });
      return status{};
    };
    if (status s = detail::told_to_peers(team_.transport(), "decode: the mask threw", write); !s.ok()) return s;
    if (!intervals_ && !detail::takes_mask<Kernel, bound_mask>())
      return fail(
          {errc::invalid_argument,
           "decode: a query sees more than two intervals of keys, and this kernel cannot ask this type of mask"});
    tables_.write_keys(cache, ring());
    tables_.write_ranges(intervals_);
    if (compares<Exec>()) stamp_ = stamp_of(cache);
    read_ = tables_;
    if constexpr (!std::same_as<Exec, on_host>) {
      const auto work = space_of(exec);
      copy_.send(tables_, work);
      read_ = tables_.copied_to(carver(given.tables));
      prepared_ = work.outcome().ok();  // else what is there is not known
      if (!prepared_) return fail(work.outcome());
    }
    advanced_ = true;
    return {};
  }

  /// Writes those of the last k.tokens() tokens of `cache` that this rank holds into its cache. Local.
  template <sequence_layout L, executor Exec = on_host>
  status append(const L& cache, const append_type& a, Exec exec = {}) const noexcept {
    const attention_shape n = shape_.attention();
    const index_t tokens = cache.token_count(), fresh = a.k.tokens(), rows = shape_.cache_rows;
    if (status s = on_the_same<Exec>(); !s.ok()) return fail(s);
    if (status s = check_cache(cache); !s.ok()) return fail(s);
    if (fresh > tokens)
      return fail({errc::invalid_argument, "decode: more new tokens than the cache has", {fresh, tokens, " tokens"}});
    detail::buffer_checks buffers(detail::append_texts);
    buffers.input("k", a.k, {n.batch, fresh, n.kv_heads, n.head_dim});
    buffers.input("v", a.v, {n.batch, fresh, n.kv_heads, n.v_dim()});
    buffers.output("k_cache", a.k_cache, {n.batch, rows, own_kv_.size(), n.head_dim});
    buffers.output("v_cache", a.v_cache, {n.batch, rows, own_kv_.size(), n.v_dim()});
    const auto work = space_of(exec);
    buffers.lie_in(work);
    if (!buffers.outcome().ok()) return fail(buffers.outcome());
    detail::for_each_fresh_run(cache, fresh, ring(), [&](run from, index_t to) {
      detail::copy_rows(work, a.k, from, own_kv_, a.k_cache, to);
      detail::copy_rows(work, a.v, from, own_kv_, a.v_cache, to);
    });
    const status s = work.outcome();
    return s.ok() ? s : fail(s);
  }

  /// out and lse of the queries that advance named, on every rank.
  template <class Exec>
  status forward(const forward_type& a, const seqpar::memory& given, Exec exec) const noexcept {
    if (status s = ready<Exec>(given); !s.ok()) return fail(s);
    if (!advanced_) return fail({errc::not_prepared, "decode: call advance first"});
    const attention_shape n = shape_.attention();
    const index_t q = tables_.query_count(), rows = shape_.cache_rows;
    detail::buffer_checks buffers(detail::decode_texts);
    buffers.input("q", a.q, {n.batch, q, n.heads, n.head_dim});
    buffers.input("k", a.k, {n.batch, rows, own_kv_.size(), n.head_dim});
    buffers.input("v", a.v, {n.batch, rows, own_kv_.size(), n.v_dim()});
    buffers.output("out", a.out, {n.batch, q, n.heads, n.v_dim()});
    if (a.lse.pointer) buffers.output("lse", a.lse, {n.batch, n.heads, q});
    buffers.memory("memory.tables", given.tables, sizes_.tables);
    buffers.memory("memory.scratch", given.scratch, sizes_.scratch);
    buffers.memory("memory.exchange", given.exchange, sizes_.exchange);
    buffers.lie_in(space_of(exec));
    if (!buffers.outcome().ok()) return fail(buffers.outcome());
    return detail::decode_pass<decode_plan, Exec>(*this, given, exec).run(a);
  }

  /// Used by try_plan_decode.
  decode_plan(mesh<Transport> team, const Mask& mask, const decode_shape& shape, const decode_options& options,
              Kernel kernel)
      : team_(std::move(team)),
        shape_(shape),
        options_(options),
        kernel_(kernel),
        mask_(rebound(mask, keeper_)),
        group_(team_.transport().group()) {}
  failure build() {
    const char* where = "plan_decode";
    const attention_shape n = shape_.attention();
    if (failure f = detail::check_decode_shape(where, shape_, team_.size())) return f;
    if (const flaw what = problem_of(mask_)) return detail::invalid(where, {"the mask: ", what});
    own_ = heads_of(part());
    if (!own_.empty()) own_kv_ = {own_.lo / n.heads_per_kv(), (own_.hi - 1) / n.heads_per_kv() + 1};
    scale_ = options_.scale.value_or(1.f / std::sqrt(static_cast<float>(index_t{n.head_dim})));
    carver tables, scratch, exchange;
    walk_tables(tables);
    detail::decode_arrays::take(scratch, exchange, *this);
    sizes_ = {.tables = tables.bytes(), .scratch = scratch.bytes(), .exchange = exchange.bytes()};
    state();
    return {};
  }

 private:
  friend struct detail::decode_arrays;
  template <class Plan, class Exec>
  friend struct detail::decode_pass;
  using value_type = T;
  using out_type = Out;
  using kernel_type = Kernel;
  using bound_mask = decltype(bound(std::declval<const Mask&>(), index_t{}, index_t{}));

  int ring() const { return team_.ring_of(team_.index()); }
  int part() const { return team_.all_to_all_of(team_.index()); }
  merge_tree tree() const { return {team_.ring_size(), ring()}; }
  interval heads_of(int u) const { return detail::share(shape_.heads, team_.all_to_all_size(), u); }
  index_t workspace_bytes() const { return Kernel::workspace_bytes(shape_.head_dim, shape_.attention().v_dim()); }
  index_t partial_floats(index_t queries, interval heads) const {
    return shape_.batch * queries * heads.size() * (shape_.attention().v_dim() + 1);
  }
  /// Stamps are the host's to compare.
  template <class Exec>
  bool compares() const {
    return std::same_as<Exec, on_host> && options_.check == agreement::checked;
  }
  std::vector<int> peers() const {
    std::vector<int> all;
    static_cast<void>(tree().run(
        [&](int peer, bool, bool, index_t) {
          all.push_back(team_.rank_of(team_.member_at(peer, part())));
          return status{};
        },
        [](bool) {}));
    for (int u = 0; u < team_.all_to_all_size(); ++u)
      if (u != part()) all.push_back(team_.rank_of(team_.member_at(ring(), u)));
    return all;
  }
  template <class Exec>
  status load_kernel(const Exec& exec) const {
    if constexpr (requires { Kernel::template load<T, float, by_intervals>(exec, forward_only); }) {
      if constexpr (!interval_mask<bound_mask> && detail::takes_mask<Kernel, bound_mask>())
        if (status s = Kernel::template load<T, float, bound_mask>(exec, forward_only); !s.ok()) return s;
      return Kernel::template load<T, float, by_intervals>(exec, forward_only);
    }
    return {};
  }
  detail::decode_tables walk_tables(carver& c) const {
    return detail::decode_tables::take(c, shape_.queries, shape_.cache_rows, Kernel::query_tile_rows,
                                       Kernel::key_tile_rows);
  }
  /// What advance was given, as it behaves: the layout's rows, the queries and the keys that they see.
  template <class L>
  std::uint64_t stamp_of(const L& cache) const {
    std::uint64_t h = detail::statement::mix(13, detail::statement::hash_of_layout(cache));
    const query_table q = tables_.queries();
    h = detail::statement::mix(h, tables_.query_count());
    for (const auto& list : {q.position, q.lo0, q.hi0, q.lo1, q.hi1})
      for (std::int32_t x : list) h = detail::statement::mix(h, x);
    return h;
  }
  template <class L>
  status check_cache(const L& cache) const {
    if (const flaw wrong = problem_of(cache)) return {errc::invalid_argument, wrong, {.given = wrong.given}};
    if (cache.rank_count() != team_.ring_size())
      return {errc::invalid_argument,
              "decode: the cache is dealt over another number of ranks than the mesh's ring has",
              {team_.ring_size(), index_t{cache.rank_count()}, " ranks"}};
    if (cache.token_count() > detail::most_position)
      return {errc::invalid_argument,
              "decode: more than 2^31 - 2 tokens; split the sequence",
              {.given = cache.token_count()}};
    if (!detail::runs_are_right(cache))
      return {errc::invalid_argument,
              "decode: the runs of the cache's layout do not spell global_of; mend for_each_run, or leave it out"};
    for (int r = 0; r < team_.ring_size(); ++r)
      if (cache.count_of(r) > shape_.cache_rows)
        return {errc::invalid_argument,
                "decode: a rank's cache is full; plan with more cache_rows",
                team_.rank_of(team_.member_at(r, part())),
                "",
                {cache.count_of(r), shape_.cache_rows, " rows"}};
    return {};
  }
  template <class Exec>
  status on_the_same() const {
    if (!prepared_ || in_place_ == std::same_as<Exec, on_host>) return {};
    return {errc::not_prepared, "decode: prepare was given another executor; give all calls the same"};
  }
  template <class Exec>
  status ready(const seqpar::memory& given) const {
    if (team_.moved_from()) return gone();
    if (!prepared_) return {errc::not_prepared, "decode: call prepare first"};
    if (status s = check_memory(given, sizes_); !s.ok()) return s;
    if (given.tables.pointer != tables_at_ && sizes_.tables > 0)
      return {errc::not_prepared, "decode: memory.tables is not the one that prepare was given"};
    return on_the_same<Exec>();
  }
  static status gone() { return {errc::not_prepared, "decode: this plan was moved from; use where it went"}; }
  status fail(status s) const {
    if (!team_.moved_from()) team_.transport().abort(s);
    return s;
  }

  void state() {
    detail::statement said("plan_decode");
    said.add("batch", shape_.batch);
    said.add("heads", shape_.heads);
    said.add("kv_heads", shape_.kv_heads);
    said.add("head_dim", shape_.head_dim);
    said.add("value_dim", shape_.attention().v_dim());
    said.add("queries", shape_.queries);
    said.add("cache_rows", shape_.cache_rows);
    said.add_hash("the element types", detail::type_code<T>() * 10 + detail::type_code<Out>());
    said.add_hash("the scale", std::bit_cast<std::int32_t>(scale_));
    said.add("the mesh's ring size", team_.ring_size());
    said.add_hash("the mesh's placement", static_cast<index_t>(team_.shape().inside));
    std::uint64_t h = 5;
    for (int r : team_.ranks()) h = detail::statement::mix(h, r);
    said.add_hash("the mesh's ranks", static_cast<index_t>(h >> 1));
    const index_t tokens = std::min(shape_.cache_rows * team_.ring_size(), detail::most_position);
    said.add_hash("the mask", detail::statement::hash_of_mask(bound(mask_, tokens, tokens), tokens, tokens));
    said_ = std::move(said);
  }

  mesh<Transport> team_;
  decode_shape shape_;
  decode_options options_;
  Kernel kernel_;
  detail::table_keeper keeper_;
  Mask mask_;
  std::optional<bound_mask> now_;  ///< the mask of the coming runs
  mutable typename Transport::group_type group_;
  interval own_, own_kv_;
  detail::decode_tables tables_, read_;  ///< as they are written, and where the kernels read them
  detail::table_copy copy_;              ///< where those are not one
  detail::statement said_{"plan_decode"};
  memory_sizes sizes_;
  std::uint64_t stamp_ = 0;
  float scale_ = 1;
  void* tables_at_ = nullptr;
  bool prepared_ = false, advanced_ = false, intervals_ = true, in_place_ = true;
};

/// Plans runs of up to shape.queries queries over a cache of up to shape.cache_rows rows a rank. Never communicates;
/// prepare does. T: elements of q, k, v; Out of out.
template <element T, element Out = T, transport Transport, attention_mask Mask, block_kernel Kernel = host_fast>
result<decode_plan<T, Mask, Transport, Kernel, Out>> try_plan_decode(const mesh<Transport>& team, const Mask& mask,
                                                                     const decode_shape& shape,
                                                                     const decode_options& options = {},
                                                                     Kernel kernel = {}) {
  static_assert(explain_mask<Mask>());
  decode_plan<T, Mask, Transport, Kernel, Out> plan(team, mask, shape, options, kernel);
  if (failure f = plan.build()) return *f;
  return plan;
}

/// The same, raising the error.
template <element T, element Out = T, transport Transport, attention_mask Mask, block_kernel Kernel = host_fast>
auto plan_decode(const mesh<Transport>& team, const Mask& mask, const decode_shape& shape,
                 const decode_options& options = {}, Kernel kernel = {}) {
  return try_plan_decode<T, Out>(team, mask, shape, options, kernel).value();
}

/// The causal mask: queries are the last tokens and see all before them.
template <element T, element Out = T, transport Transport>
auto plan_decode(const mesh<Transport>& team, const decode_shape& shape, const decode_options& options = {}) {
  return plan_decode<T, Out>(team, causal{}, shape, options);
}

/// These only tell what is wrong with the types that were given.
template <class T, class... Others, class Team, class Mask>
requires(!std::same_as<Mask, decode_shape> &&
         !detail::plannable<Team, Mask, T, Others...>) auto plan_decode(const Team&, const Mask&, const decode_shape&,
                                                                        const decode_options& = {}, const auto&...) {
  detail::explain_plan<Team, Mask, T, Others...>();
}
template <class T, class... Others, class Team>
requires(!detail::plannable<Team, causal, T, Others...>) auto plan_decode(const Team&, const decode_shape&,
                                                                          const decode_options& = {}) {
  detail::explain_plan<Team, causal, T, Others...>();
}

}  // namespace v0_1
}  // namespace seqpar
