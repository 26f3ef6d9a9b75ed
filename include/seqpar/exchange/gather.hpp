// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From a layout to the whole sequence, on one member or on all.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// root −1: all.
template <class Transport, sequence_layout L>
result<exchange<Transport>> plan_gather_to(const char* where, const mesh<Transport>& team, const L& layout, int root,
                                           const exchange_options& options) {
  if (failure f = check_exchange(where, options)) return *f;
  if (failure f = check_layout(where, "the layout", layout, team.size())) return *f;
  if (root != -1)
    if (failure f = check_root(where, root, team.size())) return *f;
  statement said(where);
  said.add_hash("the layout", statement::hash_of_layout(layout));
  said.add("the root", root);
  const interval columns{0, options.columns};
  return make_exchange(
      team, [&](int r) { return holding_of(layout, r, columns); },
      [&](int r) { return all_rows(root == -1 || r == root ? layout.token_count() : 0, columns); }, options,
      std::move(said), root != -1 || team.size() == 1);
}
}  // namespace detail

/// out[layout.global_of(s, i)] = in[i] of member s, on every member. Adjoint: the sum over members of d_out, or this
/// member's own (options.convention).
template <class Transport, sequence_layout L>
result<exchange<Transport>> try_plan_gather(const mesh<Transport>& team, const L& layout,
                                            const exchange_options& options) {
  return detail::plan_gather_to("plan_gather", team, layout, -1, options);
}
template <class Transport, sequence_layout L>
exchange<Transport> plan_gather(const mesh<Transport>& team, const L& layout, const exchange_options& options) {
  return try_plan_gather(team, layout, options).value();
}

/// The same on member `root` only; the others get no rows. Adjoint: scatter from the root.
template <class Transport, sequence_layout L>
result<exchange<Transport>> try_plan_gather(const mesh<Transport>& team, const L& layout, int root,
                                            const exchange_options& options) {
  if (failure f = detail::check_root("plan_gather", root, team.size())) return *f;
  return detail::plan_gather_to("plan_gather", team, layout, root, options);
}
template <class Transport, sequence_layout L>
exchange<Transport> plan_gather(const mesh<Transport>& team, const L& layout, int root,
                                const exchange_options& options) {
  return try_plan_gather(team, layout, root, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
