// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tests of multimodal exchanges share: traced thread ranks, a global scalar and its finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/transport/recorder.hpp>
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

/// Memory of one rank in which buffers may lie on scratch; all bytes are 1 until somebody writes.
struct scratch_room {
  static constexpr std::size_t before = 256;
  alignas(memory_alignment) std::byte bytes[1024];
  scratch_room() { std::memset(bytes, 1, sizeof(bytes)); }
  seqpar::memory memory(const memory_sizes& sizes) {
    seqpar::memory given;
    given.scratch = {bytes + before, sizes.scratch};
    return given;
  }
  void* at(index_t from_scratch) { return bytes + before + from_scratch; }
  bool untouched() const {
    return std::all_of(std::begin(bytes), std::end(bytes), [](std::byte b) { return b == std::byte{1}; });
  }
};

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

/// Plans plan_of(team) on each rank by itself, where nothing is moved, runs run(plan, memory) there, and compares what
/// every rank posts with what its peers expect, message by message. "", or what differs. Plans must trust each other.
template <class PlanOf, class Run>
std::string differing_posts(int ranks, PlanOf&& plan_of, Run&& run) {
  std::vector<std::vector<recorded_message>> logs(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& log = logs[static_cast<std::size_t>(r)];
    auto plan = plan_of(ring(recorder(r, ranks, log)));
    const host_memory memory = prepared(plan);
    if (!log.empty()) return "planning communicates";
    run(plan, memory);
  }
  const auto messages = [&](int of, direction way, int from, int to) {
    std::vector<std::pair<std::string, index_t>> list;
    for (const recorded_message& m : logs[static_cast<std::size_t>(of)])
      if (m.way == way && m.from == from && m.to == to) list.push_back({label_text(m.label), m.bytes});
    return list;
  };
  for (int i = 0; i < ranks; ++i)
    for (int j = 0; j < ranks; ++j)
      if (messages(i, direction::send, i, j) != messages(j, direction::receive, i, j))
        return "rank " + std::to_string(i) + " sends other messages to rank " + std::to_string(j) + " than it expects";
  return {};
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
