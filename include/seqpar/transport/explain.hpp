// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Says, requirement by requirement, why a type is not a transport.
#pragma once

#include <concepts>

#include <seqpar/transport/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// static_assert(explain_transport<T>()) for a type of your own: each missing part is one sentence.
template <class T>
consteval bool explain_transport() {
  static_assert(std::copyable<T>, "[seqpar] a transport is a handle: it must be copyable; keep the engine elsewhere");
  constexpr bool has_group = requires {
    typename T::group_type;
  };
  static_assert(has_group,
                "[seqpar] a transport names its group: using group_type = ...; (message_list<> will often do)");
  static_assert(
      requires {
        { T::access } -> std::convertible_to<transport_access>;
      },
      "[seqpar] a transport says what it can move: static constexpr transport_access access = ...;");
  static_assert(
      requires(const T& t) {
        { t.rank() } -> std::convertible_to<int>;
        { t.size() } -> std::convertible_to<int>;
      },
      "[seqpar] a transport has int rank() const and int size() const");
  static_assert(
      requires(const T& t) {
        { t.check() } -> std::same_as<status>;
      },
      "[seqpar] a transport has status check() const");
  static_assert(
      requires(const T& t, status s) { t.abort(s); }, "[seqpar] a transport has void abort(status) const");
  if constexpr (has_group) {
    using G = typename T::group_type;
    static_assert(std::movable<G>, "[seqpar] a group must be movable");
    static_assert(
        requires(G g, index_t n) { g.reserve(n, n); }, "[seqpar] a group has reserve(index_t sends, index_t receives)");
    static_assert(
        requires(G g) { g.clear(); }, "[seqpar] a group has clear()");
    static_assert(
        requires(G g, message_label l) { g.label(l); }, "[seqpar] a group has label(message_label)");
    static_assert(
        requires(G g, block b, int peer) { g.send(b, peer); }, "[seqpar] a group has send(block, int peer)");
    static_assert(
        requires(G g, block b, int peer) { g.recv(b, peer); }, "[seqpar] a group has recv(block, int peer)");
    static_assert(
        requires(const T& t) {
          { t.group() } -> std::same_as<G>;
        },
        "[seqpar] a transport makes empty groups: group_type group() const");
    static_assert(
        requires(const T& t, G& g, on_host e) {
          { t.launch(g, e) } -> std::same_as<status>;
        },
        "[seqpar] a transport has status launch(group_type&, on_host) const");
    static_assert(
        requires(const T& t, G& g, on_host e) {
          { t.wait(g, e) } -> std::same_as<status>;
        },
        "[seqpar] a transport has status wait(group_type&, on_host) const");
    static_assert(
        requires(const T& t, G& g, on_host e, std::chrono::nanoseconds d) {
          { t.wait(g, e, d) } -> std::same_as<status>;
        },
        "[seqpar] a transport has status wait(group_type&, on_host, std::chrono::nanoseconds deadline) const");
  }
  return transport<T>;
}

}  // namespace v0_1
}  // namespace seqpar
