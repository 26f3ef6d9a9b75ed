// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From one layout to another.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// out[j] on member r = row to.global_of(r, j) of the sequence, of which in[i] on member s is row from.global_of(s, i).
///
/// Every row moves once, from its owner to its next owner; the adjoint is the reshard back.
/// Requires: both layouts deal the same tokens over the mesh.
template <class Transport, sequence_layout From, sequence_layout To>
result<exchange<Transport>> try_plan_reshard(const mesh<Transport>& team, const From& from, const To& to,
                                             const exchange_options& options) {
  const char* where = "plan_reshard";
  if (failure f = detail::check_exchange(where, options)) return *f;
  if (failure f = detail::check_layout(where, "the first layout", from, team.size())) return *f;
  if (failure f = detail::check_layout(where, "the second layout", to, team.size())) return *f;
  if (from.token_count() != to.token_count())
    return detail::invalid(where, {"the layouts have ", from.token_count(), " and ", to.token_count(),
                                   " tokens; give both the same sequence"});
  detail::statement said(where);
  said.add_hash("the first layout", detail::statement::hash_of_layout(from));
  said.add_hash("the second layout", detail::statement::hash_of_layout(to));
  const interval columns{0, options.columns};
  return detail::make_exchange(
      team, [&](int r) { return holding_of(from, r, columns); }, [&](int r) { return holding_of(to, r, columns); },
      options, std::move(said), true);
}
template <class Transport, sequence_layout From, sequence_layout To>
exchange<Transport> plan_reshard(const mesh<Transport>& team, const From& from, const To& to,
                                 const exchange_options& options) {
  return try_plan_reshard(team, from, to, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
