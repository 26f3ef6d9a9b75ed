// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <string>

#include <seqpar/attention/state.hpp>
#include <seqpar/kernel/rectangles.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>
#include <tests/kernel/harness.hpp>
#include <tests/support/any.hpp>

using namespace seqpar;
using namespace seqpar::test;

namespace {

using form = rectangle::form;
constexpr std::int32_t open_end = rectangle::open;
constexpr index_t many = index_t{1} << 40;

std::vector<index_t> spelled(const runs& rows) {
  std::vector<index_t> positions;
  for (const run& r : rows)
    for (index_t i = 0; i < r.count; ++i) positions.push_back(r.at(i));
  return positions;
}

index_t random(int& state, index_t below) {
  return static_cast<index_t>((static_cast<double>(recipe(78, state++)) + 1) / 2 * static_cast<double>(below));
}

template <class F>
std::optional<std::vector<rectangle>> found(const runs& q, const runs& k, F&& intervals_of, index_t k_tokens,
                                            index_t most = many) {
  return rectangles(lower_intervals(q, intervals_of, k_tokens, 64).table(), k, most);
}
template <class M>
std::vector<rectangle> of_mask(const M& mask, const runs& q, const runs& k, index_t tokens) {
  const M told = bound(mask, tokens, tokens);
  return found(
             q, k, [&](index_t p) { return *try_key_intervals(told, p); }, tokens)
      .value();
}

/// Every pair of rows is in one rectangle if the intervals hold it, else in none; no rectangle is larger than what it
/// sees; kinds and bounds keep their promises.
template <class F>
void check_exact(const std::vector<rectangle>& list, const runs& q, const runs& k, F&& intervals_of) {
  const std::vector<index_t> queries = spelled(q), keys = spelled(k);
  std::vector<int> times(queries.size() * keys.size());
  for (const rectangle& r : list) {
    REQUIRE((r.q_rows > 0 && r.k_rows > 0 && r.left >= 0 && r.right >= 0));
    const rectangle::band low = r.from_bottom_right();
    REQUIRE((low.left >= 0 && low.right >= 0));
    REQUIRE((r.kind() == form::full) == (r.left == open_end && r.right == open_end));
    REQUIRE((r.kind() == form::window) == (r.left != open_end));
    std::vector<bool> row_used(static_cast<std::size_t>(r.q_rows)), key_used(static_cast<std::size_t>(r.k_rows));
    for (std::int32_t i = 0; i < r.q_rows; ++i)
      for (std::int32_t j = 0; j < r.k_rows; ++j) {
        const std::int32_t from_corner = j - i - (r.k_rows - r.q_rows);
        REQUIRE(r.sees(i, j) == ((low.left == open_end || -from_corner <= low.left) &&
                                 (low.right == open_end || from_corner <= low.right)));
        if (!r.sees(i, j)) continue;
        ++times[static_cast<std::size_t>(r.q + i) * keys.size() + static_cast<std::size_t>(r.k + j)];
        row_used[static_cast<std::size_t>(i)] = key_used[static_cast<std::size_t>(j)] = true;
      }
    REQUIRE(std::find(row_used.begin(), row_used.end(), false) == row_used.end());
    REQUIRE(std::find(key_used.begin(), key_used.end(), false) == key_used.end());
  }
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const interval_pair seen = intervals_of(queries[i]);
    for (std::size_t j = 0; j < keys.size(); ++j)
      REQUIRE(times[i * keys.size() + j] == (seen.contains(keys[j]) ? 1 : 0));
  }
}

/// Disjoint runs over some of the positions 0 … n−1, in any order and direction.
runs random_runs(int& state, index_t n) {
  runs rows;
  for (index_t at = 0; at < n;) {
    const index_t step = random(state, 3) == 0 ? 2 : 1, count = random(state, random(state, 2) ? 30 : 4);
    run r{at, count, step};
    if (count > 0 && r.at(count - 1) >= n) break;
    at += std::max<index_t>(1, count * step) + random(state, 3);
    if (random(state, 4) == 0 && count > 0) r = {r.at(count - 1), count, -step};
    rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(random(state, static_cast<index_t>(rows.size()) + 1)), r);
  }
  return rows;
}

