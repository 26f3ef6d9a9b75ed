// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How bytes travel between ranks.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>

#include <seqpar/error.hpp>
#include <seqpar/space/block.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Where a call runs: here, in the calling thread, before it returns.
struct on_host {};

/// What a transport can move: one piece of memory (exchanges refuse it), a strided block, or straight into a peer's
/// memory.
enum class transport_access { contiguous_only, strided, peer_memory };

/// What a message is, for reports: a literal and a round. `rank 2 waits for 512 KiB from rank 1 (dK/dV, round 2)`.
struct message_label {
  const char* stage = "message";
  index_t round = 0;
};

/// A group collects messages and launches them together. Messages between one pair of ranks are matched in the order in
/// which they were added, first in first out, across all groups of the transport. A group is storage: it allocates in
/// reserve() only, may be launched again after wait() and clear(), and its destructor cancels what is still under way.
template <class G>
concept message_group = std::movable<G> && requires(G g, block b, int peer, index_t n, message_label label) {
  g.reserve(n, n);  // (sends, receives)
  g.clear();        // forget the messages; legal when none is under way
  g.label(label);   // name what follows, for reports
  g.send(b, peer);  // within the capacity reserved: noexcept, no allocation
  g.recv(b, peer);
};

/// A handle, cheaply copied, that does not own the engine underneath. One issue order per transport: every rank
/// launches its groups in an order that agrees with its peers'. A zero-byte message is legal and matched like any
/// other.
///
///   rank(), size()                  this rank, and how many there are
///   access                          static: transport_access
///   group()                         an empty group
///   launch(group, exec)             posts all messages; never waits for a peer
///   wait(group, exec[, deadline])   until all messages of the group are done, or failure, or the deadline
///   check()                         has anything failed? never waits
///   abort(status)                   tells every peer that this rank gave up; every wait then returns peer_failed
///
/// Laws (laws.hpp): ring shift, pairwise, order per pair, self, zero bytes, > 2^31 bytes, everybody sending first.
template <class T>
concept transport = std::copyable<T> && message_group<typename T::group_type> &&
    requires(const T& t, typename T::group_type& g, on_host exec, status s, std::chrono::nanoseconds deadline) {
  { t.rank() } -> std::convertible_to<int>;
  { t.size() } -> std::convertible_to<int>;
  { T::access } -> std::convertible_to<transport_access>;
  { t.group() } -> std::same_as<typename T::group_type>;
  { t.launch(g, exec) } -> std::same_as<status>;
  { t.wait(g, exec) } -> std::same_as<status>;
  { t.wait(g, exec, deadline) } -> std::same_as<status>;
  { t.check() } -> std::same_as<status>;
  t.abort(s);
};

}  // namespace v0_1
}  // namespace seqpar
