// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's part of attention over a sequence dealt to many ranks: prepare, update, run.
#pragma once

#include <cmath>
#include <utility>

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/backward.hpp>
#include <seqpar/attention/buffers.hpp>
#include <seqpar/attention/forward.hpp>
#include <seqpar/exchange/detail/plan_checks.hpp>
#include <seqpar/kernel/host_fast.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// Lets a plan own copies of the tables that a mask views.
class table_keeper {
 public:
  std::span<const index_t> operator()(std::span<const index_t> table) {
    return kept_.emplace_back(table.begin(), table.end());
  }

 private:
  std::vector<std::vector<index_t>> kept_;  // each one's elements stay where they are
};

template <class Mask>
using planned_mask =
    decltype(rebound(bound(std::declval<const Mask&>(), index_t{}, index_t{}), std::declval<table_keeper&>()));
}  // namespace detail

/// One rank's part of exact attention, forward and backward:
///
///   out = softmax(scale·q·kᵀ | mask)·v,   lse = log Σ exp(scale·q·kᵀ)   over all keys of all ranks,
///
/// with q, k, v dealt by layouts over a mesh. Heads are exchanged along the all-to-all axis, keys and values move along
/// the ring axis, only those that the mask lets the receiver's queries see.
///
/// Made by plan_attention. A movable value; runs are const. Two runs at once need two plans over two transports.
/// Memory: memory() tells the exact bytes by kind. Runs allocate nothing and decide nothing.
/// Determinism: bitwise from run to run and between transports, for the same mesh, kernel and binary.
/// Fails: prepare throws (all ranks alike) when ranks disagree; runs return a local status before anything is posted
/// and tell their peers, which then return peer_failed. Source: Ring Attention, DeepSpeed-Ulysses, USP, LoongTrain; one
/// algorithm for all of them.
template <element T, attention_mask Mask, transport Transport, block_kernel Kernel = host_fast, element Out = T,
          element Grad = T>
class attention_plan {
 public:
  static_assert(detail::moves_strided<Transport>());
  using forward_type = forward_arguments<T, Out>;
  using backward_type = backward_arguments<T, Out, Grad>;

  /// Exact bytes by kind.
  const memory_sizes& memory() const { return sizes_; }
  const attention_shape& shape() const { return setup_.shape; }
  index_t q_rows() const { return q_rows_; }    ///< rows of q, out, lse, dq on this rank
  index_t kv_rows() const { return kv_rows_; }  ///< rows of k, v, dk, dv on this rank
  /// How this member's work was laid out: routes, rounds, tables.
  const detail::attention_setup& setup() const { return setup_; }

