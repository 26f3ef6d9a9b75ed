// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How bytes travel between ranks.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <span>

#include <seqpar/error.hpp>
#include <seqpar/space/host.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What a transport can move: one piece of memory (exchanges refuse it), a strided block, or straight into a peer's
/// memory.
enum class transport_access { contiguous_only, strided, peer_memory };

/// What a message is, for reports: a literal, of what if of anything, and a round. `rank 2 waits for 512 KiB from rank
/// 1 (dK/dV, round 2)`, `(adjoint of reshard, round 0)`. And to which plan it belongs, where prepare's agreement gave
/// it a number: the two sides of a message name one plan.
struct message_label {
  const char* stage = "message";
  index_t round = 0;
  index_t plan = 0;  ///< 0: none
  const char* of = "";
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
///                                   abort(status, why), optional: `why` in the place of the status's words
///
/// Optional, for engines with other habits:
///
///   serial_groups                   static, true: a group starts when the earlier ones of its rank are through, so
///                                   that all ranks launch in one order and messages in two groups do not pass
///   connect(peers, exec)            makes ready for messages to and from these ranks; collective, each names the
///   other.
///                                   Plans call it in prepare, with the ranks that their runs meet
///   group().pack_into(memory, bytes) memory for the strided blocks of the next launch, in the exec's space:
///   packed_bytes
///                                   of each. Plans ask for it as scratch and give it before launch
///   group().gather_all(mine, all)   every rank's `mine`, all of one size, lands in everybody's `all`, rank after rank;
///                                   one send and one receive. All ranks of the transport add it, or none
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

/// Packed blocks start at multiples of this.
inline constexpr index_t pack_alignment = 16;

/// A group whose transport moves pieces of memory only, and packs strided blocks into memory that it is given.
template <class G>
concept packing_group = message_group<G> && requires(G g, void* memory, index_t bytes, block b) {
  g.pack_into(memory, bytes);
  { G::packed_bytes(b) } -> std::same_as<index_t>;
};

/// A group with an all-gather of its own.
template <class G>
concept gathering_group = message_group<G> && requires(G g, block b) {
  g.gather_all(b, b);
};

namespace detail {
/// What f() says; what it throws becomes the status `threw`. The peers are told of either, and of what was thrown where
/// the transport reports it.
template <class T, class F>
status told_to_peers(const T& t, const char* threw, F&& f) {
  status said;
  bool told = false;
  const auto caught = [&](const char* what) {
    said = {errc::invalid_argument, threw};
    if constexpr (requires { t.abort(said, std::string_view()); }) {
      t.abort(said, sentence({threw, ": ", what}));
      told = true;
    }
  };
  on_any_throw([&] { said = f(); }, caught);
  if (!said.ok() && !told) t.abort(said);
  return said;
}
}  // namespace detail

template <class T>
constexpr bool serial_groups() {
  if constexpr (requires { T::serial_groups; })
    return T::serial_groups;
  else
    return false;
}

/// connect(), where the transport has it.
template <class T, class Exec>
status connect_peers(const T& t, std::span<const int> peers, Exec exec) {
  if constexpr (requires {
                  { t.connect(peers, exec) } -> std::same_as<status>;
                })
    return t.connect(peers, exec);
  else
    return {};
}

}  // namespace v0_1
}  // namespace seqpar