template <class L>
runs rows_of(const L& layout, int rank) {
  runs rows;
  for_each_run(layout, rank, [&](run r) { rows.push_back(r); });
  return rows;
}
/// As rows arrive from the members of a group, one after another.
template <class L>
runs gathered(const L& layout, int first, int last) {
  runs rows;
  for (int r = first; r < last; ++r)
    for (const run& x : rows_of(layout, r)) rows.push_back(x);
  return rows;
}

std::vector<any_mask> shipped_masks(index_t tokens, const std::vector<index_t>& bounds) {
  std::vector<any_mask> list;
  const auto add = [&](const char* name, const auto& m) { list.emplace_back(bound(m, tokens, tokens), name); };
  add("full", full{});
  add("causal", causal{});
  add("window", window{.left = 5, .right = 0});
  add("both ways", window{.left = 4, .right = 3});
  add("block causal", block_causal{.block = 7});
  add("teacher forcing", teacher_forcing{.clean = tokens / 2, .block = 6});
  add("first keys", first_keys{.count = 9});
  add("prefix", prefix_lm{.prefix = 11});
  add("valid", valid{.keys = tokens - 5});
  add("documents", documents{bounds});
  add("causal in documents", seqpar::within{documents{bounds}, causal{}});
  add("window in documents", seqpar::within{documents{bounds}, window{.left = 3, .right = 0}});
  return list;
}

/// The inputs' rows `tokens` of a dense [1, n, heads, dim] tensor.
template <class T>
rows_view<const T> part(const rows_view<T>& all, std::int32_t first, std::int32_t count) {
  rows_view<const T> v = all;
  v.pointer += first * all.stride[1];
  v.shape[1] = count;
  return v;
}

}  // namespace

TEST_CASE("each pair of rows that the intervals allow is in one rectangle, and no other pair") {
  int state = 0;
  for (int problem = 0; problem < 300; ++problem) {
    const index_t n = 1 + random(state, 90);
    const runs q = random_runs(state, n), k = random_runs(state, n);
    const index_t kind = random(state, 4), shift = random(state, 9) - 4, width = random(state, 12);
    std::vector<interval_pair> any;  // intervals without any order
    for (index_t i = 0; i < n; ++i)
      any.push_back(make_intervals({random(state, n), random(state, n)}, {random(state, n), random(state, n)}));
    const auto intervals_of = [&](index_t p) {
      if (kind == 0) return any[static_cast<std::size_t>(p)];
      const interval band{kind == 1 ? 0 : p + shift - width, p + shift + 1};
      return make_intervals(intersection(band, {0, n}), kind == 3 ? interval{0, std::min(width, n)} : interval{});
    };
    const auto list = found(q, k, intervals_of, n);
    REQUIRE(list);
    check_exact(*list, q, k, intervals_of);
  }
}

TEST_CASE("rectangles are exact for every shipped mask, layout and pair of ranks") {
  const index_t tokens = 84;
  const std::vector<index_t> bounds = pack({13, 0, 29, 1, 41});
  const auto sweep = [&](const auto& layout) {
    for (const any_mask& mask : shipped_masks(tokens, bounds)) {
      CAPTURE(mask.name());
      const auto intervals_of = [&](index_t p) { return *mask.try_key_intervals(p); };
      for (int a = 0; a < layout.rank_count(); ++a)
        for (int b = 0; b < layout.rank_count(); ++b) {
          const runs q = rows_of(layout, a), k = rows_of(layout, b);
          check_exact(found(q, k, intervals_of, tokens).value(), q, k, intervals_of);
        }
      const runs q = gathered(layout, 0, layout.rank_count());
      check_exact(found(q, q, intervals_of, tokens).value(), q, q, intervals_of);
    }
  };
  sweep(contiguous{.tokens = tokens, .ranks = 3});
  sweep(zigzag{.tokens = tokens, .ranks = 3});
  sweep(striped{.tokens = tokens, .ranks = 3});
  sweep(striped{.tokens = tokens, .ranks = 3, .granule = 5});
  sweep(paired<zigzag>{zigzag{.tokens = tokens / 2, .ranks = 2}});
}

