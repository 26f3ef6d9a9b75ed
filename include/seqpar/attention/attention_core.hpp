// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A planned attention: what it runs with, whatever it was planned from. Compiled once for all masks whose tables say
// all.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/backward.hpp>
#include <seqpar/attention/buffers.hpp>
#include <seqpar/attention/forward.hpp>
#include <seqpar/attention/planning.hpp>
#include <seqpar/kernel/host_fast.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What plans of these types run, to be compiled apart, once: an engine says
///
///   extern template struct seqpar::attention_apart<float, transport>;   where plans are made and run,
///   template struct seqpar::attention_apart<float, transport>;          in one source file.
///
/// Mask: by_intervals serves all masks that fit in two key intervals a query; else the planned mask.
template <element T, transport Transport, class Exec = on_host, block_kernel Kernel = host_fast, element Out = T,
          element Grad = T, class Mask = by_intervals>
struct attention_apart;

namespace detail {

/// Lets a plan own copies of the tables that a mask views.
class table_keeper {
 public:
  template <class = when_used>
  std::span<const index_t> operator()(std::span<const index_t> table) {
    return span_over(std::as_const(kept_.emplace_back(table.begin(), table.end())));
  }

 private:
  std::vector<std::vector<index_t>> kept_;  // each one's elements stay where they are
};

/// The part of attention_plan that runs. Mask: by_intervals, or what the kernel asks where tables do not say all.
template <class T, class Out, class Grad, class Transport, class Kernel, class Mask>
class attention_core {
 public:
  static_assert(moves_strided<Transport>());
  using forward_type = forward_arguments<T, Out>;
  using backward_type = backward_arguments<T, Out, Grad>;

  attention_core(const attention_core&) = delete;  // plans are moved, not copied: masks view tables of the plan
  attention_core(attention_core&&) = default;
  attention_core& operator=(attention_core&&) = default;

  /// Exact bytes by kind.
  const memory_sizes& memory() const { return sizes_; }
  const attention_shape& shape() const { return setup_.shape; }
  index_t q_rows() const { return q_rows_; }    ///< rows of q, out, lse, dq on this rank
  index_t kv_rows() const { return kv_rows_; }  ///< rows of k, v, dk, dv on this rank
  /// How this member's work was laid out: routes, rounds, tables.
  const attention_setup& setup() const { return setup_; }

  /// Collective: compares what the ranks gave, writes the tables, reserves what runs post. Throws error.
  /// like: tensors strided like those of the runs, for kernels that build for strides (kernels.md); absent ones are
  /// dense. Pointers are not read.
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec, const forward_type& like = {}) {
    if (failure f = try_prepare(given, exec, like)) raise(*f);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec, const forward_type& like = {}) {
    return runs<Exec>::prepare(*this, given, exec, like);
  }

  /// out and lse of this rank's queries. Exec: where it runs.
  template <class Exec>
  status forward(const forward_type& a, const seqpar::memory& given, Exec exec) const noexcept {
    return runs<Exec>::forward(*this, a, given, exec);
  }

  /// dq, dk, dv of this rank's rows, from out and lse of forward and the gradients dout, dlse.
  template <class Exec>
  status backward(const backward_type& a, const seqpar::memory& given, Exec exec) const noexcept {
    return runs<Exec>::backward(*this, a, given, exec);
  }

 protected:
  using group_type = typename Transport::group_type;
  attention_core(mesh<Transport> team, const attention_shape& shape, const attention_options& options, Kernel kernel)
      : team_(std::move(team)),
        options_(options),
        kernel_(kernel),
        groups_{group(), group(), group(), group(), group()} {
    setup_.shape = shape;
  }
  /// A problem that has passed its checks.
  void plan(const attention_problem& p) {
    q_rows_ = count_of(p.q.of(p.me));
    kv_rows_ = count_of(p.kv.of(p.me));
    scale_ = options_.scale.value_or(1.f / std::sqrt(static_cast<float>(index_t{p.shape.head_dim})));
    setup_ = planning_apart<>::setup(p);
    measure();
    said_ = planning_apart<>::say(p, scale_, type_code<T>() * 100 + type_code<Out>() * 10 + type_code<Grad>(),
                                  team_.ranks());
  }
  /// Becomes `next`, of the same options, in the same memory.
  template <class Exec>
  failure become(attention_core&& next, const seqpar::memory& given, Exec exec) {
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
    if (status s = runs<Exec>::bind(*this, given, exec); !s.ok()) return error(fail(s));
    return {};
  }

