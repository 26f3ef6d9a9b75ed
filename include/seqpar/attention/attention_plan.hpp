// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's part of attention over a sequence dealt to many ranks: prepare, update, run.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <seqpar/attention/apart.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
template <class Mask>
using planned_mask =
    decltype(rebound(bound(std::declval<const Mask&>(), index_t{}, index_t{}), std::declval<table_keeper&>()));

/// The mask that the runs of a plan may ask: none where the table says all, or must.
template <class Mask, class Kernel>
using asked_mask = std::conditional_t<!interval_mask<planned_mask<Mask>> && takes_mask<Kernel, planned_mask<Mask>>(),
                                      planned_mask<Mask>, by_intervals>;
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
class attention_plan
    : public detail::attention_core<T, Out, Grad, Transport, Kernel, detail::asked_mask<Mask, Kernel>> {
  using core = detail::attention_core<T, Out, Grad, Transport, Kernel, detail::asked_mask<Mask, Kernel>>;

 public:
  /// Other layouts, of any type, and another mask of the planned type, within options.capacity: new tables in the same
  /// memory. Local; every rank must do the same between two runs, which nobody compares. Waits until the tables are
  /// written.
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
    const char* where = "attention_plan::update";
    if (this->team_.moved_from()) return error(this->gone());
    if (!this->prepared_) return error(errc::not_prepared, "attention_plan::update: call prepare first");
    if (this->options_.capacity.tokens_per_rank == 0)
      return detail::invalid(where, "planned without capacity; give options.capacity.tokens_per_rank");
    if (status s = check_memory(given, this->sizes_); !s.ok()) return error(this->fail(s));
    attention_plan next(this->team_, this->shape(), this->options_, this->kernel_);
    if (failure f = next.build(where, q, kv, mask)) return f;
    return this->become(std::move(next), given, exec);
  }

  /// Used by try_plan_attention.
  attention_plan(mesh<Transport> team, const attention_shape& shape, const attention_options& options, Kernel kernel)
      : core(std::move(team), shape, options, kernel) {}
  template <sequence_layout QLayout, sequence_layout KvLayout>
  failure build(const char* where, const QLayout& q, const KvLayout& kv, const Mask& mask) {
    const attention_shape n = this->shape();
    const mesh<Transport>& team = this->team_;
    if (failure f = detail::check_shape(where, n)) return f;
    if (failure f = detail::check_moves(where, this->options_, n)) return f;
    if (failure f = detail::check_layout(where, "the layout", q, team.size())) return f;
    if (failure f = detail::check_layout(where, "the layout of the keys", kv, team.size())) return f;
    if (const flaw what = problem_of(mask)) return detail::invalid(where, {"the mask: ", what});
    if (failure f = planning_apart<>::check(where, n, this->options_, team.shape(), team.ranks(), q.token_count(),
                                            kv.token_count(),
                                            [&](int m) { return std::max<index_t>(q.count_of(m), kv.count_of(m)); }))
      return f;
    const index_t q_tokens = q.token_count() + n.joint_q, k_tokens = kv.token_count() + n.joint_kv;
    if (std::string what = misfit_of(mask, {q_tokens, q_tokens}, {k_tokens, k_tokens}); !what.empty())
      return detail::invalid(where, {"the mask: ", what});
    const auto whole = bound(mask, q_tokens, k_tokens);
    const bool one = static_cast<const void*>(std::addressof(q)) == std::addressof(kv);
    const detail::layout_rows q_rows(q);
    const std::optional<detail::layout_rows> kv_rows = one ? std::nullopt : std::optional<detail::layout_rows>(kv);
    const detail::attention_problem problem{
        team.shape(),
        team.index(),
        q_rows,
        one ? q_rows : *kv_rows,
        whole,
        n,
        this->options_,
        index_t{sizeof(T)},
        detail::kernel_needs::of<Kernel>(this->options_.passes == forward_backward)};
    if constexpr (!std::same_as<detail::asked_mask<Mask, Kernel>, by_intervals>)
      this->mask_.emplace(rebound(whole, this->keeper_));
    this->plan(problem);
    if (!this->setup().intervals && !this->mask_)
      return detail::invalid(
          where,
          "a query sees more than two intervals of keys, and this kernel cannot ask this type of mask; "
          "combine fewer masks, or give one that views no tables");
    return {};
  }
};

}  // namespace v0_1
}  // namespace seqpar
