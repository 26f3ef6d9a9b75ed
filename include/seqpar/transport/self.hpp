// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank alone.
#pragma once

#include <seqpar/space/copy.hpp>
#include <seqpar/transport/message.hpp>

namespace seqpar {
inline namespace v0_1 {

/// A world of one rank, which may send to itself: in launch(), the i-th message sent is copied into the i-th received
/// of the same group. A message without its counterpart in the group is a deadlock and refused.
class self {
 public:
  using group_type = message_list<>;
  static constexpr transport_access access = transport_access::peer_memory;

  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
  group_type group() const { return group_type(1); }

  template <class = when_used>
  status launch(group_type& group, on_host) const noexcept {
    if (const status wrong = group.problem(); !wrong.ok()) return wrong;
    const status matched = for_each_pair(group, [](const block&, const block&) {});
    if (!matched.ok()) return matched;
    group.mark_launched();
    return for_each_pair(group, [](const block& to, const block& from) { copy_block(to, from); });
  }
  template <class = when_used>
  status wait(group_type& group, on_host) const noexcept {
    if (group.launched()) return {};
    return {errc::invalid_argument, "self: wait for a group that was not launched"};
  }
  template <class = when_used>
  status wait(group_type& group, on_host exec, std::chrono::nanoseconds) const noexcept {
    return wait(group, exec);
  }
  status check() const noexcept { return {}; }
  /// Nobody else is there to be told.
  void abort(const status&) const noexcept {}

 private:
  template <class F>
  static status for_each_pair(const group_type& group, F f) noexcept {
    const auto all = group.messages();
    std::size_t s = 0, r = 0;
    for (;; ++s, ++r) {
      while (s < all.size() && all[s].way != direction::send) ++s;
      while (r < all.size() && all[r].way != direction::receive) ++r;
      if (s == all.size() && r == all.size()) return {};
      if (s == all.size() || r == all.size())
        return {errc::deadlock, "self: a message to itself has no counterpart in the same group", 0};
      if (all[s].data.bytes() != all[r].data.bytes())
        return {errc::size_mismatch,
                "self: a message has other bytes than its receiver expects",
                0,
                "",
                {all[r].data.bytes(), all[s].data.bytes(), " bytes"}};
      f(all[r].data, all[s].data);
    }
  }
};

}  // namespace v0_1
}  // namespace seqpar
