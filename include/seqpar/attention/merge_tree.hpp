// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Partial results of several ranks made into one on all of them, in a logarithmic number of hops.
#pragma once

#include <utility>

#include <seqpar/attention/state.hpp>
#include <seqpar/transport/concept.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Recursive doubling over n members. With W the largest power of two ≤ n, member m ≥ W first gives its partial to
/// m − W; then, for d = 1, 2, …, W/2, members m and m xor d exchange what they have and both merge it, the lower
/// member's first; last m ≥ W gets the result from m − W. Every member thus evaluates the same expression:
///
///   merge(merge(p₀, p₁), merge(p₂, p₃)) …   with p_m ← merge(p_m, p_{m+W}) for m < n − W
///
/// Hops: log2 W, and two more unless n = W.
struct merge_tree {
  int members, me;

  constexpr int whole() const {
    int w = 1;
    while (w <= members / 2) w *= 2;
    return w;
  }
  constexpr bool outside() const { return me >= whole(); }
  constexpr bool has_outsider() const { return me < members - whole(); }
  /// How many partials this member sends: log2 W, one more with an outsider; an outsider sends one.
  constexpr index_t partials_sent() const {
    if (outside()) return 1;
    index_t n = has_outsider() ? 1 : 0;
    for (int d = 1; d < whole(); d *= 2) ++n;
    return n;
  }

  /// hop(peer, send, receive, hop number) moves partials; merge(mine_first) makes one of what is here and what came.
  template <class Hop, class Merge>
  status run(Hop&& hop, Merge&& merge) const {
    const int w = whole();
    if (outside()) {
      if (status s = hop(me - w, true, false, 0); !s.ok()) return s;
      return hop(me - w, false, true, last_hop());
    }
    if (has_outsider()) {
      if (status s = hop(me + w, false, true, 0); !s.ok()) return s;
      merge(true);
    }
    index_t number = 1;
    for (int d = 1; d < w; d *= 2, ++number) {
      if (status s = hop(me ^ d, true, true, number); !s.ok()) return s;
      merge((me & d) == 0);
    }
    return has_outsider() ? hop(me + w, true, false, last_hop()) : status{};
  }

 private:
  constexpr index_t last_hop() const {
    index_t n = 1;
    for (int d = 1; d < whole(); d *= 2) ++n;
    return n;
  }
};

}  // namespace v0_1
}  // namespace seqpar
