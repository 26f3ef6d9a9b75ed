// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From one member to all.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// out[i] on every member = in[i] of the root. Adjoint: the sum over members at the root, or the root's own.
template <class Transport>
result<exchange<Transport>> try_plan_broadcast(const mesh<Transport>& team, index_t rows, int root,
                                               const exchange_options& options) {
  const char* where = "plan_broadcast";
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (rows < 0) return detail::invalid(where, {"rows must not be negative, got ", rows});
  if (failure f = detail::check_root(where, root, team.size())) return *f;
  detail::statement said(where);
  said.add("the number of rows", rows);
  said.add("the root", root);
  const interval columns{0, options.columns};
  return detail::make_exchange(
      team, [&](int r) { return all_rows(r == root ? rows : 0, columns); },
      [&](int) { return all_rows(rows, columns); }, options, std::move(said), team.size() == 1);
}
template <class Transport>
exchange<Transport> plan_broadcast(const mesh<Transport>& team, index_t rows, int root,
                                   const exchange_options& options) {
  return try_plan_broadcast(team, rows, root, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
