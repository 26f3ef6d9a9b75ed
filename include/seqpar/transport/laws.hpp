// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The laws of a transport, as code that a transport of your own is run through.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <seqpar/transport/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

struct transport_law_options {
  index_t repetitions = 100;  ///< of every exchange
  /// Also one message as large, in whole 64 KiB; not for contiguous_only. It takes as much memory on each rank where
  /// bytes do not go straight to their place (strided), else none.
  index_t large_bytes = 0;
};

namespace detail {

template <class T, class Exec>
class transport_laws {
 public:
  transport_laws(const T& t, const Exec& exec) : t_(t), exec_(exec) {}

  const char* run(const transport_law_options& o) {
    law("ring shift: what goes right comes from the left", o.repetitions, [&](index_t i) { ring_shift(i); });
    law("pairwise: partners swap their values", o.repetitions, [&](index_t i) { pairwise(i); });
    law("order per pair: K and V sent to one peer arrive as K and V", o.repetitions,
        [&](index_t i) { keys_values(i); });
    law("order across groups: launched first is matched first", o.repetitions, [&](index_t i) { three_groups(i); });
    law("self: a rank can send to itself", o.repetitions, [&](index_t i) { to_self(i); });
    law("zero bytes: empty messages are matched like any other", o.repetitions, [&](index_t i) { uneven(i); });
    law("all to all: everybody sends to everybody at once", o.repetitions, [&](index_t i) { everybody(i); });
    if (T::access != transport_access::contiguous_only)
      law("strided blocks: only the bytes of the block move", o.repetitions, [&](index_t i) { strided(i); });
    if (t_.size() > 1 && !serial_groups<T>()) {
      law("everybody sends first", o.repetitions, [&](index_t i) { two_groups(i, direction_first::send); });
      law("everybody receives first", o.repetitions, [&](index_t i) { two_groups(i, direction_first::receive); });
    }
    law("all the way round: a ring of any size, odd ones too", 1 + o.repetitions / 10,
        [&](index_t i) { round_trip(i); });
    law("an empty group comes and goes, reserved or not", 1, [&](index_t) { nothing(); });
    law("a group can be cleared and used again", 1 + o.repetitions / 10, [&](index_t i) { reuse(i); });
    if (o.large_bytes > 0 && T::access != transport_access::contiguous_only)
      law("a message may have more than 2^31 bytes", 1, [&](index_t) { large(o.large_bytes); });
    return broken_;
  }

 private:
  using group = typename T::group_type;
  enum class direction_first { send, receive };

  /// A wrong value is remembered and the exchange goes on, so that no peer is left waiting. After a failed status
  /// nothing more is tried; the peers are told.
  template <class F>
  void law(const char* name, index_t repetitions, F body) {
    name_ = name;
    for (index_t i = 0; i < repetitions && !stopped_; ++i) body(i);
  }
  void expect(bool held) {
    if (!held && !stopped_ && broken_ == nullptr) broken_ = name_;
  }
  bool done(const status& s) {
    if (s.ok() || stopped_) return s.ok();
    expect(false);
    stopped_ = true;
    t_.abort(status{errc::transport_failed, "a transport law failed"});
    return false;
  }
  void exchange(group& g) {
    if (done(t_.launch(g, exec_))) static_cast<void>(done(t_.wait(g, exec_)));
  }
  group make(index_t sends, index_t receives) {
    group g = t_.group();
    g.reserve(sends, receives);
    g.label({name_, 0});
    return g;
  }

  int around(int steps) const { return ((t_.rank() + steps) % t_.size() + t_.size()) % t_.size(); }
  static std::int64_t value(int from, int to, index_t i) { return 1000000 * i + 1000 * from + to; }
  static block one(const std::int64_t& x) { return dense_block(&x, sizeof x); }

