// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Planning attention over a sequence dealt to many ranks.
#pragma once

#include <seqpar/attention/attention_plan.hpp>
#include <seqpar/layout/explain.hpp>
#include <seqpar/mask/explain.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// Can a plan be made of these types, and why not, one sentence for each.
template <class Team, class Mask, class... Elements>
concept plannable = is_mesh<Team> && attention_mask<Mask> &&(element<Elements>&&...);
template <class Team, class Mask, class... Elements>
constexpr void explain_plan() {
  static_assert((element<Elements> && ...), "[seqpar] elements are float, seqpar::float16 or seqpar::bfloat16");
  explain_mesh<Team>();
  static_assert(explain_mask<Mask>());
}
}  // namespace detail

/// Plans attention of queries dealt by `q_layout` to keys dealt by `kv_layout`. Never communicates; prepare does.
/// T: elements of q, k, v, dout; Out of out; Grad of dq, dk, dv.
template <element T, element Out = T, element Grad = T, transport Transport, sequence_layout QLayout,
          sequence_layout KvLayout, attention_mask Mask, block_kernel Kernel = host_fast>
result<attention_plan<T, Mask, Transport, Kernel, Out, Grad>> try_plan_attention(
    const mesh<Transport>& team, const QLayout& q_layout, const KvLayout& kv_layout, const Mask& mask,
    const attention_shape& shape, const attention_options& options = {}, Kernel kernel = {}) {
  static_assert(explain_mask<Mask>() && explain_layout<QLayout>() && explain_layout<KvLayout>());
  attention_plan<T, Mask, Transport, Kernel, Out, Grad> plan(team, shape, options, kernel);
  if (failure f = plan.build("plan_attention", q_layout, kv_layout, mask)) return *f;
  return plan;
}

/// The same, raising the error.
template <element T, element Out = T, element Grad = T, transport Transport, sequence_layout QLayout,
          sequence_layout KvLayout, attention_mask Mask, block_kernel Kernel = host_fast>
auto plan_attention(const mesh<Transport>& team, const QLayout& q_layout, const KvLayout& kv_layout, const Mask& mask,
                    const attention_shape& shape, const attention_options& options = {}, Kernel kernel = {}) {
  return try_plan_attention<T, Out, Grad>(team, q_layout, kv_layout, mask, shape, options, kernel).value();
}

/// Self attention: one layout for queries and keys.
template <element T, element Out = T, element Grad = T, transport Transport, sequence_layout Layout,
          attention_mask Mask, block_kernel Kernel = host_fast>
auto plan_attention(const mesh<Transport>& team, const Layout& layout, const Mask& mask, const attention_shape& shape,
                    const attention_options& options = {}, Kernel kernel = {}) {
  return try_plan_attention<T, Out, Grad>(team, layout, layout, mask, shape, options, kernel).value();
}
template <element T, element Out = T, element Grad = T, transport Transport, sequence_layout Layout,
          attention_mask Mask, block_kernel Kernel = host_fast>
auto try_plan_attention(const mesh<Transport>& team, const Layout& layout, const Mask& mask,
                        const attention_shape& shape, const attention_options& options = {}, Kernel kernel = {}) {
  return try_plan_attention<T, Out, Grad>(team, layout, layout, mask, shape, options, kernel);
}

/// These only tell what is wrong with the types that were given.
template <class T, class... Others, class Team, class Layout, class Mask>
requires(!detail::plannable<Team, Mask, T, Others...> ||
         !sequence_layout<Layout>) auto plan_attention(const Team&, const Layout&, const Mask&, const attention_shape&,
                                                       const attention_options& = {}, const auto&...) {
  detail::explain_plan<Team, Mask, T, Others...>();
  static_assert(explain_layout<Layout>());
}
template <class T, class... Others, class Team, class QLayout, class KvLayout, class Mask>
requires(!std::same_as<Mask, attention_shape> &&
         !(detail::plannable<Team, Mask, T, Others...> && sequence_layout<QLayout> &&
           sequence_layout<KvLayout>)) auto plan_attention(const Team&, const QLayout&, const KvLayout&, const Mask&,
                                                           const attention_shape&, const attention_options& = {},
                                                           const auto&...) {
  detail::explain_plan<Team, Mask, T, Others...>();
  static_assert(explain_layout<QLayout>() && explain_layout<KvLayout>());
}

}  // namespace v0_1
}  // namespace seqpar
