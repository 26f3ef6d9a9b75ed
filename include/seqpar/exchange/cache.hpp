// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A key/value cache from one way of being sharded to another: by tokens, by heads, or over other ranks.
#pragma once

#include <seqpar/exchange/exchange.hpp>

namespace seqpar {
inline namespace v0_1 {

/// How a cache lies over the first tokens.rank_count()·head_parts members of a team; the rest hold nothing. Of member
/// m, t is its index among the token shards and u among the parts of the heads (as in mesh: `inside` says which counts
/// fastest). It holds the rows that `tokens` gives to rank t, of the u-th part of the kv heads (the first
/// kv_heads mod head_parts parts have one more).
///
///   by tokens alone: {.tokens = layout}      by heads alone: {.tokens = contiguous{n, 1}, .head_parts = P}
template <sequence_layout Tokens>
struct cache_shards {
  Tokens tokens;
  extent head_parts = 1;
  axis inside = axis::all_to_all;

  constexpr index_t members() const { return tokens.rank_count() * head_parts; }
  holding of(int member, index_t kv_heads) const {
    if (member >= members()) return {};
    const index_t u = inside == axis::all_to_all ? member % head_parts : member / tokens.rank_count();
    const index_t t = inside == axis::all_to_all ? member / head_parts : member % tokens.rank_count();
    const index_t each = kv_heads / head_parts, more = kv_heads % head_parts;
    const index_t first = u * each + (u < more ? u : more);
    const interval heads{first, first + each + (u < more ? 1 : 0)};
    return heads.empty() ? holding{} : holding_of(tokens, static_cast<int>(t), heads);
  }
};
template <class Tokens>
cache_shards(Tokens) -> cache_shards<Tokens>;
template <class Tokens, class Parts>
cache_shards(Tokens, Parts) -> cache_shards<Tokens>;
template <class Tokens, class Parts>
cache_shards(Tokens, Parts, axis) -> cache_shards<Tokens>;

/// out[j, h'] on member r = in[i, h] on member s where both are the same token and kv head. `options.columns` is the
/// number of kv heads, row_bytes = columns·head_dim·sizeof(T) a token's keys (or values); a shard has its own heads
/// only, dense unless row_buffer's strides say otherwise. Every entry moves once; inverse is the way back. Requires:
/// both sides hold the same tokens; neither needs more members than the team has.
template <class Transport, sequence_layout From, sequence_layout To>
result<exchange<Transport>> try_plan_cache_reshard(const mesh<Transport>& team, const cache_shards<From>& from,
                                                   const cache_shards<To>& to, const exchange_options& options) {
  const char* where = "plan_cache_reshard";
  if (failure f = detail::check_exchange(where, options)) return *f;
  const auto problem = [&](const char* name, const auto& shards) -> failure {
    if (shards.head_parts < 1) return detail::invalid(where, {name, ": head_parts must be at least 1"});
    if (failure f = detail::check_layout(where, name, shards.tokens, static_cast<int>(shards.tokens.rank_count())))
      return f;
    if (shards.head_parts > team.size() || shards.members() > team.size())
      return detail::invalid(where,
                             {name, " needs ", index_t{shards.tokens.rank_count()}, " x ", index_t{shards.head_parts},
                              " members, the mesh has ", team.size(), "; use fewer token shards or fewer head_parts"});
    return {};
  };
  if (failure f = problem("the first cache", from)) return *f;
  if (failure f = problem("the second cache", to)) return *f;
  if (from.tokens.token_count() != to.tokens.token_count())
    return detail::invalid(where, {"the caches have ", from.tokens.token_count(), " and ", to.tokens.token_count(),
                                   " tokens; give both the same sequence"});
  detail::statement said(where);
  const auto state = [&](const char* tokens, const char* parts, const auto& shards) {
    said.add_hash(tokens, detail::statement::hash_of_layout(shards.tokens));
    said.add(parts, shards.head_parts * 2 + static_cast<index_t>(shards.inside));
  };
  state("the first cache's tokens", "the first cache's head parts", from);
  state("the second cache's tokens", "the second cache's head parts", to);
  return detail::make_exchange(
      team, [&](int r) { return from.of(r, options.columns); }, [&](int r) { return to.of(r, options.columns); },
      options, std::move(said), true);
}
template <class Transport, sequence_layout From, sequence_layout To>
exchange<Transport> plan_cache_reshard(const mesh<Transport>& team, const cache_shards<From>& from,
                                       const cache_shards<To>& to, const exchange_options& options) {
  return try_plan_cache_reshard(team, from, to, options).value();
}

}  // namespace v0_1
}  // namespace seqpar
