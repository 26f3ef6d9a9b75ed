// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What times are computed from: how fast a rank computes, and how fast bytes travel.
#pragma once

#include <cmath>
#include <limits>

#include <seqpar/error.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A message of n bytes takes latency + n / bandwidth. Each rank has one port out and one in for each class of link.
struct link_speed {
  double latency = 0;  ///< seconds
  double bandwidth;    ///< bytes per second and direction
};

struct machine {
  double flops;            ///< per second and rank, as the block kernel reaches them
  link_speed inside;       ///< between ranks of one node
  link_speed across = {};  ///< between nodes; not looked at where all ranks are one
  int ranks_per_node = 0;  ///< 0: all ranks are one node
  double memory_bandwidth = std::numeric_limits<double>::infinity();  ///< bytes read or written per second, for copies

  bool one_node(int a, int b) const { return ranks_per_node <= 0 || a / ranks_per_node == b / ranks_per_node; }
  bool several_nodes(index_t ranks) const { return ranks_per_node > 0 && ranks_per_node < ranks; }
  const link_speed& between(int a, int b) const { return one_node(a, b) ? inside : across; }
};

namespace detail {
/// For so many ranks: the links between nodes are asked only where there are several.
inline void check_machine(const char* where, const machine& m, index_t ranks) {
  const auto positive = [&](double x, const char* name) {
    if (!(x > 0)) raise(invalid(where, {"the machine's ", name, " must be above 0, not ", x}));
  };
  const auto link = [&](const link_speed& l, const char* latency, const char* bandwidth) {
    positive(l.bandwidth, bandwidth);
    if (!(l.latency >= 0) || std::isinf(l.latency))
      raise(invalid(where, {"the machine's ", latency, " must be 0 or more, and finite, not ", l.latency}));
  };
  if (m.ranks_per_node < 0)
    raise(invalid(where, {"the machine's ranks_per_node must be 0 (one node) or more, not ", m.ranks_per_node}));
  positive(m.flops, "flops");
  link(m.inside, "inside.latency", "inside.bandwidth");
  if (m.several_nodes(ranks)) link(m.across, "across.latency", "across.bandwidth");
  positive(m.memory_bandwidth, "memory_bandwidth");
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
