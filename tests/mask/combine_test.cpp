// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Combinations: laws, how many intervals they need, and what is forwarded.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/explain.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

using namespace seqpar;

namespace {

/// The archetype: what a mask must have, and nothing else.
struct even_keys {
  constexpr bool allows(index_t, index_t k) const { return k % 2 == 0; }
};

/// A functor that knows its reach but has no intervals.
struct even_keys_near {
  constexpr bool allows(index_t q, index_t k) const { return k % 2 == 0 && k <= q + 2 && q <= k + 2; }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    f(interval{q.lo > 2 ? q.lo - 2 : 0, q.hi + 2});
  }
};

/// Two keys to the right, past what any window on the diagonal shows.
struct shifted {
  static constexpr int max_intervals = 1;
  constexpr bool allows(index_t q, index_t k) const { return k == q + 2; }
  constexpr interval_pair key_intervals(index_t q) const { return {{q + 2, q + 3}, {}}; }
};

/// Later queries see earlier keys, every second one.
struct backwards {
  static constexpr int max_intervals = 1;
  constexpr bool allows(index_t q, index_t k) const { return k == 9 - 2 * q; }
  constexpr interval_pair key_intervals(index_t q) const {
    return q < 5 ? interval_pair{{9 - 2 * q, 10 - 2 * q}, {}} : interval_pair{};
  }
};

template <class M>
void holds(const M& mask, reach_law demanded = reach_law::exact, index_t most = 5) {
  const auto try_lengths = [&](index_t q_tokens, index_t k_tokens) {
    const char* broken = broken_mask_law(mask, q_tokens, k_tokens, demanded);
    CAPTURE(q_tokens);
    CAPTURE(k_tokens);
    if (broken) FAIL_CHECK(std::string(broken));
  };
  for (index_t q = 0; q <= most; ++q)
    for (index_t k = 0; k <= most; ++k) try_lengths(q, k);
  try_lengths(10, 10);
  try_lengths(8, 12);
  try_lengths(12, 7);
}

/// f(mask) for one of each kind of plain mask: anchored at 0, moving, in tables.
template <class F>
void for_kinds(F&& f) {
  static const std::vector<index_t> bounds = pack({3, 0, 4, 2}), others = pack({2, 1, 5, 0});
  f(causal{});
  f(causal{.align = alignment::top_left});
  f(window{.left = 2, .right = 0});
  f(window{.left = 1, .right = 2, .align = alignment::top_left});
  f(documents{.q_bounds = bounds, .k_bounds = others});
}
/// And for the others.
template <class F>
void for_many(F&& f) {
  static const std::vector<index_t> bounds = pack({3, 0, 4, 2}), others = pack({2, 1, 5, 0});
  for_kinds(f);
  f(teacher_forcing{.clean = 5, .block = 2});
  f(block_causal{.block = 3});
  f(first_keys{.count = 2});
  f(valid{.queries = 6, .keys = 7});
  f(within{documents{.q_bounds = bounds, .k_bounds = others}, causal{}});
}

template <class M>
index_t reached(const M& mask, interval q, index_t k_tokens) {
  std::vector<char> seen(static_cast<std::size_t>(k_tokens), 0);
  reach(mask, q, k_tokens, [&](interval keys) {
    for (index_t k = keys.lo; k < keys.hi; ++k) seen[static_cast<std::size_t>(k)] = 1;
  });
  index_t n = 0;
  for (const char c : seen) n += c;
  return n;
}

}  // namespace

TEST_CASE("all_of and any_of of two masks obey the laws, reach exact") {
  for_many([](const auto& a) {
    for_kinds([&](const auto& b) {
      holds(all_of{a, b});
      holds(any_of{a, b});
    });
  });
}

