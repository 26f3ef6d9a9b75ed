// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What times are computed from: how fast a rank computes, and how fast bytes travel.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include <seqpar/error.hpp>

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
  link_speed across;       ///< between nodes
  int ranks_per_node = 0;  ///< 0: all ranks are one node
  double memory_bandwidth = std::numeric_limits<double>::infinity();  ///< bytes read or written per second, for copies

  bool one_node(int a, int b) const { return ranks_per_node <= 0 || a / ranks_per_node == b / ranks_per_node; }
  const link_speed& between(int a, int b) const { return one_node(a, b) ? inside : across; }
};

namespace detail {
inline void check_machine(const char* where, const machine& m) {
  const auto positive = [&](double x, const char* name) {
    if (!(x > 0)) raise(invalid(where, std::string("the machine's ") + name + " must be above 0"));
  };
  positive(m.flops, "flops");
  positive(m.inside.bandwidth, "inside.bandwidth");
  positive(m.across.bandwidth, "across.bandwidth");
  positive(m.memory_bandwidth, "memory_bandwidth");
  for (double latency : {m.inside.latency, m.across.latency})
    if (!(latency >= 0) || std::isinf(latency))
      raise(invalid(where, "the machine's latencies must be 0 or more, and finite"));
  if (m.ranks_per_node < 0) raise(invalid(where, "the machine's ranks_per_node must be 0 (one node) or more"));
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
