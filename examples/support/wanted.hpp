// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What must move and what is computed, counted from layout, mask and heads alone, without asking the library's plans.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/seqpar.hpp>

namespace demo {

using seqpar::index_t;
using seqpar::interval;

struct member_work {
  index_t tokens = 0;        ///< owned
  index_t pairs = 0;         ///< (query, key, head) attended
  index_t wanted_bytes = 0;  ///< rows of others that it wants, forward, fp32: q, k, v, results
};

/// One entry per member of the mesh.
template <class Layout, class Mask>
std::vector<member_work> count_work(const Layout& layout, const Mask& mask, const seqpar::mesh_shape& team,
                                    const seqpar::attention_shape& n) {
  const int R = static_cast<int>(team.ring), U = static_cast<int>(team.all_to_all), P = R * U;
  const bool inside = team.inside == seqpar::axis::all_to_all;
  const auto ring_of = [&](int m) { return inside ? m / U : m % R; };
  const auto group_of = [&](int m) { return inside ? m % U : m / R; };
  const auto heads_of = [&](int m) {  // the first H mod U members have one more
    const index_t u = group_of(m), base = n.heads / U, more = n.heads % U, lo = u * base + std::min(u, more);
    return interval{lo, lo + base + (u < more ? 1 : 0)};
  };
  const auto kv_heads_of = [&](int m) {
    const interval h = heads_of(m);
    return h.empty() ? index_t{0} : (h.hi - 1) / n.heads_per_kv() - h.lo / n.heads_per_kv() + 1;
  };
  const index_t tokens = layout.token_count(), D = n.head_dim;
  std::vector<int> owner(static_cast<std::size_t>(tokens));
  std::vector<std::vector<index_t>> steps(static_cast<std::size_t>(R),
                                          std::vector<index_t>(static_cast<std::size_t>(tokens) + 1));
  std::vector<index_t> pairs(static_cast<std::size_t>(R));
  for (index_t t = 0; t < tokens; ++t) {
    const int m = layout.place_of(t).rank;
    owner[static_cast<std::size_t>(t)] = m;
    const auto r = static_cast<std::size_t>(ring_of(m));
    const seqpar::interval_pair keys = mask.key_intervals(t);
    for (interval k : {seqpar::intersection(keys.first, {0, tokens}), seqpar::intersection(keys.second, {0, tokens})}) {
      pairs[r] += k.size();
      ++steps[r][static_cast<std::size_t>(k.lo)];
      --steps[r][static_cast<std::size_t>(k.hi)];
    }
  }
  std::vector<member_work> work(static_cast<std::size_t>(P));
  for (int m = 0; m < P; ++m) {
    member_work& w = work[static_cast<std::size_t>(m)];
    w.tokens = layout.count_of(m);
    w.pairs = pairs[static_cast<std::size_t>(ring_of(m))] * heads_of(m).size();
    index_t seen = 0, remote = 0;  // keys of other ring members that my group's queries see
    for (index_t t = 0; t < tokens; ++t) {
      seen += steps[static_cast<std::size_t>(ring_of(m))][static_cast<std::size_t>(t)];
      remote += seen > 0 && ring_of(owner[static_cast<std::size_t>(t)]) != ring_of(m);
    }
    index_t group_rows = 0;
    for (int o = 0; o < P; ++o)
      if (o != m && ring_of(o) == ring_of(m)) group_rows += layout.count_of(o);
    const index_t elements = group_rows * (heads_of(m).size() * D + 2 * kv_heads_of(m) * D)  // heads in
                             + w.tokens * (n.heads - heads_of(m).size()) * (D + 1)           // out and lse back
                             + remote * kv_heads_of(m) * 2 * D;                              // keys of the rounds
    w.wanted_bytes = elements * 4 * n.batch;
  }
  return work;
}

}  // namespace demo