  /// Collective: compares what the ranks gave, writes the tables, reserves what runs post. Throws error.
  /// like: tensors strided like those of the runs, for kernels that build for strides (kernels.md); absent ones are
  /// dense. Pointers are not read.
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec, const forward_type& like = {}) {
    if (failure f = try_prepare(given, exec, like)) raise(*f);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec, const forward_type& like = {}) {
    if (status s = check_memory(given, sizes_); !s.ok()) return error(fail(s));
    if (options_.check == agreement::checked)
      if (failure f = detail::agree(team_, said_)) return f;
    if (status s = connect_peers(team_.transport(), peers(), exec); !s.ok()) return error(fail(s));
    if constexpr (requires { exec.template load<T, Out, Grad>(); })
      if (status s = exec.template load<T, Out, Grad>(); !s.ok()) return error(fail(s));
    if constexpr (requires { Kernel::template load<T, Out, by_intervals>(exec, options_.passes); })
      if (status s = load_kernel(exec); !s.ok()) return error(fail(s));
    like_ = like;
    if (status s = bind(given, exec); !s.ok()) return error(fail(s));
    return {};
  }

  /// Other layouts and mask of the planned types' families, within options.capacity: new tables in the same memory.
  /// Local; every rank must do the same between two runs. Waits until the tables are written.
  template <sequence_layout QLayout, sequence_layout KvLayout, executor Exec = on_host>
  void update(const QLayout& q, const KvLayout& kv, const Mask& mask, const seqpar::memory& given, Exec exec = {}) {
    if (failure f = try_update(q, kv, mask, given, exec)) raise(*f);
  }
  template <sequence_layout Layout, executor Exec = on_host>
  void update(const Layout& layout, const Mask& mask, const seqpar::memory& given, Exec exec = {}) {
    update(layout, layout, mask, given, exec);
  }
  template <sequence_layout QLayout, sequence_layout KvLayout, executor Exec = on_host>
  [[nodiscard]] failure try_update(const QLayout& q, const KvLayout& kv, const Mask& mask, const seqpar::memory& given,
                                   Exec exec = {}) {
    if (!prepared_) return error(errc::not_prepared, "attention_plan::update: call prepare first");
    const char* where = "attention_plan::update";
    if (options_.capacity.tokens_per_rank == 0)
      return detail::invalid(where, "planned without capacity; give options.capacity.tokens_per_rank");
    if (status s = check_memory(given, sizes_); !s.ok()) return error(fail(s));
    attention_plan next(team_, setup_.shape, options_, kernel_);
    if (failure f = next.build(where, q, kv, mask)) return f;
    // With a capacity all sizes but the tables' follow from it. Tables are this rank's own: peers are told.
    if (next.sizes_.tables > sizes_.tables)
      return error(fail({errc::memory_too_small,
                         "attention_plan::update: the mask cuts this rank's tiles into more ranges than planned for; "
                         "plan with a larger capacity.ranges_per_tile",
                         -1,
                         "memory.tables",
                         {next.sizes_.tables, sizes_.tables, " bytes"}}));
    next.sizes_ = sizes_;
    next.said_.plan(said_.plan());
    next.kernel_ = std::move(kernel_);
    next.like_ = like_;
    *this = std::move(next);
    if (status s = bind(given, exec); !s.ok()) return error(fail(s));
    return {};
  }

  /// out and lse of this rank's queries. Exec: where it runs.
  template <class Exec>
  status forward(const forward_type& a, const seqpar::memory& given, Exec exec) const noexcept {
    detail::buffer_checks buffers;
    const auto [n, q, kv] = extents();
    check_inputs(buffers, a);
    buffers.output("out", a.out, {n.batch, q, n.heads, n.v_dim()});
    buffers.output("lse", a.lse, {n.batch, n.heads, q});
    buffers.output("joint.out", a.joint.out, {n.batch, n.joint_q, n.heads, n.v_dim()});
    buffers.output("joint.lse", a.joint.lse, {n.batch, n.heads, n.joint_q});
    if (status s = ready(given, buffers, exec); !s.ok()) return fail(s);
    return outcome(detail::forward_pass<attention_plan, Exec>(*this, carvers(given), exec), a);
  }

  /// dq, dk, dv of this rank's rows, from out and lse of forward and the gradients dout, dlse.
  template <class Exec>
  status backward(const backward_type& a, const seqpar::memory& given, Exec exec) const noexcept {
    if (options_.passes == forward_only)
      return fail({errc::not_prepared, "attention: planned for the forward pass only; plan with forward_backward"});
    detail::buffer_checks buffers;
    const auto [n, q, kv] = extents();
    check_inputs(buffers, a);
    buffers.input("out", a.out, {n.batch, q, n.heads, n.v_dim()});
    buffers.input("dout", a.dout, {n.batch, q, n.heads, n.v_dim()});
    buffers.input("lse", a.lse, {n.batch, n.heads, q});
    buffers.input("joint.out", a.joint.out, {n.batch, n.joint_q, n.heads, n.v_dim()});
    buffers.input("joint.dout", a.joint.dout, {n.batch, n.joint_q, n.heads, n.v_dim()});
    buffers.input("joint.lse", a.joint.lse, {n.batch, n.heads, n.joint_q});
    if (a.dlse.pointer) buffers.input("dlse", a.dlse, {n.batch, n.heads, q});
    if (a.joint.dlse.pointer) buffers.input("joint.dlse", a.joint.dlse, {n.batch, n.heads, n.joint_q});
    buffers.output("dq", a.dq, {n.batch, q, n.heads, n.head_dim});
    buffers.output("dk", a.dk, {n.batch, kv, n.kv_heads, n.head_dim});
    buffers.output("dv", a.dv, {n.batch, kv, n.kv_heads, n.v_dim()});
    buffers.output("joint.dq", a.joint.dq, {n.batch, n.joint_q, n.heads, n.head_dim});
    buffers.output("joint.dk", a.joint.dk, {n.batch, n.joint_kv, n.kv_heads, n.head_dim});
    buffers.output("joint.dv", a.joint.dv, {n.batch, n.joint_kv, n.kv_heads, n.v_dim()});
    if (status s = ready(given, buffers, exec); !s.ok()) return fail(s);
    return outcome(detail::backward_pass<attention_plan, Exec>(*this, carvers(given), exec), a);
  }

  /// Used by try_plan_attention.
  attention_plan(mesh<Transport> team, const attention_shape& shape, const attention_options& options, Kernel kernel)
      : team_(std::move(team)),
        options_(options),
        kernel_(kernel),
        groups_{group(), group(), group(), group(), group()} {
    setup_.shape = shape;
  }
  template <sequence_layout QLayout, sequence_layout KvLayout>
  failure build(const char* where, const QLayout& q, const KvLayout& kv, const Mask& mask) {
    const attention_shape n = setup_.shape;
    if (failure f = detail::check_shape(where, n)) return f;
    if (failure f = detail::check_moves(where, options_, n)) return f;
    if (failure f = detail::check_layout(where, "the layout", q, team_.size())) return f;
    if (failure f = detail::check_layout(where, "the layout of the keys", kv, team_.size())) return f;
    if (const flaw what = problem_of(mask)) return detail::invalid(where, {"the mask: ", what});
    constexpr index_t most_tokens = std::numeric_limits<std::int32_t>::max();
    if (options_.capacity.tokens_per_rank < 0 || options_.capacity.tokens_per_rank > most_tokens ||
        options_.capacity.ranges_per_tile < 1 || options_.capacity.ranges_per_tile > most_tokens)
      return detail::invalid(where, {"capacity must be 0 to 2^31 - 1 tokens, ranges_per_tile 1 to 2^31 - 1, got ",
                                     options_.capacity.tokens_per_rank, " and ", options_.capacity.ranges_per_tile});
    if (options_.schedule == schedule::double_ring && (options_.window < 1 || team_.ring_size() % options_.window != 0))
      return detail::invalid(where, {"double_ring takes options.window, ring members that share a node: a divisor of ",
                                     team_.ring_size(), ", got ", options_.window});
    if (options_.scale && !std::isfinite(*options_.scale))
      return detail::invalid(
          where, {"the scale must be finite; leave it unset for 1/sqrt(head_dim), got ", double{*options_.scale}});
    if (q.token_count() > most_tokens || kv.token_count() > most_tokens)
      return detail::invalid(where, too_many(std::max<index_t>(q.token_count(), kv.token_count())));
    const index_t q_tokens = q.token_count() + n.joint_q, k_tokens = kv.token_count() + n.joint_kv;
    if (std::max(q_tokens, k_tokens) > most_tokens)
      return detail::invalid(where, too_many(std::max(q_tokens, k_tokens)));
    const index_t widest = std::max({q_tokens, k_tokens, options_.capacity.tokens_per_rank * team_.size()});
    if (detail::exceeds_64_bits({n.batch, n.heads, widest, 256 * 16}))
      return detail::invalid(where, "the tensors have more than 2^62 bytes; give smaller sizes");
    const index_t most_rows = options_.capacity.tokens_per_rank;
    for (int m = 0; most_rows > 0 && m < team_.size(); ++m)
      if (const index_t rows = std::max<index_t>(q.count_of(m), kv.count_of(m)); rows > most_rows)
        return detail::invalid(
            where, {"rank ", team_.rank_of(m), " holds ", rows, " tokens, more than capacity.tokens_per_rank, ",
                    most_rows, "; plan with a larger capacity"});

    if (std::string what = misfit_of(mask, {q_tokens, q_tokens}, {k_tokens, k_tokens}); !what.empty())
      return detail::invalid(where, {"the mask: ", what});
    mask_.emplace(rebound(bound(mask, q_tokens, k_tokens), keeper_));
    q_rows_ = q.count_of(team_.index());
    kv_rows_ = kv.count_of(team_.index());
    scale_ = options_.scale.value_or(1.f / std::sqrt(static_cast<float>(index_t{n.head_dim})));
    setup_ =
        detail::setup_builder(team_, q, kv, *mask_, n, options_, index_t{sizeof(T)}, index_t{Kernel::query_tile_rows},
                              index_t{Kernel::key_tile_rows}, by_keys(), detail::most_rectangles<Kernel>())
            .build();
    if (!setup_.intervals && !detail::takes_mask<Kernel, detail::planned_mask<Mask>>())
      return detail::invalid(
          where,
          "a query sees more than two intervals of keys, and this kernel cannot ask this type of mask; "
          "combine fewer masks, or give one that views no tables");
    measure();
    state(q, kv, q_tokens, k_tokens);
    return {};
  }

 private:
  template <class Plan, class Exec>
  friend struct detail::pass_base;
  template <class Plan, class Exec>
  friend struct detail::forward_pass;
  template <class Plan, class Exec>
  friend struct detail::backward_pass;
  using group_type = typename Transport::group_type;
  using value_type = T;
  using out_type = Out;
  using grad_type = Grad;
  using kernel_type = Kernel;

  group_type group() const { return team_.transport().group(); }

  struct extents_type {
    const attention_shape& n;
    index_t q, kv;
  };
  extents_type extents() const { return {setup_.shape, q_rows_, kv_rows_}; }

  static std::string too_many(index_t tokens) {
    return detail::sentence(
        {"more than 2^31 - 1 tokens (", tokens, ") do not fit the kernels' tables; split the sequence"});
  }
  template <class Arguments>
  void check_inputs(detail::buffer_checks& buffers, const Arguments& a) const {
    const auto [n, q, kv] = extents();
    buffers.input("q", a.q, {n.batch, q, n.heads, n.head_dim});
    buffers.input("k", a.k, {n.batch, kv, n.kv_heads, n.head_dim});
    buffers.input("v", a.v, {n.batch, kv, n.kv_heads, n.v_dim()});
    buffers.input("joint.q", a.joint.q, {n.batch, n.joint_q, n.heads, n.head_dim});
    buffers.input("joint.k", a.joint.k, {n.batch, n.joint_kv, n.kv_heads, n.head_dim});
    buffers.input("joint.v", a.joint.v, {n.batch, n.joint_kv, n.kv_heads, n.v_dim()});
  }
  template <class Exec>
  status ready(const seqpar::memory& given, detail::buffer_checks& buffers, const Exec& exec) const {
    if (!prepared_) return {errc::not_prepared, "attention: call prepare first"};
    if (status s = check_memory(given, sizes_); !s.ok()) return s;
    if (given.tables.pointer != tables_at_ && sizes_.tables > 0)
      return {errc::not_prepared, "attention: memory.tables is not the one that prepare wrote"};
    buffers.memory("memory.tables", given.tables, sizes_.tables);
    buffers.memory("memory.scratch", given.scratch, sizes_.scratch);
    buffers.memory("memory.exchange", given.exchange, sizes_.exchange);
    buffers.memory("memory.saved", given.saved, sizes_.saved);
    buffers.lie_in(space_of(exec));
    return buffers.outcome();
  }
  template <class Pass, class Arguments>
  status outcome(Pass pass, const Arguments& a) const {
    if (status s = pass.run(a); !s.ok()) {
      // All is told: waits return at once, and no peer begins to read what the caller may soon free.
      for (group_type& g : groups_) static_cast<void>(team_.transport().wait(g, pass.exec));
      return s;
    }
    const status s = pass.work.outcome();
    return s.ok() ? s : fail(s);
  }
  status fail(status s) const {
    team_.transport().abort(s);
    return s;
  }
  detail::carvers carvers(const seqpar::memory& m) const {
    detail::carvers c{carver(m.scratch), carver(m.exchange), carver(m.saved)};
    if constexpr (packing_group<group_type>) {
      std::byte* packed = c.scratch.template take<std::byte>(pack_bytes_);
      for (group_type& g : groups_) g.pack_into(packed, pack_bytes_);
    }
    return c;
  }

  bool by_keys() const { return options_.passes == forward_backward && detail::walks_by_keys<Kernel>(); }
  index_t workspace_bytes() const {
    const attention_shape& n = setup_.shape;
    if constexpr (detail::most_rectangles<Kernel>() > 0)
      return Kernel::workspace_bytes(n.batch, setup_.largest.heads,
                                     std::max(setup_.largest.q_rows, setup_.largest.joint_q), n.head_dim, n.v_dim());
    else
      return Kernel::workspace_bytes(n.head_dim, n.v_dim());
  }

  void measure() {
    carver tables;
    detail::bound_tables::walk(tables, setup_, tables_, [](void*, const void*, index_t) {});
    const bool roomy = options_.capacity.tokens_per_rank > 0;
    index_t table_bytes = tables.bytes();
    if (roomy)
      table_bytes = std::max(table_bytes, detail::bound_tables::most_bytes(setup_, options_, Kernel::query_tile_rows,
                                                                           Kernel::key_tile_rows, by_keys()));
    detail::carvers f, b;
    detail::forward_arrays<T, Out>::take(f, setup_, options_, workspace_bytes());
    if (options_.passes == forward_backward)
      detail::backward_arrays<T, Grad>::take(b, setup_, options_, workspace_bytes());
    pack_bytes_ = pack_bytes();
    sizes_ = {table_bytes, round_up(pack_bytes_, memory_alignment) + std::max(f.scratch.bytes(), b.scratch.bytes()),
              std::max(f.exchange.bytes(), b.exchange.bytes()), std::max(f.saved.bytes(), b.saved.bytes())};
  }

  template <class Q, class Kv>
  void state(const Q& q, const Kv& kv, index_t q_tokens, index_t k_tokens) {
    const attention_shape& n = setup_.shape;
    detail::statement said("plan_attention");
    said.add("batch", n.batch);
    said.add("heads", n.heads);
    said.add("kv_heads", n.kv_heads);
    said.add("head_dim", n.head_dim);
    said.add("value_dim", n.v_dim());
    said.add("joint_q", n.joint_q);
    said.add("joint_kv", n.joint_kv);
    said.add_hash("the place of joint tokens", static_cast<index_t>(n.joint_at));
    said.add_hash("the kernel", index_t{Kernel::query_tile_rows} * 65536 + index_t{Kernel::key_tile_rows});
    said.add_hash("the element types",
                  detail::type_code<T>() * 100 + detail::type_code<Out>() * 10 + detail::type_code<Grad>());
    said.add_hash("the scale", std::bit_cast<std::int32_t>(scale_));
    said.add_hash("the schedule", static_cast<index_t>(options_.schedule));
    said.add("window", options_.window);
    said.add_hash("the sides that move",
                  static_cast<index_t>(options_.moves.forward) * 3 + static_cast<index_t>(options_.moves.backward));
    said.add_hash("passes", static_cast<index_t>(options_.passes));
    said.add_hash("reuse", static_cast<index_t>(options_.reuse));
    said.add_hash("gradients", static_cast<index_t>(options_.gradients));
    said.add_hash("joint_gradient", static_cast<index_t>(options_.joint_gradient));
    said.add("capacity", options_.capacity.tokens_per_rank);
    said.add("the mesh's ring size", team_.ring_size());
    said.add_hash("the mesh's placement", static_cast<index_t>(team_.shape().inside));
    std::uint64_t h = 5;
    for (int r : team_.ranks()) h = detail::statement::mix(h, r);
    said.add_hash("the mesh's ranks", static_cast<index_t>(h >> 1));
    said.add("tokens", q_tokens);
    said.add("key tokens", k_tokens);
    said.add_hash("the layout", detail::statement::hash_of_layout(q));
    said.add_hash("the layout of the keys", detail::statement::hash_of_layout(kv));
    said.add_hash("the mask", detail::statement::hash_of_mask(*mask_, q_tokens, k_tokens));
    said_ = std::move(said);
  }

  std::vector<int> peers() const {
    std::vector<int> all;
    if (options_.capacity.tokens_per_rank > 0) {  // update() may make any two members meet
      for (int m = 0; m < team_.size(); ++m)
        if (m != team_.index()) all.push_back(team_.rank_of(m));
      return all;
    }
    const detail::attention_setup& s = setup_;
    const detail::axis_view<mesh<Transport>> group{team_, axis::all_to_all, s.ring, s.group},
        ring{team_, axis::ring, s.ring, s.group};
    for (const route* way : {&s.q_in, &s.kv_in}) add_peers(all, group, *way);
    for (const route* way : {&s.joint_out, &s.joint_sums, &s.joint_gather}) add_peers(all, team_, *way);
    s.for_each_ring_route([&](const route& way, side) { add_peers(all, ring, way); });
    return all;
  }
  /// What a packing transport needs for the largest launch, whatever the strides of the caller's tensors.
  index_t pack_bytes() const {
    if constexpr (!packing_group<group_type>) return 0;
    const detail::attention_setup& s = setup_;
    const attention_shape& n = s.shape;
    const auto size = [](auto element) { return static_cast<index_t>(sizeof(element)); };
    const index_t fp32 = size(float{}), in = size(T{}), out = size(Out{}), grad = size(Grad{});
    const index_t q = std::max({in * (n.head_dim + n.v_dim()) + 2 * fp32, out * n.v_dim() + fp32, grad * n.head_dim});
    const index_t kv = std::max(in, fp32) * (n.head_dim + n.v_dim()), state = fp32 * (n.v_dim() + 2);
    // eight arrays at most share a launch, and each of its lines is rounded up by itself
    const auto bytes = [&](const route& way, index_t column_bytes) {
      return packed_bytes(way, n.batch, column_bytes) + 7 * packed_bytes(way, n.batch, 1);
    };
    index_t most = bytes(s.q_in, q) + bytes(s.kv_in, kv);
    s.for_each_ring_route([&](const route& way, side moving) {
      most = std::max(most, bytes(way, moving == side::keys ? kv : std::max({q + 4 * fp32, state, fp32 * n.head_dim})));
    });
    return std::max({most, bytes(s.joint_out, q), bytes(s.joint_sums, kv), bytes(s.joint_gather, kv)});
  }

  template <class Exec>
  status load_kernel(const Exec& exec) const {
    using mask_type = detail::planned_mask<Mask>;
    if constexpr (!interval_mask<mask_type> && detail::takes_mask<Kernel, mask_type>())
      if (!setup_.intervals) return Kernel::template load<T, Out, mask_type>(exec, options_.passes);
    return Kernel::template load<T, Out, by_intervals>(exec, options_.passes);
  }
  /// Writes the tables, reserves room in the groups for the most messages that one launch posts, and shows the kernel
  /// the calls of the runs to come, if it wants to see them.
  template <class Exec>
  status bind(const seqpar::memory& given, Exec exec) {
    const auto work = space_of(exec);
    carver c(given.tables);
    detail::bound_tables::walk(c, setup_, tables_,
                               [&](void* to, const void* from, index_t bytes) { work.upload(to, from, bytes); });
    if (status s = work.finish(); !s.ok()) return s;
    tables_at_ = given.tables.pointer;
    const detail::attention_setup& s = setup_;
    const auto blocks = [](const route& r) {
      return std::max(detail::block_count(r.outgoing()), detail::block_count(r.incoming()));
    };
    index_t most = blocks(s.q_in) * 4 + blocks(s.kv_in) * 2 + blocks(s.joint_out) * 2 + blocks(s.joint_sums) * 2 +
                   blocks(s.joint_gather) * 2;
    s.for_each_ring_route(
        [&](const route& way, side moving) { most = std::max(most, (moving == side::keys ? 2 : 8) * blocks(way)); });
    most *= std::max<index_t>(1, s.shape.batch);
    for (group_type& g : groups_) g.reserve(most, most);
    status said;
    if constexpr (detail::prepares_for<Kernel, forward_call<T, Out>, Exec>)
      said = detail::forward_pass<attention_plan, Exec>(*this, carvers(given), exec)
                 .show(like_, [&](const auto& call, const auto& mask) {
                   return detail::said_by([&] { return kernel_.prepare(call, mask, exec); });
                 });
    prepared_ = said.ok();
    return said;
  }

  mesh<Transport> team_;
  attention_options options_;
  Kernel kernel_;
  forward_type like_;
  detail::table_keeper keeper_;
  std::optional<detail::planned_mask<Mask>> mask_;
  detail::attention_setup setup_;
  detail::bound_tables tables_;
  detail::statement said_{"plan_attention"};
  memory_sizes sizes_;
  index_t q_rows_ = 0, kv_rows_ = 0, pack_bytes_ = 0;
  float scale_ = 1;
  bool prepared_ = false;
  void* tables_at_ = nullptr;
  mutable std::array<group_type, 5> groups_;  ///< keys, gradients of a round; everything else; of a window
};

}  // namespace v0_1
}  // namespace seqpar
