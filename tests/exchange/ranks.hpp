// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tests of multimodal exchanges share: traced thread ranks, a global scalar and its finite differences.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tests/exchange/harness.hpp>

namespace exchange_test {

/// body(team, record) on every rank; what one raises is raised here.
template <class Body>
void on_ranks(int ranks, Body&& body, std::optional<std::uint64_t> adversary = {}) {
  threads::options world{.ranks = ranks};
  world.adversary = adversary;
  run_ranks(world, [&](threads::transport engine) {
    flight_record record(engine.rank(), ranks, 64);
    const team_type team(traced_threads(engine, record), {.ring = ranks, .all_to_all = 1});
    body(team, record);
  });
}

/// Raised on the rank where it does not hold.
inline void require(bool holds, const std::string& what) {
  if (!holds) raise(error(errc::invalid_argument, what));
}

/// The bytes that f sends.
template <class F>
index_t bytes_sent_by(const flight_record& record, F&& f) {
  const index_t before = record.bytes(direction::send);
  check(f());
  return record.bytes(direction::send) - before;
}

/// A plan's memory, and the plan made ready in it.
template <class Plan>
host_memory prepared(Plan& plan) {
  host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  return memory;
}

/// A number between −1 and 1.
inline double noise(index_t a, index_t b = 0, index_t c = 0) {
  const double x = std::sin(static_cast<double>(a * 7919 + b * 104729 + c * 1299709 + 1)) * 43758.5453;
  return 2 * (x - std::floor(x)) - 1;
}

template <class T>
T at(const std::vector<T>& list, index_t i) {
  return list[static_cast<std::size_t>(i)];
}

/// What every rank holds, one vector of numbers each.
using ranks_values = std::vector<std::vector<double>>;

/// Is `gradient` the derivative of scalar(x) by every number of every rank? Says where it is not, or "".
inline std::string no_gradient_of(const std::function<double(const ranks_values&)>& scalar, const ranks_values& x,
                                  const ranks_values& gradient) {
  const double h = 1e-5;
  for (std::size_t r = 0; r < x.size(); ++r) {
    if (gradient[r].size() != x[r].size()) return "rank " + std::to_string(r) + " has another number of gradients";
    for (std::size_t i = 0; i < x[r].size(); ++i) {
      ranks_values y = x;
      y[r][i] += h;
      const double up = scalar(y);
      y[r][i] -= 2 * h;
      const double slope = (up - scalar(y)) / (2 * h);
      if (!(std::abs(slope - gradient[r][i]) <= 1e-8 * (1 + std::abs(slope))))
        return "rank " + std::to_string(r) + ", number " + std::to_string(i) + ": slope " + std::to_string(slope) +
               ", gradient " + std::to_string(gradient[r][i]);
    }
  }
  return {};
}

}  // namespace exchange_test