  void ring_shift(index_t i) {
    const int step = i % 2 == 0 ? 1 : -1, to = around(step), from = around(-step);
    const std::int64_t out = value(t_.rank(), to, i);
    std::int64_t in = -1;
    group g = make(1, 1);
    g.send(one(out), to);
    g.recv(one(in), from);
    exchange(g);
    expect(in == value(from, t_.rank(), i));
  }
  void pairwise(index_t i) {
    const int peer = t_.rank() ^ 1;
    if (peer >= t_.size()) return;
    const std::int64_t out = value(t_.rank(), peer, i);
    std::int64_t in = -1;
    group g = make(1, 1);
    g.recv(one(in), peer);
    g.send(one(out), peer);
    exchange(g);
    expect(in == value(peer, t_.rank(), i));
  }
  /// Both neighbours at once; with two ranks they are the same one.
  void keys_values(index_t i) {
    const int right = around(1), left = around(-1);
    const std::int64_t k = value(1, 0, i), v = value(2, 0, i);
    const std::int64_t k_left = value(3, 0, i), v_left = value(4, 0, i);
    std::array<std::int64_t, 4> in{};
    group g = make(4, 4);
    for (const std::int64_t* x : {&k, &v}) g.send(one(*x), right);
    for (const std::int64_t* x : {&k_left, &v_left}) g.send(one(*x), left);
    g.recv(one(in[0]), left);
    g.recv(one(in[1]), left);
    g.recv(one(in[2]), right);
    g.recv(one(in[3]), right);
    exchange(g);
    expect(in == std::array<std::int64_t, 4>{k, v, k_left, v_left});
  }
  void three_groups(index_t i) {
    const int to = around(1), from = around(-1);
    std::array<std::int64_t, 3> out{}, in{};
    group g[] = {make(1, 1), make(1, 1), make(1, 1)};
    for (int n = 0; n < 3; ++n) {
      const auto a = static_cast<std::size_t>(n);
      out[a] = value(n, 7, i);
      g[n].send(one(out[a]), to);
      g[n].recv(one(in[a]), from);
      static_cast<void>(done(t_.launch(g[n], exec_)));
    }
    for (int n = 2; n >= 0 && !stopped_; --n) static_cast<void>(done(t_.wait(g[n], exec_)));
    expect(in == std::array<std::int64_t, 3>{value(0, 7, i), value(1, 7, i), value(2, 7, i)});
  }
  void to_self(index_t i) {
    const std::int64_t out[] = {value(1, 1, i), value(2, 2, i)};
    std::int64_t in[] = {-1, -1};
    group g = make(2, 2);
    for (int n = 0; n < 2; ++n) g.recv(one(in[n]), t_.rank());
    for (int n = 0; n < 2; ++n) g.send(one(out[n]), t_.rank());
    exchange(g);
    expect(in[0] == out[0] && in[1] == out[1]);
  }
  /// Counts [from][to] with empty messages, and one rank that neither sends nor receives anything.
  void uneven(index_t i) {
    constexpr int counts[4][4] = {{0, 2, 0, 1}, {3, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 4}};
    const int size = t_.size(), me = t_.rank();
    std::vector<std::int64_t> out(4 * static_cast<std::size_t>(size), -1), in = out;
    group g = make(size, size);
    const auto row = [](std::vector<std::int64_t>& x, int r) { return x.data() + 4 * r; };
    const auto bytes_of = [&](int from, int to) { return index_t{8} * counts[from % 4][to % 4]; };
    for (int r = 0; r < size; ++r) {
      for (int k = 0; k < 4; ++k) row(out, r)[k] = value(100 * me, 10 * r + k, i);
      g.send(dense_block(bytes_of(me, r) > 0 ? row(out, r) : nullptr, bytes_of(me, r)), r);
      g.recv(dense_block(bytes_of(r, me) > 0 ? row(in, r) : nullptr, bytes_of(r, me)), r);
    }
    exchange(g);
    for (int r = 0; r < size; ++r)
      for (int k = 0; k < 4; ++k)
        expect(row(in, r)[k] == (k < counts[r % 4][me % 4] ? value(100 * r, 10 * me + k, i) : -1));
  }
  void everybody(index_t i) {
    const int size = t_.size(), me = t_.rank();
    std::vector<std::int64_t> out(static_cast<std::size_t>(size)), in = out;
    group g = make(size, size);
    for (int r = 0; r < size; ++r) {
      const auto a = static_cast<std::size_t>(r), b = static_cast<std::size_t>(size - 1 - r);
      out[a] = value(me, r, i);
      g.send(one(out[a]), r);
      g.recv(one(in[b]), size - 1 - r);
    }
    exchange(g);
    for (int r = 0; r < size; ++r) expect(in[static_cast<std::size_t>(r)] == value(r, me, i));
  }
  /// 3 rows × 2 columns × 3 bytes out of rows of 16 bytes and columns of 5, into rows of 12 and columns of 4.
  void strided(index_t i) {
    std::array<unsigned char, 48> out{}, in{};
    const auto byte = [&](int rank, int k) { return static_cast<unsigned char>(1 + (17 * rank + k + 3 * i) % 250); };
    for (int k = 0; k < 48; ++k) out[static_cast<std::size_t>(k)] = byte(t_.rank(), k);
    group g = make(1, 1);
    g.send({out.data() + 1, 3, 16, 2, 5, 3}, around(1));
    g.recv({in.data() + 2, 3, 12, 2, 4, 3}, around(-1));
    exchange(g);
    std::array<unsigned char, 48> expected{};
    for (int row = 0; row < 3; ++row)
      for (int c = 0; c < 2; ++c)
        for (int k = 0; k < 3; ++k)
          expected[static_cast<std::size_t>(2 + 12 * row + 4 * c + k)] = byte(around(-1), 1 + 16 * row + 5 * c + k);
    expect(in == expected);
  }
  /// Sends in one group, receives in another; the group launched first is waited for first.
  void two_groups(index_t i, direction_first first) {
    const std::int64_t out = value(t_.rank(), 5, i);
    std::int64_t in = -1;
    group s = make(1, 0), r = make(0, 1);
    s.send(one(out), around(1));
    r.recv(one(in), around(-1));
    group& a = first == direction_first::send ? s : r;
    group& b = first == direction_first::send ? r : s;
    if (done(t_.launch(a, exec_)) && done(t_.launch(b, exec_)) && done(t_.wait(a, exec_)))
      static_cast<void>(done(t_.wait(b, exec_)));
    expect(in == value(around(-1), 5, i));
  }
  void round_trip(index_t i) {
    std::int64_t slot[] = {value(t_.rank(), 0, i), -1}, sum = slot[0], all = 0;
    for (int step = 1; step < t_.size() && !stopped_; ++step) {
      group g = make(1, 1);
      g.send(one(slot[(step + 1) % 2]), around(1));
      g.recv(one(slot[step % 2]), around(-1));
      exchange(g);
      sum += slot[step % 2];
      expect(slot[step % 2] == value(around(-step), 0, i));
    }
    for (int r = 0; r < t_.size(); ++r) all += value(r, 0, i);
    expect(sum == all);
  }
  void nothing() {
    group unreserved = t_.group(), reserved = make(1, 1);
    exchange(unreserved);
    exchange(reserved);
  }
  void reuse(index_t i) {
    group g = make(1, 1);
    for (int n = 0; n < 3 && !stopped_; ++n) {
      const std::int64_t out = value(t_.rank(), n, i);
      std::int64_t in = -1;
      g.clear();
      g.send(one(out), around(1));
      g.recv(one(in), around(-1));
      exchange(g);
      expect(in == value(around(-1), n, i));
    }
  }
  /// Little memory: every row is the same row, read and written again and again.
  void large(index_t bytes) {
    constexpr index_t row = index_t{1} << 16;
    const auto filler = static_cast<unsigned char>(t_.rank() + 1);
    // What is sent may be one row again and again; to receive a byte twice is more than an engine has to know.
    const index_t step = T::access == transport_access::peer_memory ? 0 : row;
    std::vector<unsigned char> out(static_cast<std::size_t>(row), filler);
    std::vector<unsigned char> in(static_cast<std::size_t>((bytes / row - 1) * step + row), 0);
    group g = make(1, 1);
    g.send({out.data(), bytes / row, 0, 1, row, row}, around(1));
    g.recv({in.data(), bytes / row, step, 1, row, row}, around(-1));
    exchange(g);
    for (const unsigned char x : in) expect(x == static_cast<unsigned char>(around(-1) + 1));
  }

  const T& t_;
  const Exec& exec_;
  const char* name_ = "";
  const char* broken_ = nullptr;
  bool stopped_ = false;
};

}  // namespace detail

/// The name of the first law that `t` breaks, as this rank sees it; nullptr when all hold. Collective: every rank
/// calls it with the same options. After a law was broken by a failed status the transport is aborted.
template <transport T, class Exec = on_host>
[[nodiscard]] const char* run_transport_laws(const T& t, const transport_law_options& options = {},
                                             const Exec& exec = {}) {
  return detail::transport_laws<T, Exec>(t, exec).run(options);
}

}  // namespace v0_1
}  // namespace seqpar
