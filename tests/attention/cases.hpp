// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the attention tests share: one case run on every mesh, schedule and layout, against the definition and the
// published sums.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>
#include <tests/support/attention_apart.hpp>

namespace seqpar::test {

/// wsum of O, Σ of finite lse, wsum of dQ, dK, dV, in fp64.
struct golden {
  double out, lse, dq, dk, dv;
};

/// Deals tokens over ranks.
using deal = any_layout (*)(index_t tokens, int ranks);
inline any_layout contiguously(index_t tokens, int ranks) {
  return any_layout(contiguous{.tokens = tokens, .ranks = ranks}, "contiguous");
}
inline any_layout in_zigzag(index_t tokens, int ranks) {
  return any_layout(zigzag{.tokens = tokens, .ranks = ranks}, "zigzag");
}
inline any_layout in_stripes(index_t tokens, int ranks) {
  return any_layout(striped{.tokens = tokens, .ranks = ranks}, "striped");
}
/// Position i stands where n − 1 − i would.
struct mirrored {
  index_t tokens;
  constexpr index_t from(index_t i) const { return tokens - 1 - i; }
  constexpr index_t to(index_t i) const { return tokens - 1 - i; }
  friend constexpr bool operator==(mirrored, mirrored) = default;
};
inline any_layout backwards(index_t tokens, int ranks) {
  return any_layout(reordered{mirrored{tokens}, contiguous{.tokens = tokens, .ranks = ranks}}, "backwards");
}
inline any_layout all_to_the_first(index_t tokens, int ranks) {
  return any_layout(contiguous{.tokens = tokens, .ranks = ranks, .granule = std::max<index_t>(tokens, 1)}, "first");
}
inline const std::vector<deal> every_deal{contiguously, in_zigzag, in_stripes};

/// Every mesh of P ranks: ring, all-to-all, and R × U in both placements.
inline std::vector<mesh_shape> every_mesh(int ranks) {
  std::vector<mesh_shape> meshes;
  for (int u = 1; u <= ranks; ++u) {
    if (ranks % u != 0) continue;
    meshes.push_back({.ring = ranks / u, .all_to_all = u});
    if (u > 1 && u < ranks) meshes.push_back({.ring = ranks / u, .all_to_all = u, .inside = axis::ring});
  }
  return meshes;
}
inline std::vector<mesh_shape> only_ring(int ranks) {
  return {{.ring = ranks, .all_to_all = 1}};
}
inline std::vector<mesh_shape> only_all_to_all(int ranks) {
  return {{.ring = 1, .all_to_all = ranks}};
}
inline const std::vector<schedule> every_schedule{schedule::direct, schedule::pass_along, schedule::all_gather,
                                                  schedule::double_ring};
/// Windows of half a ring, or of one member where it has no half.
inline index_t window_of(index_t ring) {
  return ring % 2 == 0 ? ring / 2 : 1;
}

inline std::string name_of(const problem& p) {
  const auto n = [](index_t x) { return std::to_string(x); };
  std::string s = p.q_layout.name() + " of " + n(p.q_layout.token_count()) + " queries, " +
                  n(p.kv_layout.token_count()) + " keys (" + p.kv_layout.name() + "), " + p.mask.name() + ", ring " +
                  n(p.team.ring) + " x all-to-all " + n(p.team.all_to_all);
  s += p.team.inside == axis::ring ? " (ring inside), " : ", ";
  constexpr const char* schedules[] = {"direct, ", "pass_along, ", "all_gather, ", "double_ring, "};
  s += schedules[static_cast<std::size_t>(p.options.schedule)];
  constexpr const char* sides[] = {"keys", "queries", "the cheaper"};
  s += std::string(sides[static_cast<std::size_t>(p.options.moves.forward)]) + "/" +
       sides[static_cast<std::size_t>(p.options.moves.backward)] + " move, ";
  s += p.options.reuse == reuse::saved ? "saved" : "resend";
  return s + ", heads " + n(p.shape.heads) + "/" + n(p.shape.kv_heads) + ", dim " + n(p.shape.head_dim) + "/" +
         n(p.shape.v_dim()) + ", batch " + n(p.shape.batch);
}

/// A sequence, a mask and a shape; the rest is varied.
struct attention_case {
  index_t tokens;
  attention_shape shape;
  any_mask mask;
  std::optional<golden> sums = {};
  std::optional<index_t> kv_tokens = {};  ///< unset: as many as queries
  std::vector<int> ranks = {1, 2, 3, 4};
  std::vector<deal> deals = every_deal;
  deal kv_deal = nullptr;  ///< null: as the queries
  std::vector<mesh_shape> (*meshes)(int ranks) = every_mesh;
  attention_options options = {.passes = forward_backward};
  bool with_dlse = false;
  std::optional<tensors> inputs = {};  ///< unset: the recipe's
  strides memory = strides::dense;
  double sums_within = 2e-5;
  double widened = 1;  ///< times the bound of lse, for inputs whose roundings all go one way

