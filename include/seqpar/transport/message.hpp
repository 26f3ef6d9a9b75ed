// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every transport's group is made of: messages, kept in order, checked, and told in words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <seqpar/space/overlap.hpp>
#include <seqpar/transport/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

enum class direction : std::uint8_t { send, receive };

/// One message as one of its two ranks sees it.
struct message {
  direction way = direction::send;
  int peer = -1;
  block data{};
  message_label label{};
};

/// The messages of a group in the order in which they were added; a group_type by itself for transports that keep
/// nothing else. M is `message` or derives from it. What is wrong with a message is kept and told by problem().
/// Memory: reserve() alone allocates; the messages stay where they are until clear().
template <class M = message>
class message_list {
 public:
  message_list() = default;
  /// `ranks`: how many there are, to check peers against.
  explicit message_list(int ranks) : ranks_(ranks) {}

  void reserve(index_t sends, index_t receives) {
    capacity_[0] = sends < count_[0] ? count_[0] : sends;
    capacity_[1] = receives < count_[1] ? count_[1] : receives;
    messages_.reserve(static_cast<std::size_t>(capacity_[0] + capacity_[1]));
    for (std::size_t i : {0u, 1u}) hulls_[i].reserve(static_cast<std::size_t>(capacity_[i]));
  }
  void clear() noexcept {
    messages_.clear();
    for (auto& list : hulls_) list.clear();
    count_[0] = count_[1] = 0;
    problem_ = {};
    memory_checked_ = launched_ = false;
  }
  void label(const message_label& l) noexcept { label_ = l; }
  void send(const block& b, int peer) noexcept { add(direction::send, b, peer); }
  void recv(const block& b, int peer) noexcept { add(direction::receive, b, peer); }

  std::span<M> messages() noexcept { return detail::span_over(messages_); }
  std::span<const M> messages() const noexcept { return detail::span_over(messages_); }
  M* begin() noexcept { return messages_.data(); }
  M* end() noexcept { return begin() + messages_.size(); }
  bool empty() const noexcept { return messages_.empty(); }
  /// Whether launch said so since clear(); an empty group needs no launch to be waited for.
  bool launched() const noexcept { return launched_ || empty(); }
  void mark_launched() noexcept { launched_ = true; }
  bool full(direction way) const noexcept { return count_[index_of(way)] == capacity_[index_of(way)]; }

  /// ok, or the first thing that is wrong with the messages, whatever memory they point to.
  status shape_problem() const noexcept { return problem_; }
  /// The same, and with the memory; what launch() returns before it posts anything.
  status problem() noexcept {
    if (problem_.ok() && !memory_checked_) problem_ = memory_problem();
    memory_checked_ = true;
    return problem_;
  }

 protected:
  /// Adds a message whose peer is taken as it is.
  void put(direction way, const block& b, int peer) noexcept {
    if (const status wrong = check(way, b, peer); !wrong.ok()) return note(wrong);
    memory_checked_ = false;
    ++count_[index_of(way)];
    M m{};
    m.way = way;
    m.peer = peer;
    m.data = b;
    m.label = label_;
    if (const interval bytes = hull_of(b); !bytes.empty())
      hulls_[index_of(way)].push_back({bytes, 0, messages_.size()});
    messages_.push_back(m);
  }

 private:
  static std::size_t index_of(direction way) { return way == direction::send ? 0 : 1; }

  void add(direction way, const block& b, int peer) noexcept {
    if (peer >= 0 && peer < ranks_)
      put(way, b, peer);
    else
      note({errc::invalid_argument, "transport: a message names a peer that is not a rank of this transport"});
  }
  void note(const status& wrong) noexcept {
    if (problem_.ok()) problem_ = wrong;
  }
  status check(direction way, const block& b, int peer) const noexcept {
    if (full(way)) return {errc::invalid_argument, "transport: more messages than the group has reserved"};
    if (b.rows < 0 || b.columns < 0 || b.column_bytes < 0)
      return {errc::invalid_argument, "transport: a block has a negative size", peer};
    return {};
  }
  /// Where a block lies. In a sorted list `reach` is the furthest end of this hull and those before it.
  struct hull {
    interval bytes;
    index_t reach;
    std::size_t message;
  };
  /// Received blocks are compared with sent ones whose hulls they meet; seldom any, and found without looking at the
  /// others.
  status memory_problem() noexcept {
    for (const M& m : messages_)
      if (m.data.pointer == nullptr && m.data.bytes() != 0)
        return {errc::invalid_argument, "transport: a null block has bytes", m.peer};
    std::vector<hull>& sends = hulls_[index_of(direction::send)];
    const interval all = span_of(sends);
    if (intersection(all, span_of(hulls_[index_of(direction::receive)])).empty()) return {};
    const auto by_start = [](const hull& a, const hull& b) { return a.bytes.lo < b.bytes.lo; };
    if (!std::is_sorted(sends.begin(), sends.end(), by_start)) std::sort(sends.begin(), sends.end(), by_start);
    index_t reach = all.lo;
    for (hull& s : sends) s.reach = reach = std::max(reach, s.bytes.hi);
    for (const hull& r : hulls_[index_of(direction::receive)]) {
      auto s = std::partition_point(sends.begin(), sends.end(), [&](const hull& x) { return x.reach <= r.bytes.lo; });
      for (; s != sends.end() && s->bytes.lo < r.bytes.hi; ++s)
        if (overlap(messages_[r.message].data, messages_[s->message].data))
          return {errc::overlapping_buffers,
                  "transport: a received block overlaps a sent one of the same group; use another buffer",
                  messages_[r.message].peer};
    }
    return {};
  }
  static interval span_of(const std::vector<hull>& list) {
    if (list.empty()) return {};
    interval all = list.front().bytes;
    for (const hull& h : list) all = {std::min(all.lo, h.bytes.lo), std::max(all.hi, h.bytes.hi)};
    return all;
  }

  std::vector<M> messages_;
  std::vector<hull> hulls_[2];  ///< of sent and received blocks that have bytes
  index_t capacity_[2] = {0, 0}, count_[2] = {0, 0};
  int ranks_ = 0;
  message_label label_{};
  status problem_{};
  bool memory_checked_ = false, launched_ = false;
};

/// "512 KiB", "1.5 MiB"; not rounded up.
inline std::string bytes_text(index_t bytes) {
  constexpr const char* units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  int u = 0;
  index_t unit = 1;
  for (; u < 4 && bytes / unit >= 1024; ++u) unit *= 1024;
  if (bytes % unit == 0) return detail::sentence({bytes / unit, units[u]});
  return detail::sentence({bytes / unit, ".", bytes % unit * 10 / unit, units[u]});
}

/// "dK/dV, round 2"
inline std::string label_text(const message_label& l) {
  return detail::sentence({l.stage, *l.of ? " of " : "", l.of, ", round ", l.round});
}

/// Two messages that their ranks mean differently. Messages of no plan may meet any.
inline bool of_two_plans(const message_label& a, const message_label& b) {
  return a.plan != 0 && b.plan != 0 && a.plan != b.plan;
}

/// "rank 2 waits for 512 KiB from rank 1 (dK/dV, round 2)"
template <class = when_used>
std::string waits_text(int rank, const message& m) {
  const std::string bytes = bytes_text(m.data.bytes()), label = label_text(m.label);
  return m.way == direction::receive
             ? detail::sentence({"rank ", rank, " waits for ", bytes, " from rank ", m.peer, " (", label, ")"})
             : detail::sentence({"rank ", rank, " waits for rank ", m.peer, " to take ", bytes, " (", label, ")"});
}

}  // namespace v0_1
}  // namespace seqpar
