// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that moves nothing and writes down every message.
#pragma once

#include <vector>

#include <seqpar/transport/message.hpp>

namespace seqpar {
inline namespace v0_1 {

/// One message as `way` says: rank `from` sent it, or rank `to` received it. A message to itself is written down twice.
struct recorded_message {
  int from, to;
  index_t bytes;
  message_label label;
  direction way;
};

/// Any rank of any world, without the world: what a plan would send and receive, counted but not run. wait() is always
/// ok, and the blocks' pointers mean nothing. The log belongs to the caller.
class recorder {
 public:
  using group_type = message_list<>;
  static constexpr transport_access access = transport_access::peer_memory;

  recorder(int rank, int size, std::vector<recorded_message>& log) : rank_(rank), size_(size), log_(&log) {}

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  group_type group() const { return group_type(size_); }

  template <class = when_used>
  status launch(group_type& group, on_host) const {
    if (const status wrong = group.shape_problem(); !wrong.ok()) return wrong;
    for (const message& m : group.messages()) {
      const bool sent = m.way == direction::send;
      log_->push_back({sent ? rank_ : m.peer, sent ? m.peer : rank_, m.data.bytes(), m.label, m.way});
    }
    return {};
  }
  status wait(group_type&, on_host) const noexcept { return {}; }
  status wait(group_type&, on_host, std::chrono::nanoseconds) const noexcept { return {}; }
  status check() const noexcept { return {}; }
  void abort(const status&) const noexcept {}

 private:
  int rank_, size_;
  std::vector<recorded_message>* log_;
};

/// Σ bytes that the log's rank sends to (or receives from) ranks other than itself.
inline index_t bytes_of(const std::vector<recorded_message>& log, direction way) {
  index_t bytes = 0;
  for (const recorded_message& m : log)
    if (m.way == way && m.from != m.to) bytes += m.bytes;
  return bytes;
}

}  // namespace v0_1
}  // namespace seqpar