  problem at(deal d, int ranks_now, mesh_shape team, schedule s) const {
    problem p{d(tokens, ranks_now),
              (kv_deal ? kv_deal : d)(kv_tokens.value_or(tokens), ranks_now),
              mask,
              shape,
              team,
              options,
              memory};
    p.options.schedule = s;
    p.options.window = window_of(p.team.ring);
    p.with_dlse = with_dlse;
    return p;
  }
};

/// What is wrong with the sums, or "".
template <class Outcome>
std::string sums_fault(const Outcome& got, const golden& want, double within) {
  const auto wrong = [&](const char* name, double x, double y) {
    return std::abs(x - y) <= within
               ? std::string()
               : std::string("sum of ") + name + " is " + std::to_string(x) + ", published " + std::to_string(y) + "; ";
  };
  return wrong("out", wsum(got.out), want.out) + wrong("lse", sum_of_finite(got.lse), want.lse) +
         wrong("dq", wsum(got.dq), want.dq) + wrong("dk", wsum(got.dk), want.dk) + wrong("dv", wsum(got.dv), want.dv);
}

/// Runs; a thrown error is a fault like any other. `see(p, outcome)` may look at what came out.
template <class T, class See>
std::string fault_when_run(const problem& p, const tensors& in, const dense_result& want, See&& see) {
  try {
    const outcome<T> got = run_problem<T>(p, in);
    std::string fault = fault_of(p, got, want);
    if (fault.empty()) fault = see(p, got);
    return fault;
  } catch (const std::exception& e) {
    return std::string("threw ") + e.what();
  }
}

template <class T>
std::string see_nothing(const problem&, const outcome<T>&) {
  return "";
}

/// Runs the case on every number of ranks, deal and mesh, direct and passed along, on rings by every schedule. The
/// definition must have the published sums, and every run must agree with the definition element by element, and have
/// the sums and the bytes.
template <class T = float, class See>
void check_everywhere(const attention_case& c, See&& see) {
  const problem first = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  const tensors in = c.inputs ? *c.inputs : recipe_tensors(first);
  const auto defined = [&](const problem& p) {
    dense_result want = definition<T>(p, in);
    for (double& m : want.lse_magnitude) m *= c.widened;
    return want;
  };
  dense_result want = defined(first);
  if (c.sums) {
    const std::string fault = sums_fault(want, *c.sums, std::min(c.sums_within, 1e-7 * c.sums_within / 2e-5));
    CHECK_MESSAGE(fault.empty(), "the definition of " << name_of(first) << ": " << fault);
  }
  for (const int ranks : c.ranks) {
    if (c.options.gradients == write::add)  // what was there before is added once a rank
      want = defined(c.at(contiguously, ranks, {.ring = ranks, .all_to_all = 1}, schedule::direct));
    for (const deal d : c.deals)
      for (const mesh_shape& team : c.meshes(ranks))
        for (const schedule s : every_schedule) {
          if (team.ring == 1 && s != schedule::direct) continue;
          // The sweep draws the others everywhere; here they are met once.
          const bool usual = s == schedule::direct || s == schedule::pass_along;
          if (!usual && (d != c.deals.front() || team.ring < ranks)) continue;
          const problem p = c.at(d, ranks, team, s);
          const std::string fault = fault_when_run<T>(p, in, want, [&](const problem& q, const outcome<T>& got) {
            std::string more = c.sums ? sums_fault(got, *c.sums, c.sums_within) : std::string();
            return more.empty() ? see(q, got) : more;
          });
          CHECK_MESSAGE(fault.empty(), name_of(p) << ": " << fault);
        }
  }
}
template <class T = float>
void check_everywhere(const attention_case& c) {
  check_everywhere<T>(c, see_nothing<T>);
}

/// Rows `first` … of a tensor [batch][tokens][columns] as flat values, of batch item 0.
template <class T>
std::vector<T> rows_of(const std::vector<T>& x, index_t columns, index_t first, index_t count) {
  return {x.begin() + first * columns, x.begin() + (first + count) * columns};
}

/// Compares with a few literal numbers, "" if they come within the bound of the case files.
template <class T>
std::string literal_fault(const std::vector<T>& got, const std::vector<double>& want) {
  const verdict v = compare_case(got, want);
  if (v) return "";
  std::ostringstream text;
  text << v;
  return text.str();
}

/// Is every one of these elements exactly `value`?
template <class Range>
bool all_are(const Range& x, double value) {
  for (const auto& e : x)
    if (!(static_cast<double>(e) == value)) return false;
  return true;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
/// Every result of both passes, bit for bit.
template <class T>
bool same_bits(const outcome<T>& a, const outcome<T>& b) {
  return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) &&
         same_bits(a.dv, b.dv);
}

inline const any_mask see_all{full{}, "full"};
inline const any_mask see_past{causal{}, "causal"};

}  // namespace seqpar::test