TEST_CASE("nested combinations obey the laws, reach exact") {
  static const std::vector<index_t> bounds = pack({4, 0, 5, 1});
  const documents docs{bounds};
  const first_keys sink{.count = 1};
  const window near_keys{.left = 1, .right = 0};
  const auto sinks = all_of{causal{}, any_of{sink, near_keys}};
  holds(sinks);
  holds(within{docs, sinks});
  holds(all_of{valid{.queries = 7, .keys = 8}, within{docs, sinks}});
  holds(all_of{valid{.keys = 6}, causal{}, window{.left = 3, .right = 2}});
  holds(all_of{any_of{sink, near_keys}, any_of{documents{bounds}, block_causal{.block = 2}}});
  holds(any_of{all_of{causal{}, docs}, all_of{sink, valid{.queries = 4, .keys = 3}}, near_keys});
  holds(all_of{sinks, any_of{sink, teacher_forcing{.clean = 4, .block = 2}}});
  holds(within{docs, any_of{sink, near_keys, window{.left = 0, .right = 1}}});
  holds(within{docs, any_of{sink, within{docs, causal{}}}});
  holds(all_of{prefix_lm{.prefix = 3}, window{.left = 1, .right = 3}, full{}});
  holds(all_of{teacher_forcing{.clean = 5, .block = 2}, teacher_forcing{.clean = 4, .block = 3}});
  holds(all_of{causal{}});
  holds(any_of{causal{}});
}

TEST_CASE("a single key that nobody asks for does not travel") {
  static const std::vector<index_t> q_bounds = pack({3, 0, 2}), k_bounds = pack({2, 1, 4});
  const documents docs{.q_bounds = q_bounds, .k_bounds = k_bounds};
  holds(all_of{docs, full{}});
  holds(all_of{within{docs, full{}}, full{}});
  holds(all_of{backwards{}, full{}});
  holds(all_of{backwards{}, causal{}});
  CHECK(reached(all_of{docs, full{}}, {0, 5}, 7) == 6);
  CHECK(reached(all_of{within{docs, full{}}, full{}}, {0, 5}, 7) == 6);
}

TEST_CASE("a combination of a bare functor keeps a reach that holds every key") {
  static const std::vector<index_t> bounds = pack({4, 0, 5, 1});
  const documents docs{bounds};
  const auto superset = reach_law::superset;
  holds(even_keys{}, superset);
  holds(even_keys_near{}, superset);
  holds(all_of{even_keys{}, causal{}}, superset);
  holds(all_of{even_keys{}, even_keys_near{}}, superset);
  holds(all_of{causal{}, even_keys_near{}, valid{.keys = 5}}, superset);
  holds(any_of{even_keys{}, window{.left = 0, .right = 0}}, superset);
  holds(within{docs, even_keys{}}, superset);
  holds(within{docs, all_of{causal{}, any_of{even_keys{}, first_keys{.count = 1}}}}, superset);
  CHECK(reached(even_keys{}, {2, 4}, 9) == 9);
  CHECK(reached(all_of{even_keys{}, causal{}}, {2, 4}, 9) == 4);
  CHECK(reached(all_of{even_keys{}, even_keys_near{}}, {4, 5}, 9) == 5);
  CHECK(reached(all_of{valid{.keys = 5}, even_keys_near{}}, {4, 5}, 9) == 3);
  CHECK(reached(within{docs, even_keys{}}, {4, 5}, 10) == 5);
}

TEST_CASE("key_intervals is there exactly when two are enough for every query of the type") {
  using sink = first_keys;
  static_assert(max_intervals_of<all_of<causal, window, valid>> == 1);
  static_assert(max_intervals_of<all_of<causal, any_of<sink, window>>> == 2);
  static_assert(max_intervals_of<any_of<sink, window, causal>> == 3);
  static_assert(max_intervals_of<all_of<teacher_forcing, any_of<sink, window>>> == 3);
  static_assert(max_intervals_of<within<any_of<sink, window>>> == 2);
  static_assert(interval_mask<all_of<causal, any_of<sink, window>>>);
  static_assert(interval_mask<within<all_of<causal, any_of<sink, window>>>>);
  static_assert(interval_mask<all_of<teacher_forcing, valid>>);
  static_assert(!interval_mask<any_of<teacher_forcing, sink>>);
  static_assert(!interval_mask<within<any_of<teacher_forcing, sink>>>);
  static_assert(listed_mask<within<any_of<teacher_forcing, sink>>>);
  static_assert(!listed_mask<all_of<causal, even_keys>> && !listed_mask<any_of<causal, even_keys>>);
  static_assert(!listed_mask<within<even_keys>> && !interval_mask<within<even_keys>>);
}

