// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The side that a plan lets travel, beside a count of every query and key.
#include <doctest/doctest.h>

#include <string>

#include <seqpar/attention/planning.hpp>
#include <seqpar/seqpar.hpp>
#include <tests/support/any.hpp>

namespace seqpar::test {
namespace {

/// In turns, each rank's last row first.
struct turned : striped {
  index_t global_of(int rank, index_t i) const { return striped::global_of(rank, count_of(rank) - 1 - i); }
  place place_of(index_t g) const {
    const place p = striped::place_of(g);
    return {p.rank, count_of(p.rank) - 1 - p.local};
  }
  template <class F>
  void for_each_run(int rank, F&& f) const {
    striped::for_each_run(rank, [&](run r) { f(run{r.at(r.count - 1), r.count, -r.step}); });
  }
};

/// Masks that say intervals and nothing else: of steady reach; jumping far; seldom anything.
struct own_past {
  interval_pair key_intervals(index_t q) const { return make_intervals({0, q - q % 3 + 1}); }
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
};
struct own_jumps {
  interval_pair key_intervals(index_t q) const {
    if (q % 4 == 1) return {{q / 2, q / 2 + 1000}, {q - 3, q}};
    const index_t at = q * 7919 % 1999;
    return {{at, at + q % 5}, {q % 64 - 8, q % 64}};
  }
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
};
struct own_seldom {
  interval_pair key_intervals(index_t q) const {
    return q % 97 == 3 ? make_intervals({q - 40, q - 38}) : interval_pair{};
  }
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
};
/// Is only asked: may see everything for all that the plan knows.
struct functor {
  bool allows(index_t q, index_t k) const { return k * k <= q; }
};

struct counts {
  index_t keys = 0, queries = 0;
};
template <class M>
counts counted(const any_layout& q_layout, const any_layout& kv_layout, const M& mask, index_t joint) {
  const int ranks = q_layout.rank_count();
  const index_t keys = kv_layout.token_count();
  std::vector<int> owner(static_cast<std::size_t>(keys));
  for (index_t k = 0; k < keys; ++k) owner[static_cast<std::size_t>(k)] = kv_layout.place_of(k).rank;
  std::vector<char> wanted(static_cast<std::size_t>(keys * ranks));
  counts n;
  for (index_t q = 0; q < q_layout.token_count(); ++q) {
    const int at = q_layout.place_of(q).rank;
    std::vector<char> visits(static_cast<std::size_t>(ranks));
    for (index_t k = 0; k < keys; ++k) {
      const int of = owner[static_cast<std::size_t>(k)];
      if (of == at || !(std::is_same_v<M, functor> || mask.allows(q, k + joint))) continue;
      visits[static_cast<std::size_t>(of)] = 1;
      wanted[static_cast<std::size_t>(k * ranks + at)] = 1;
    }
    for (char v : visits) n.queries += v;
  }
  for (char w : wanted) n.keys += w;
  return n;
}

struct seen_sides {
  int keys = 0, queries = 0;
};
template <class M>
void check(const any_layout& q_layout, const any_layout& kv_layout, const M& unbound, seen_sides& seen,
           index_t joint = 0) {
  const int ranks = q_layout.rank_count();
  const auto mask = bound(unbound, q_layout.token_count(), kv_layout.token_count() + joint);
  const counts n = counted(q_layout, kv_layout, mask, joint);
  const detail::layout_rows q_rows(q_layout), kv_rows(kv_layout);
  CAPTURE(q_layout.name());
  CAPTURE(kv_layout.name());
  const attention_options options{.passes = forward_backward, .moves = {side::cheaper, side::cheaper}};
  for (const index_t kv_heads : {1, 2, 6}) {
    const attention_shape shape{.heads = 6,
                                .kv_heads = kv_heads,
                                .head_dim = 8,
                                .value_dim = 4,
                                .joint_kv = joint,
                                .joint_at = joint_place::front};
    for (const int me : {0, ranks - 1}) {
      const detail::attention_setup s = planning_apart<>::setup({{.ring = ranks, .all_to_all = 1},
                                                                 me,
                                                                 q_rows,
                                                                 kv_rows,
                                                                 mask,
                                                                 shape,
                                                                 options,
                                                                 2,
                                                                 {.query_tile = 64, .key_tile = 64}});
      // 16 bits but for sums, the state and dq: k, v | k, v, dk, dv; q, acc, max, sum | q, dout, lse, delta, dq
      const index_t sight = s.intervals ? 16 : 4;
      const index_t of_keys[2] = {n.keys * kv_heads * 12 * 2, n.keys * kv_heads * 12 * 6};
      const index_t of_queries[2] = {n.queries * (6 * (8 * 2 + 6 * 4) + sight),
                                     n.queries * (6 * (12 * 2 + 10 * 4) + sight)};
      const side chosen[2] = {s.moves.forward, s.moves.backward};
      for (int pass = 0; pass < 2; ++pass) {
        CHECK(chosen[pass] == (of_queries[pass] < of_keys[pass] ? side::queries : side::keys));
        ++(chosen[pass] == side::keys ? seen.keys : seen.queries);
      }
      const bool both_queries = chosen[0] == side::queries && chosen[1] == side::queries;
      const bool both_keys = chosen[0] == side::keys && chosen[1] == side::keys;
      CHECK(s.rounds.all_rows == (both_queries ? 0 : n.keys));
      CHECK(s.visits.all_rows == (both_keys ? 0 : n.queries));
    }
  }
}

}  // namespace

TEST_CASE("the side that travels is that of fewer bytes by a count of all queries and keys, on every rank") {
  const std::vector<index_t> bounds = pack({200, 3, 0, 500, 1300});
  const any_layout layouts[] = {any_layout(striped{.tokens = 2003, .ranks = 5}, "in turns"),
                                any_layout(turned{{.tokens = 1999, .ranks = 4}}, "in turns, backwards"),
                                any_layout(striped{.tokens = 1009, .ranks = 7, .granule = 3}, "threes in turns"),
                                any_layout(zigzag{.tokens = 2003, .ranks = 5}, "zigzag"),
                                any_layout(contiguous{.tokens = 3, .ranks = 5}, "empty ranks"),
                                any_layout(zigzag{.tokens = 0, .ranks = 3}, "empty")};
  seen_sides seen;
  for (const any_layout& l : layouts) {
    check(l, l, any_mask(window{.left = 3, .right = 0}), seen);
    check(l, l, any_mask(causal{}), seen);
    check(l, l, own_past{}, seen);
    check(l, l, own_jumps{}, seen);
    check(l, l, own_seldom{}, seen);
    check(l, l, functor{}, seen);
  }
  check(layouts[0], layouts[3], own_jumps{}, seen, 70);
  check(layouts[3], layouts[0], own_past{}, seen, 3);
  check(layouts[4], layouts[0], any_mask(causal{}), seen);
  check(layouts[0], layouts[4], own_past{}, seen);
  check(layouts[0], layouts[0], any_mask(within{documents{bounds}, causal{}}), seen);
  check(layouts[3], layouts[0], any_mask(any_of{first_keys{2}, all_of{causal{}, window{.left = 1, .right = 0}}}), seen,
        3);
  CHECK(seen.keys > 40);
  CHECK(seen.queries > 40);
}

}  // namespace seqpar::test
