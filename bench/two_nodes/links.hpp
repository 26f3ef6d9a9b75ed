// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The links between the two nodes of scripts/two-nodes: what a plan sends over each, and what each has carried.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/transport/recorder.hpp>

namespace two_nodes {

using seqpar::index_t;

[[noreturn]] inline void refuse(const std::string& what) {
  throw seqpar::error(seqpar::errc::invalid_argument, "two_nodes: " + what);
}

/// Bytes of each link and way: [2·link] from node 0 to node 1, [2·link + 1] back.
using load = std::vector<index_t>;
inline index_t fullest(const load& bytes) {
  return *std::max_element(bytes.begin(), bytes.end());
}
inline index_t sum(const load& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), index_t{0});
}

using message_log = std::vector<seqpar::recorded_message>;

/// Ranks 0 … per_node − 1 are node 0. What one node sends to the other takes the one link, or that of its receiver.
class links {
 public:
  /// As scripts/two-nodes has wired them.
  explicit links(int ranks) : per_node_(ranks / 2) {
    const char *wiring = std::getenv("TWO_NODES_WIRING"), *rate = std::getenv("TWO_NODES_RATE");
    if (!wiring || !rate) refuse("there are no two nodes here; start this program by scripts/two-nodes");
    rail_ = std::string_view(wiring) == "rail";
    rate_ = std::strtod(rate, nullptr);
  }
  int per_node() const { return per_node_; }
  int count() const { return rail_ ? per_node_ : 1; }
  double rate() const { return rate_; }  ///< bits per second of each way; 0: unlimited
  double seconds(index_t bytes) const { return rate_ > 0 ? 8 * static_cast<double>(bytes) / rate_ : 0; }

  /// What the messages that are sent put on the links.
  load planned(const message_log& log) const {
    load bytes = none();
    for (const seqpar::recorded_message& m : log) add(bytes, m);
    return bytes;
  }
  /// Σ over the rounds, which follow each other, of the bytes on the fullest link of each.
  index_t round_by_round(const message_log& log) const {
    struct round {
      seqpar::message_label label;
      load bytes;
    };
    std::vector<round> rounds;
    for (const seqpar::recorded_message& m : log) {
      auto r = std::find_if(rounds.begin(), rounds.end(), [&](const round& x) {
        return x.label.round == m.label.round && std::string_view(x.label.stage) == m.label.stage;
      });
      if (r == rounds.end()) r = rounds.insert(r, {m.label, none()});
      add(r->bytes, m);
    }
    index_t bytes = 0;
    for (const round& r : rounds) bytes += fullest(r.bytes);
    return bytes;
  }

  /// What this node, which is to be node 0, has sent and received since it was made, as its interfaces count.
  load counted() const {
    load bytes = none();
    std::ifstream interfaces("/proc/net/dev");
    for (std::string line, name; std::getline(interfaces, line);) {
      std::istringstream words(line);  // name: bytes received and seven more numbers, bytes sent …
      std::vector<index_t> numbers;
      words >> name;
      for (index_t x = 0; words >> x;) numbers.push_back(x);
      for (std::size_t link = 0; 2 * link < bytes.size(); ++link)
        if (name == "link" + std::to_string(link) + ":") bytes[2 * link] = numbers[8], bytes[2 * link + 1] = numbers[0];
    }
    return bytes;
  }

 private:
  load none() const { return load(static_cast<std::size_t>(2 * count())); }
  void add(load& bytes, const seqpar::recorded_message& m) const {
    const int node = m.from / per_node_, link = rail_ ? m.to % per_node_ : 0;
    if (m.way == seqpar::direction::send && node != m.to / per_node_)
      bytes[static_cast<std::size_t>(2 * link + node)] += m.bytes;
  }

  int per_node_;
  bool rail_ = false;
  double rate_ = 0;
};

/// Has every link carried what was planned, and all of them little more: headers, acknowledgements, barriers?
inline bool carried(const load& counted, const load& planned) {
  constexpr index_t barriers = index_t{1} << 16;
  for (std::size_t i = 0; i < planned.size(); ++i)
    if (counted[i] < planned[i]) return false;
  return sum(counted) <= sum(planned) + sum(planned) / 10 * 3 + barriers;
}

}  // namespace two_nodes
