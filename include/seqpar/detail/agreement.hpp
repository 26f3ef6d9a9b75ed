// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Do all ranks plan the same call? Named integers are gathered and compared, so that a mismatch is one error on all.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/error.hpp>
#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/detail/runs.hpp>
#include <seqpar/mask/detail/mask_view.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Whether prepare compares what the ranks gave. Independent of NDEBUG.
enum class agreement { checked, trusted };

namespace detail {

/// A number for each element type.
template <class T>
constexpr index_t type_code() {
  if constexpr (std::integral<T>) return index_t{16 + 2 * sizeof(T) + (std::signed_integral<T> ? 1 : 0)};
  return std::same_as<T, float> ? 1 : std::same_as<T, float16> ? 2 : std::same_as<T, bfloat16> ? 3 : 4;
}

/// What one rank says of a call: names are literals, values integers or behavioural hashes; never bytes of objects.
class statement {
 public:
  explicit statement(const char* operation) : operation_(operation) { add_hash("the operation", hash(operation)); }
  void add(const char* name, index_t value) { items_.push_back({name, value, false}); }
  /// A value that says nothing to a reader: a hash, or bits.
  void add_hash(const char* name, index_t value) { items_.push_back({name, value, true}); }
  const char* operation() const { return operation_; }
  struct item {
    const char* name;
    index_t value;
    bool opaque;
  };
  const std::vector<item>& items() const { return items_; }
  /// The number by which all ranks know this plan since they agreed; 0 before.
  index_t plan() const { return plan_; }
  void plan(index_t number) { plan_ = number; }

  static constexpr std::uint64_t mix(std::uint64_t h, index_t value) {
    h ^= static_cast<std::uint64_t>(value) + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2);
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 29);
  }
  static constexpr std::uint64_t mix_run(std::uint64_t h, const run& rows) {
    return mix(mix(mix(h, rows.first), rows.count), rows.step);
  }
  static constexpr index_t hash(const char* text) {
    std::uint64_t h = 1;
    for (; *text; ++text) h = mix(h, *text);
    return static_cast<index_t>(h >> 1);
  }
  /// What a layout does: all its runs, joined.
  template <sequence_layout L>
  static index_t hash_of_layout(const L& layout) {
    std::uint64_t h = mix(7, layout.token_count());
    for (int r = 0; r < layout.rank_count(); ++r) {
      const auto take = [&](run rows) { h = mix_run(h, rows); };
      run_joiner joined(take);
      for_each_run(layout, r, joined);
      joined.finish();
      h = mix(h, r);
    }
    return static_cast<index_t>(h >> 1);
  }
  template <class = when_used>
  static index_t hash_of_layout(const layout_rows& layout) {
    std::uint64_t h = mix(7, layout.tokens);
    index_t rank = 0;
    for (const std::vector<run>& list : layout.of_rank) {
      for (const run& rows : list) h = mix_run(h, rows);
      h = mix(h, rank++);
    }
    return static_cast<index_t>(h >> 1);
  }
  /// What a mask does: its answers at 1024 pairs of positions, and all keys of those queries where it can tell.
  template <class = when_used>
  static index_t hash_of_mask(const mask_view& mask, index_t q_tokens, index_t k_tokens) {
    std::uint64_t h = 11, draw = 1;
    if (q_tokens <= 0 || k_tokens <= 0) return 11;
    for (int i = 0; i < 1024; ++i) {
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      const index_t q = static_cast<index_t>((draw >> 33) % static_cast<std::uint64_t>(q_tokens));
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      const index_t k = static_cast<index_t>((draw >> 33) % static_cast<std::uint64_t>(k_tokens));
      h = mix(h, mask.allows(q, k) ? 1 : 0);
      if (interval_pair keys; mask.key_intervals(q, keys))
        for (interval part : {keys.first, keys.second})
          if (const interval seen = intersection(part, {0, k_tokens}); !seen.empty()) h = mix(mix(h, seen.lo), seen.hi);
    }
    return static_cast<index_t>(h >> 1);
  }

 private:
  const char* operation_;
  std::vector<item> items_;
  index_t plan_ = 0;
};

/// What the agreement's own messages carry: plans have odd numbers.
inline constexpr index_t of_no_plan = 2;
/// Unlike what was drawn before, in all likelihood; never 0.
inline index_t fresh_number(const void* here) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const auto place = static_cast<index_t>(reinterpret_cast<std::intptr_t>(here));
  return static_cast<index_t>(statement::mix(statement::mix(5, static_cast<index_t>(now)), place) >> 1 | 1);
}