TEST_CASE("beyond two intervals a combination answers for the queries that fit") {
  const auto mask =
      any_of{first_keys{.count = 1}, window{.left = 0, .right = 0}, teacher_forcing{.clean = 6, .block = 2}};
  CHECK(try_key_intervals(mask, 3) == interval_pair{{0, 4}, {}});
  CHECK(mask.try_key_intervals(9) == interval_pair{{0, 2}, {8, 10}});
  const auto scattered = any_of{first_keys{.count = 1}, window{.left = 0, .right = 0}, all_of{first_keys{.count = 4}}};
  CHECK(try_key_intervals(scattered, 8) == interval_pair{{0, 4}, {8, 9}});
  const auto three = any_of{first_keys{.count = 1}, window{.left = 0, .right = 0}, shifted{}};
  CHECK(try_key_intervals(three, 0) == interval_pair{{0, 1}, {2, 3}});
  CHECK(try_key_intervals(three, 5) == std::nullopt);
  // What meets it may make it fit again: three intervals inside, two in the end.
  CHECK(try_key_intervals(all_of{causal{}, three}, 5) == interval_pair{{0, 1}, {5, 6}});
  CHECK(try_key_intervals(even_keys{}, 5) == std::nullopt);
  CHECK(try_key_intervals(causal{}, 5) == interval_pair{{0, 6}, {}});
}

TEST_CASE("covers tells apart what lies between sinks and window") {
  const auto mask = all_of{causal{}, any_of{first_keys{.count = 4}, window{.left = 7, .right = 0}}};
  CHECK(mask.covers({64, 68}, {0, 4}) == cover::all);
  CHECK(mask.covers({64, 68}, {4, 57}) == cover::none);
  CHECK(mask.covers({64, 68}, {61, 64}) == cover::all);
  CHECK(mask.covers({64, 68}, {56, 60}) == cover::some);
  CHECK(mask.covers({64, 68}, {68, 80}) == cover::none);
}

TEST_CASE("reach of a long span comes in few pieces, exact at 2^40 positions") {
  constexpr index_t n = index_t{1} << 40;
  const auto pieces = [](const auto& mask, interval q) {
    std::vector<interval> out;
    reach(mask, q, n, [&](interval keys) { out.push_back(keys); });
    return out;
  };
  const auto mask = all_of{causal{}, any_of{first_keys{.count = 4}, window{.left = 1023, .right = 0}}};
  CHECK(pieces(mask, {n - 65536, n}) == std::vector<interval>{{0, 4}, {n - 65536 - 1023, n}});
  CHECK(pieces(all_of{valid{.keys = n / 2}, causal{}}, {0, n}) == std::vector<interval>{{0, n / 2}});
  CHECK(pieces(teacher_forcing{.clean = n / 2, .block = 880}, {n / 2 + 880, n / 2 + 1760}) ==
        std::vector<interval>{{0, 880}, {n / 2 + 880, n / 2 + 1760}});
}

TEST_CASE("bound, rebound and problem reach every part of a combination") {
  const auto mask = all_of{causal{}, any_of{window{.left = 0, .right = 0}, first_keys{.count = 1}}};
  const auto longer = bound(mask, 2, 5);
  CHECK(longer.key_intervals(0) == interval_pair{{0, 1}, {3, 4}});
  CHECK(longer ==
        all_of{causal{}.bound(2, 5), any_of{window{.left = 0, .right = 0}.bound(2, 5), first_keys{.count = 1}}});
  CHECK_FALSE(longer == mask);

  std::vector<index_t> bounds = pack({2, 3});
  const std::vector<index_t> copy = bounds;
  const auto keep = [&](std::span<const index_t>) { return std::span<const index_t>(copy); };
  const auto kept = rebound(any_of{all_of{documents{bounds}, causal{}}, first_keys{.count = 1}}, keep);
  bounds.assign(bounds.size(), 0);
  CHECK(kept.key_intervals(3) == interval_pair{{0, 1}, {2, 4}});

  CHECK(problem_of(mask) == nullptr);
  const auto wrong = any_of{causal{}, all_of{full{}, window{.left = -1, .right = 0}}};
  CHECK(std::string(problem_of(wrong)).starts_with("window: "));
}