TEST_CASE("well-known blocks need no more rectangles than they must") {
  const index_t n = 64;
  const runs all{{0, n, 1}};
  CHECK(of_mask(full{}, all, all, n) == std::vector<rectangle>{{0, 64, 0, 64}});
  CHECK(of_mask(causal{}, all, all, n) == std::vector<rectangle>{{0, 64, 0, 64, open_end, 0}});
  CHECK(of_mask(window{.left = 5, .right = 2}, all, all, n) == std::vector<rectangle>{{0, 64, 0, 64, 5, 2}});

  const zigzag dealt{.tokens = n, .ranks = 4};  // rank r: pieces r and 7 − r of 8 rows
  const runs first = rows_of(dealt, 0), second = rows_of(dealt, 1);
  SUBCASE("a zigzag rank's own block is one causal rectangle, others are full") {
    CHECK(of_mask(causal{}, first, first, n) == std::vector<rectangle>{{0, 16, 0, 16, open_end, 0}});
    CHECK(of_mask(causal{}, first, second, n) == std::vector<rectangle>{{8, 8, 0, 16}});
    CHECK(of_mask(causal{}, second, first, n) == std::vector<rectangle>{{0, 16, 0, 8}});
  }
  SUBCASE("rows of a later rank: the diagonal starts past its keys") {
    const runs late{{32, 16, 1}}, keys{{16, 32, 1}};
    const auto list = of_mask(causal{}, late, keys, n);
    CHECK(list == std::vector<rectangle>{{0, 16, 0, 32, open_end, 16}});
    CHECK(list[0].kind() == form::causal);
    CHECK(list[0].from_bottom_right() == rectangle::band{open_end, 0});
  }
  SUBCASE("two gathered zigzag ranks") {
    // Rows arrive as pieces 0 3 1 2: 0 and 3 are causal, 3 sees 1 and 2; 1 and 2 see 0 and are causal.
    const runs both = gathered(zigzag{.tokens = n, .ranks = 2}, 0, 2);
    CHECK(of_mask(causal{}, both, both, n) ==
          std::vector<rectangle>{
              {0, 32, 0, 32, open_end, 0}, {16, 16, 32, 32}, {32, 32, 0, 16}, {32, 32, 32, 32, open_end, 0}});
  }
  SUBCASE("striped rows are causal among themselves") {
    const striped stripes{.tokens = n, .ranks = 4};
    CHECK(of_mask(causal{}, rows_of(stripes, 1), rows_of(stripes, 2), n) ==
          std::vector<rectangle>{{1, 15, 0, 15, open_end, 0}});
    CHECK(of_mask(causal{}, rows_of(stripes, 2), rows_of(stripes, 1), n) ==
          std::vector<rectangle>{{0, 16, 0, 16, open_end, 0}});
  }
  SUBCASE("one for each document") {
    const std::vector<index_t> bounds = pack({20, 7, 37});
    CHECK(of_mask(seqpar::within{documents{bounds}, causal{}}, all, all, n) ==
          std::vector<rectangle>{
              {0, 20, 0, 20, open_end, 0}, {20, 7, 20, 7, open_end, 0}, {27, 37, 27, 37, open_end, 0}});
  }
  SUBCASE("a prefix: full, then causal with the diagonal past it") {
    CHECK(of_mask(prefix_lm{.prefix = 10}, all, all, n) ==
          std::vector<rectangle>{{0, 10, 0, 10}, {10, 54, 0, 64, open_end, 10}});
  }
  SUBCASE("teacher forcing: a clean block on clean, a noisy one on clean and on itself") {
    CHECK(of_mask(teacher_forcing{.clean = 32, .block = 8}, all, all, n).size() == 4 + 3 + 4);
  }
  SUBCASE("keys that come in two pieces stay two rectangles while the gap closes") {
    const runs keys{{0, 8, 1}, {16, 8, 1}};
    const auto intervals_of = [](index_t p) { return make_intervals({0, p + 1}, {16, 24}); };
    CHECK(*found({{0, 8, 1}}, keys, intervals_of, n) ==
          std::vector<rectangle>{{0, 8, 0, 8, open_end, 0}, {0, 8, 8, 8}});
  }
}