  static status gone() { return {errc::not_prepared, "attention: this plan was moved from; use where it went"}; }
  status fail(status s) const {
    if (!team_.moved_from()) team_.transport().abort(s);
    return s;
  }

  mesh<Transport> team_;
  attention_options options_;
  Kernel kernel_;
  forward_type like_;
  table_keeper keeper_;
  std::optional<Mask> mask_;  ///< what runs ask where tables do not say all
  attention_setup setup_;
  bound_tables tables_;
  statement said_{"plan_attention"};
  memory_sizes sizes_;
  index_t q_rows_ = 0, kv_rows_ = 0, pack_bytes_ = 0;
  float scale_ = 1;
  bool prepared_ = false;
  void* tables_at_ = nullptr;
  mutable std::array<group_type, 5> groups_;  ///< keys, gradients of a round; everything else; of a window

 private:
  template <class Exec>
  using runs = attention_apart<T, Transport, Exec, Kernel, Out, Grad, Mask>;
  template <element, transport, class, block_kernel, element, element, class>
  friend struct seqpar::attention_apart;
  template <class Plan, class Exec>
  friend struct pass_base;
  template <class Plan, class Exec>
  friend struct forward_pass;
  template <class Plan, class Exec>
  friend struct backward_pass;
  using value_type = T;
  using out_type = Out;
  using grad_type = Grad;
  using kernel_type = Kernel;

  group_type group() const { return team_.transport().group(); }

  tensor_shapes shapes() const { return {setup_.shape, q_rows_, kv_rows_}; }
  tensor_shapes joint_shapes() const { return {setup_.shape, setup_.shape.joint_q, setup_.shape.joint_kv}; }

  carvers carve(const seqpar::memory& m) const {
    carvers c{carver(m.scratch), carver(m.exchange), carver(m.saved)};
    if constexpr (packing_group<group_type>) {
      std::byte* packed = c.scratch.template take<std::byte>(pack_bytes_);
      for (group_type& g : groups_) g.pack_into(packed, pack_bytes_);
    }
    return c;
  }

  bool by_keys() const { return options_.passes == forward_backward && walks_by_keys<Kernel>(); }
  index_t workspace_bytes() const {
    const attention_shape& n = setup_.shape;
    if constexpr (most_rectangles<Kernel>() > 0)
      return Kernel::workspace_bytes(n.batch, setup_.largest.heads,
                                     std::max(setup_.largest.q_rows, setup_.largest.joint_q), n.head_dim, n.v_dim());
    else
      return Kernel::workspace_bytes(n.head_dim, n.v_dim());
  }

  void measure() {
    carver tables;
    bound_tables::walk(tables, setup_, tables_, [](void*, const void*, index_t) {});
    const bool roomy = options_.capacity.tokens_per_rank > 0;
    index_t table_bytes = tables.bytes();
    if (roomy)
      table_bytes = std::max(table_bytes, bound_tables::most_bytes(setup_, options_, Kernel::query_tile_rows,
                                                                   Kernel::key_tile_rows, by_keys()));
    carvers f, b;
    forward_arrays<T, Out>::take(f, setup_, options_, workspace_bytes());
    if (options_.passes == forward_backward) backward_arrays<T, Grad>::take(b, setup_, options_, workspace_bytes());
    pack_bytes_ = pack_bytes();
    sizes_ = {table_bytes, round_up(pack_bytes_, memory_alignment) + std::max(f.scratch.bytes(), b.scratch.bytes()),
              std::max(f.exchange.bytes(), b.exchange.bytes()), std::max(f.saved.bytes(), b.saved.bytes())};
  }

  /// What a packing transport needs for the largest launch, whatever the strides of the caller's tensors.
  index_t pack_bytes() const {
    if constexpr (!packing_group<group_type>) return 0;
    const attention_setup& s = setup_;
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
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
