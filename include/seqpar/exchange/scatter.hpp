// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the whole sequence on one member to a layout.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// out[i] on member r = in[layout.global_of(r, i)] of the root. Adjoint: gather to the root.
template <class Transport, sequence_layout L>
result<exchange<Transport>> try_plan_scatter(const mesh<Transport>& team, const L& layout, int root,
                                             const exchange_options& options) {
  const char* where = "plan_scatter";
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (failure f = detail::check_layout(where, "the layout", layout, team.size())) return *f;
  if (failure f = detail::check_root(where, root, team.size())) return *f;
  detail::statement said(where);
  said.add_hash("the layout", detail::statement::hash_of_layout(layout));
  said.add("the root", root);
  const interval columns{0, options.columns};
  return detail::make_exchange(
      team, [&](int r) { return all_rows(r == root ? layout.token_count() : 0, columns); },
      [&](int r) { return holding_of(layout, r, columns); }, options, std::move(said), true);
}
template <class Transport, sequence_layout L>
exchange<Transport> plan_scatter(const mesh<Transport>& team, const L& layout, int root,
                                 const exchange_options& options) {
  return try_plan_scatter(team, layout, root, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