template <class = when_used>
std::string list_of(const std::vector<int>& ranks) {
  std::string s = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) s += ',';
    word(ranks[i]).write_to(s);
  }
  return s;
}

/// What a transport says of its last failure, where it says something.
template <class Transport>
std::string report_of(const Transport& t) {
  if constexpr (requires { std::string(t.report()); })
    return t.report();
  else
    return {};
}

/// What a status means, with the transport's report: the words of the rank that failed.
template <class = when_used>
error told(const status& s, const std::string& report) {
  return report.empty() ? error(s) : error(s.code(), sentence({s.message().substr(9), ": ", report}));
}

/// What the ranks of a mesh say of one call, in ascending order of their ranks on the transport, whatever order a
/// member believes in.
struct records {
  static constexpr std::size_t slots = 31;
  using record = std::array<index_t, slots + 1>;  // the last is a number for the plan
  std::vector<int> ranks;
  std::vector<record> all;
  std::size_t own;
};

/// Room for all, with what this rank says filled in.
template <class = when_used>
records records_with(const statement& mine, const std::vector<int>& ranks, int me) {
  // quadratic, as comparing is, and less to compile than a sort
  const auto place_of = [&](int rank) {
    return static_cast<std::size_t>(std::count_if(ranks.begin(), ranks.end(), [&](int r) { return r < rank; }));
  };
  records said{ranks, std::vector<records::record>(ranks.size()), place_of(me)};
  for (int rank : ranks) said.ranks[place_of(rank)] = rank;
  records::record& own = said.all[said.own];
  for (std::size_t i = 0; i < mine.items().size() && i < records::slots; ++i) own[i] = mine.items()[i].value;
  own[records::slots] = fresh_number(&own);
  return said;
}

/// The first item on which the records differ. Numbers the plan by what its lowest rank drew if there is none.
template <class = when_used>
failure compare(const records& said, statement& mine) {
  const auto& [ranks, all, own] = said;
  const int size = static_cast<int>(ranks.size());
  for (std::size_t i = 0; i < mine.items().size() && i < records::slots; ++i) {
    index_t expected = all[0][i];
    int most = 0;
    for (const records::record& r : all) {
      int same = 0;
      for (const records::record& o : all) same += o[i] == r[i];
      if (same > most) most = same, expected = r[i];
    }
    if (most == size) continue;
    std::vector<int> agreeing, other;
    index_t got = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      const index_t v = all[r][i];
      if (v == expected)
        agreeing.push_back(ranks[r]);
      else if (other.empty() || v == got)
        other.push_back(ranks[r]), got = v;
    }
    if (mine.items()[i].opaque)
      return error(errc::ranks_disagree,
                   sentence({mine.operation(), ": ranks disagree on ", mine.items()[i].name, ": ", list_of(agreeing),
                             " of ", size, " against ", list_of(other), "; give every rank the same"}));
    return error(errc::ranks_disagree, sentence({mine.operation(), ": ranks disagree on ", mine.items()[i].name,
                                                 ": expected ", expected, " (", list_of(agreeing), " of ", size,
                                                 "), got ", got, " (", list_of(other), "); give every rank the same"}));
  }
  mine.plan(all[0][records::slots]);
  return {};
}

/// Compares the statements of all members; the same answer on each. Allocates; collective over the team.
template <class Mesh>
failure agree(const Mesh& team, statement& mine) {
  constexpr on_host exec{};
  const auto& transport = team.transport();
  records said = records_with(mine, team.ranks(), transport.rank());
  auto group = transport.group();
  group.reserve(team.size(), team.size());
  group.label({"agreement", 0, of_no_plan});
  const auto trade = [&](std::size_t bytes) {
    for (std::size_t i = 0; i < said.all.size(); ++i) {
      if (i == said.own) continue;
      group.send(dense_block(said.all[said.own].data(), static_cast<index_t>(bytes)), said.ranks[i]);
      group.recv(dense_block(said.all[i].data(), static_cast<index_t>(bytes)), said.ranks[i]);
    }
    const status s = transport.launch(group, exec);
    return s.ok() ? transport.wait(group, exec) : s;
  };
  if (const status s = trade(sizeof(records::record)); !s.ok()) return told(s, report_of(transport));
  // Nobody leaves before all have all records, so that what is wrong is told alike on every rank. What fails from here
  // on belongs to what comes next.
  group.clear();
  (void)trade(sizeof(index_t));
  return compare(said, mine);
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