TEST_CASE("a call that needs too many rectangles, or has no intervals, is left to a kernel that reads tables") {
  const runs all{{0, 64, 1}};
  const auto blocks = [](index_t p) { return make_intervals({0, p / 8 * 8 + 8}); };
  CHECK(found(all, all, blocks, 64, 8).value().size() == 8);
  CHECK_FALSE(found(all, all, blocks, 64, 7));
  CHECK_FALSE(rectangles(lower_positions(all, 64).table(), all, many));
  CHECK(found({}, all, blocks, 64, 0).value().empty());
  CHECK(found(all, {}, blocks, 64, 0).value().empty());
}

TEST_CASE("calls on rectangles, merged, are attention") {
  const dense_shape n{1, 84, 84, 2, 1, 5, 3};
  const inputs<float> in = recipe_inputs(n);
  const std::vector<index_t> bounds = pack({13, 0, 29, 1, 41});
  const runs rows = gathered(zigzag{.tokens = 84, .ranks = 3}, 0, 3);
  tensor<float> q({1, 84, 2, 5}, {}), k({1, 84, 1, 5}, {}), v({1, 84, 1, 3}, {}), out({1, 84, 2, 3}, {}),
      partial({1, 84, 2, 3}, {});
  deal(in.q, 84, rows, q.view);
  deal(in.k, 84, rows, k.view);
  deal(in.v, 84, rows, v.view);
  using kernel = host_reference<double>;
  const exact_space workspace(kernel::workspace_bytes(5, 3));
  for (const any_mask& mask : shipped_masks(84, bounds)) {
    CAPTURE(mask.name());
    const auto intervals_of = [&](index_t p) { return *mask.try_key_intervals(p); };
    std::vector<float> lse_data(2 * 84, -infinity), partial_lse_data(2 * 84, not_a_number);
    const heads_view<float> lse = dense_heads(lse_data.data(), {1, 2, 84}),
                            partial_lse = dense_heads(partial_lse_data.data(), {1, 2, 84});
    std::fill_n(out.data.get(), 84 * 2 * 3, 0.0f);
    const std::vector<rectangle> list = found(rows, rows, intervals_of, 84).value();
    for (const rectangle& r : list) {
      // As a third party takes it: rows, and a band from the bottom right corner.
      const rectangle::band low = r.from_bottom_right();
      const auto band = [&](index_t i) {
        const index_t on = i + r.k_rows - r.q_rows;
        return make_intervals(
            {low.left == open_end ? 0 : on - low.left, low.right == open_end ? many : on + low.right + 1});
      };
      const query_rows queries = lower_intervals(runs{{0, r.q_rows, 1}}, band, r.k_rows, kernel::query_tile_rows);
      const key_rows keys = lower_keys(runs{{0, r.k_rows, 1}}, queries, kernel::key_tile_rows);
      const std::vector<kv_segment<float>> segment{
          {part(k.view, r.k, r.k_rows), part(v.view, r.k, r.k_rows), keys.table()}};
      const auto rows_here = [&](auto view) {
        view.pointer += r.q * view.stride[1];
        view.shape[1] = r.q_rows;
        return view;
      };
      const auto numbers_here = [&](auto view) {
        view.pointer += r.q * view.stride[2];
        view.shape[2] = r.q_rows;
        return view;
      };
      forward_call<float, float> call;
      call.q = part(q.view, r.q, r.q_rows);
      call.queries = queries.table();
      call.segments = segment;
      call.heads = {0, 0, 2};
      call.scale = in.scale_used();
      call.out = rows_here(partial.view);
      call.lse = numbers_here(partial_lse);
      call.workspace = workspace.get();
      kernel{}.forward(call, by_intervals{});
      merge(rows_here(out.view), numbers_here(lse), rows_here(partial.view), numbers_here(partial_lse));
    }
    const dense_result want = dense_of(in, dealing{rows, {rows}}, mask);
    outputs<float> got{std::vector<float>(static_cast<std::size_t>(n.out_size())),
                       std::vector<float>(static_cast<std::size_t>(n.lse_size())),
                       {},
                       {},
                       {}};
    undeal(out.view, rows, 84, got.out);
    const std::vector<index_t> position = spelled(rows);
    for (index_t h = 0; h < 2; ++h)
      for (index_t i = 0; i < 84; ++i)
        got.lse[static_cast<std::size_t>(h * 84 + position[static_cast<std::size_t>(i)])] = lse.at(0, h, i);
    check_against(got, want);
  }
}
