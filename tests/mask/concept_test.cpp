// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The archetype is a mask; near-misses are not, or are told which member does not fit.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/explain.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

using namespace seqpar;

namespace {

struct archetype {
  bool allows(index_t, index_t) const { return true; }
};
struct allows_is_not_const {
  bool allows(index_t, index_t) { return true; }
};
struct allows_has_one_argument {
  bool allows(index_t) const { return true; }
};
struct allows_tells_nothing {
  void allows(index_t, index_t) const {}
};
struct cannot_be_copied : archetype {
  std::unique_ptr<int> table;
};
struct intervals_of_another_type : archetype {
  interval key_intervals(index_t) const { return {}; }
};
struct intervals_not_const : archetype {
  interval_pair key_intervals(index_t) { return {}; }
};
struct covers_tells_bool : archetype {
  bool covers(interval, interval) const { return true; }
};
struct reach_not_const : archetype {
  template <class F>
  void reach(interval, F&&) {}
};
struct reach_with_length : archetype {
  template <class F>
  void reach(interval, index_t, F&&) const {}
};
struct bound_tells_nothing : archetype {
  void bound(index_t, index_t) const {}
};
struct rebound_tells_nothing : archetype {
  template <class Keep>
  void rebound(Keep&&) const {}
};
struct problem_is_a_number : archetype {
  int problem() const { return 0; }
};

template <class... M>
constexpr bool all_explained() {
  return (explain_mask<M>() && ...);
}

}  // namespace

TEST_CASE("the archetype and every shipped mask are masks") {
  static_assert(attention_mask<archetype> && !interval_mask<archetype> && explain_mask<archetype>());
  static_assert(all_explained<full, causal, window, block_causal, teacher_forcing, first_keys, prefix_lm, valid,
                              documents, within<causal>, within<archetype>, all_of<causal, archetype>,
                              any_of<causal, window, archetype>, within<all_of<causal, any_of<first_keys, window>>>>());
  const archetype mask;
  CHECK(covers(mask, {0, 1}, {0, 1}) == cover::some);
  std::vector<interval> reached;
  reach(mask, {0, 1}, 7, [&](interval keys) { reached.push_back(keys); });
  CHECK(reached == std::vector<interval>{{0, 7}});
}

TEST_CASE("near-misses are no masks") {
  static_assert(!attention_mask<allows_is_not_const> && !detail::allows_fits<allows_is_not_const>);
  static_assert(!attention_mask<allows_has_one_argument> && !detail::allows_fits<allows_has_one_argument>);
  static_assert(!attention_mask<allows_tells_nothing> && !detail::allows_fits<allows_tells_nothing>);
  static_assert(!attention_mask<cannot_be_copied> && detail::allows_fits<cannot_be_copied>);
}

TEST_CASE("an optional member that does not fit is not passed over in silence") {
  static_assert(!detail::intervals_fit<intervals_of_another_type> && !detail::intervals_fit<intervals_not_const>);
  static_assert(!detail::covers_fit<covers_tells_bool>);
  static_assert(!detail::reach_fits<reach_not_const> && !detail::reach_fits<reach_with_length>);
  static_assert(!detail::bound_fits<bound_tells_nothing>);
  static_assert(!detail::rebound_fits<rebound_tells_nothing>);
  static_assert(!detail::problem_fits<problem_is_a_number>);
  static_assert(detail::intervals_fit<archetype> && detail::covers_fit<archetype> && detail::reach_fits<archetype> &&
                detail::bound_fits<archetype> && detail::rebound_fits<archetype> && detail::problem_fits<archetype>);
}
