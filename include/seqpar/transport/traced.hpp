// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any transport, with a flight record: what was sent to whom, and what is still under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/transport/message.hpp>

namespace seqpar {
inline namespace v0_1 {

/// One message in flight or landed; times since the record was made.
struct flight_event {
  enum class phase : std::uint8_t { posted, completed, failed };
  phase at = phase::posted;
  direction way = direction::send;
  int peer = -1;
  index_t bytes = 0;
  message_label label{};
  std::chrono::nanoseconds posted{}, ended{};
};

/// What one rank did: totals, bytes per peer, and the last `capacity` messages. Belongs to the caller and outlives the
/// traced transport. Memory: allocated when made and never again. Not for two threads at once.
class flight_record {
 public:
  template <class = when_used>
  flight_record(int rank, int size, index_t capacity = 256)
      : rank_(rank),
        events_(static_cast<std::size_t>(capacity < 1 ? 1 : capacity)),
        sent_(static_cast<std::size_t>(size)),
        received_(static_cast<std::size_t>(size)) {}

  /// What was launched to (from) other ranks; what a rank sends to itself is not counted.
  index_t bytes(direction way) const { return total(way).bytes; }
  index_t messages(direction way) const { return total(way).messages; }
  /// Bytes launched to (from) one rank, this one included.
  index_t bytes(direction way, int peer) const { return peers(way)[static_cast<std::size_t>(peer)]; }

  /// The remembered messages, oldest first.
  template <class F>
  void for_each(F&& f) const {
    const std::uint64_t n = events_.size();
    for (std::uint64_t i = next_ > n ? next_ - n : 0; i < next_; ++i) f(events_[i % n]);
  }

  /// A line for every remembered message that is under way or failed, and one for the totals:
  ///   rank 2 waits for 512 KiB from rank 1 (dK/dV, round 2), posted 20.1 s ago; before: 512 KiB (dK/dV, round 1),
  ///   21.3 s ago
  template <class = when_used>
  std::string report() const {
    const auto now = since_start();
    std::string text;
    for_each([&](const flight_event& e) {
      if (e.at == flight_event::phase::completed) return;
      text += detail::sentence({waits_text(rank_, {e.way, e.peer, dense_block(nullptr, e.bytes), e.label}), ", posted ",
                                seconds_text(now - e.posted)});
      if (e.at == flight_event::phase::failed) text += detail::sentence({", failed ", seconds_text(now - e.ended)});
      const flight_event* before = nullptr;
      for_each([&](const flight_event& c) {
        if (c.at == flight_event::phase::completed && c.peer == e.peer && c.way == e.way) before = &c;
      });
      if (before)
        text += detail::sentence({"; before: ", bytes_text(before->bytes), " (", label_text(before->label), "), ",
                                  seconds_text(now - before->ended)});
      text += "\n";
    });
    const auto sum = [](const totals& t) { return detail::sentence({t.messages, " messages, ", bytes_text(t.bytes)}); };
    return detail::sentence({text, "rank ", rank_, " launched to others ", sum(total(direction::send)),
                             ", from others ", sum(total(direction::receive)), "\n"});
  }

  // For transports that write into the record.

  /// Writes a message down as posted and returns its number.
  template <class = when_used>
  std::uint64_t post(direction way, int peer, index_t bytes, const message_label& label) noexcept {
    events_[next_ % events_.size()] = {flight_event::phase::posted, way, peer, bytes, label, since_start(), {}};
    peers(way)[static_cast<std::size_t>(peer)] += bytes;
    if (peer != rank_) {
      totals& t = total_[way == direction::send ? 0 : 1];
      t.bytes += bytes;
      ++t.messages;
    }
    return next_++;
  }
  /// Message `number` is over, if it is still remembered.
  void end(std::uint64_t number, flight_event::phase how) noexcept {
    if (number + events_.size() < next_) return;
    flight_event& e = events_[number % events_.size()];
    e.at = how;
    e.ended = since_start();
  }

 private:
  using clock = std::chrono::steady_clock;
  struct totals {
    index_t bytes = 0, messages = 0;
  };
  const totals& total(direction way) const { return total_[way == direction::send ? 0 : 1]; }
  std::vector<index_t>& peers(direction way) { return way == direction::send ? sent_ : received_; }
  const std::vector<index_t>& peers(direction way) const { return way == direction::send ? sent_ : received_; }
  std::chrono::nanoseconds since_start() const { return clock::now() - start_; }
  static std::string seconds_text(std::chrono::nanoseconds t) {
    const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(t).count() / 100;
    return detail::sentence({tenths / 10, ".", tenths % 10, " s ago"});
  }

  int rank_;
  std::vector<flight_event> events_;
  std::vector<index_t> sent_, received_;
  totals total_[2];
  std::uint64_t next_ = 0;
  clock::time_point start_ = clock::now();
};

/// Forwards everything to `Transport` and keeps a flight_record of it.
template <class Transport>
class traced {
 public:
  static constexpr transport_access access = Transport::access;
  static constexpr bool serial_groups = seqpar::serial_groups<Transport>();

  class group_type {
   public:
    void reserve(index_t sends, index_t receives) {
      inner_.reserve(sends, receives);
      entries_.reserve(static_cast<std::size_t>(sends + receives));
    }
    void clear() noexcept {
      end(flight_event::phase::failed);
      inner_.clear();
      entries_.clear();
    }
    void label(const message_label& l) noexcept {
      inner_.label(l);
      label_ = l;
    }
    void send(const block& b, int peer) noexcept {
      inner_.send(b, peer);
      add(direction::send, b, peer);
    }
    void recv(const block& b, int peer) noexcept {
      inner_.recv(b, peer);
      add(direction::receive, b, peer);
    }
    void pack_into(void* memory, index_t bytes) noexcept requires packing_group<typename Transport::group_type> {
      inner_.pack_into(memory, bytes);
    }
    /// Recorded as the messages that it stands for.
    void gather_all(const block& mine,
                    const block& all) noexcept requires gathering_group<typename Transport::group_type> {
      inner_.gather_all(mine, all);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        add(direction::send, mine, peer);
        add(direction::receive, mine, peer);
      }
    }
    static index_t packed_bytes(const block& b) noexcept requires packing_group<typename Transport::group_type> {
      return Transport::group_type::packed_bytes(b);
    }

   private:
    friend class traced;
    struct entry {
      direction way;
      int peer;
      index_t bytes;
      message_label label;
      std::uint64_t number = 0;
    };
    group_type(const Transport& transport, flight_record& record)
        : inner_(transport.group()), record_(&record), rank_(transport.rank()), size_(transport.size()) {}
    void add(direction way, const block& b, int peer) noexcept {
      if (entries_.size() < entries_.capacity()) entries_.push_back({way, peer, b.bytes(), label_});
    }
    void post() noexcept {
      for (entry& e : entries_) e.number = record_->post(e.way, e.peer, e.bytes, e.label);
      under_way_ = true;
    }
    void end(flight_event::phase how) noexcept {
      if (!std::exchange(under_way_, false)) return;
      for (const entry& e : entries_) record_->end(e.number, how);
    }

    typename Transport::group_type inner_;
    flight_record* record_;
    int rank_, size_;
    std::vector<entry> entries_;
    message_label label_{};
    bool under_way_ = false;
  };

  traced(const Transport& transport, flight_record& record) : transport_(transport), record_(&record) {}

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  group_type group() const { return {transport_, *record_}; }
  template <class Exec>
  status launch(group_type& g, const Exec& exec) const noexcept {
    const status s = transport_.launch(g.inner_, exec);
    if (s.ok()) g.post();
    return s;
  }
  template <class Exec>
  status wait(group_type& g, const Exec& exec) const noexcept {
    return ended(g, transport_.wait(g.inner_, exec));
  }
  template <class Exec>
  status wait(group_type& g, const Exec& exec, std::chrono::nanoseconds deadline) const noexcept {
    return ended(g, transport_.wait(g.inner_, exec, deadline));
  }
  template <class Exec>
  status connect(std::span<const int> peers, const Exec& exec) const noexcept {
    return connect_peers(transport_, peers, exec);
  }
  status check() const noexcept { return transport_.check(); }
  void abort(const status& s) const noexcept { transport_.abort(s); }
  void abort(const status& s, std::string_view why) const noexcept requires requires(const Transport& t) {
    t.abort(s, why);
  }
  { transport_.abort(s, why); }
  status recover() const noexcept requires requires(const Transport& t) { t.recover(); }
  { return transport_.recover(); }

  const Transport& base() const { return transport_; }
  const flight_record& record() const { return *record_; }

 private:
  static status ended(group_type& g, const status& s) noexcept {
    g.end(s.ok() ? flight_event::phase::completed : flight_event::phase::failed);
    return s;
  }

  Transport transport_;
  flight_record* record_;
};

}  // namespace v0_1
}  // namespace seqpar
