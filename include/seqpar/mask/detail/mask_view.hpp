// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mask as planning asks it, whatever its type.
#pragma once

#include <memory>
#include <optional>

#include <seqpar/detail/function_ref.hpp>
#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/intervals.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// A mask that may answer try_key_intervals; a bare functor never does.
template <class M>
concept may_have_intervals = listed_mask<M> || requires(const M& mask, index_t q) {
  mask.try_key_intervals(q);
};

/// The questions of mask/concept.hpp, so that who asks them is compiled once for all masks. The mask, bound to its
/// lengths, must live as long.
class mask_view {
 public:
  using add_interval = function_ref<void(interval)>;

  template <class M>
  requires(!std::same_as<M, mask_view> && attention_mask<M>) mask_view(const M& mask)
      : has_reach(seqpar::has_reach<M>),
        has_intervals(interval_mask<M>),
        may_have_intervals(detail::may_have_intervals<M>),
        mask_(std::addressof(mask)),
        allows_([](const void* m, index_t q, index_t k) -> bool { return as<M>(m).allows(q, k); }),
        reach_([](const void* m, const run& q, index_t k_tokens, add_interval add) {
          const bool joined = q.step == 1 || q.step == -1;
          const index_t first = q.step == -1 ? q.at(q.count - 1) : q.first, rows = joined ? q.count : 1;
          for (index_t i = 0; i < q.count; i += rows)
            seqpar::reach(as<M>(m), {first + i * q.step, first + i * q.step + rows}, k_tokens, add);
        }),
        covers_([](const void* m, interval q, interval k) { return seqpar::covers(as<M>(m), q, k); }),
        intervals_([](const void* m, index_t q, interval_pair& keys) {
          const std::optional<interval_pair> known = seqpar::try_key_intervals(as<M>(m), q);
          if (known) keys = *known;
          return known.has_value();
        }) {}

  bool allows(index_t q, index_t k) const { return allows_(mask_, q, k); }
  /// Of all queries of a run; of those of an interval at once, where it is one.
  void reach(const run& q, index_t k_tokens, add_interval add) const { reach_(mask_, q, k_tokens, add); }
  cover covers(interval q, interval k) const { return covers_(mask_, q, k); }
  /// False: not known, or more than two.
  bool key_intervals(index_t q, interval_pair& keys) const { return intervals_(mask_, q, keys); }

  bool has_reach, has_intervals, may_have_intervals;

 private:
  template <class M>
  static const M& as(const void* mask) {
    return *static_cast<const M*>(mask);
  }
  const void* mask_;
  bool (*allows_)(const void*, index_t, index_t);
  void (*reach_)(const void*, const run&, index_t, add_interval);
  cover (*covers_)(const void*, interval, interval);
  bool (*intervals_)(const void*, index_t, interval_pair&);
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
