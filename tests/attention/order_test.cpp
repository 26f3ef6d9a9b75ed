// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who posts what to whom in which order, and rings of every length.
#include <random>

#include <tests/attention/draw.hpp>
#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

/// What rank r posts in a forward and a backward pass of p; nothing moves, so the numbers are whatever they are.
std::vector<recorded_message> posted_by(int r, const problem& p) {
  std::vector<recorded_message> log;
  const int ranks = static_cast<int>(p.team.ring * p.team.all_to_all);
  const attention_shape& n = p.shape;
  attention_options options = p.options;
  options.check = agreement::trusted;  // nobody answers here
  auto plan = plan_attention<float>(mesh(recorder(r, ranks, log), p.team), p.q_layout, p.kv_layout, p.mask, n, options);
  const host_memory owned(plan.memory());
  const seqpar::memory given = owned;
  for (const region& x : {given.scratch, given.exchange, given.saved})
    if (x.bytes > 0) std::memset(x.pointer, 0, static_cast<std::size_t>(x.bytes));
  plan.prepare(given, on_host{});
  std::vector<std::vector<float>> data;
  const auto tensor = [&](index_t tokens, index_t heads, index_t dim) {
    auto& x = data.emplace_back(static_cast<std::size_t>(n.batch * tokens * heads * dim));
    return dense_view(x.data(), {n.batch, tokens, heads, dim});
  };
  const auto numbers = [&](index_t tokens) {
    auto& x = data.emplace_back(static_cast<std::size_t>(n.batch * n.heads * tokens));
    return dense_heads(x.data(), {n.batch, n.heads, tokens});
  };
  const index_t q = plan.q_rows(), k = plan.kv_rows(), jq = n.joint_q, jk = n.joint_kv, D = n.head_dim, V = n.v_dim();
  using plan_type = decltype(plan);
  const typename plan_type::forward_type f{.q = tensor(q, n.heads, D),
                                           .k = tensor(k, n.kv_heads, D),
                                           .v = tensor(k, n.kv_heads, V),
                                           .out = tensor(q, n.heads, V),
                                           .lse = numbers(q),
                                           .joint = {.q = tensor(jq, n.heads, D),
                                                     .k = tensor(jk, n.kv_heads, D),
                                                     .v = tensor(jk, n.kv_heads, V),
                                                     .out = tensor(jq, n.heads, V),
                                                     .lse = numbers(jq)}};
  check(plan.forward(f, given, on_host{}));
  if (p.options.passes == forward_backward)
    check(plan.backward({.q = f.q,
                         .k = f.k,
                         .v = f.v,
                         .out = f.out,
                         .lse = f.lse,
                         .dout = tensor(q, n.heads, V),
                         .dlse = {},
                         .dq = tensor(q, n.heads, D),
                         .dk = tensor(k, n.kv_heads, D),
                         .dv = tensor(k, n.kv_heads, V),
                         .joint = {.q = f.joint.q,
                                   .k = f.joint.k,
                                   .v = f.joint.v,
                                   .out = f.joint.out,
                                   .lse = f.joint.lse,
                                   .dout = tensor(jq, n.heads, V),
                                   .dlse = {},
                                   .dq = tensor(jq, n.heads, D),
                                   .dk = tensor(jk, n.kv_heads, D),
                                   .dv = tensor(jk, n.kv_heads, V)}},
                        given, on_host{}));
  return log;
}

/// Messages from one rank to another in their order, as one side tells.
std::vector<std::string> between(const std::vector<recorded_message>& log, direction way, int from, int to) {
  std::vector<std::string> list;
  for (const recorded_message& m : log)
    if (m.way == way && m.from == from && m.to == to)
      list.push_back(std::string(m.label.stage) + " " + std::to_string(m.label.round) + ": " + std::to_string(m.bytes));
  return list;
}

}  // namespace

TEST_CASE("all ranks plan the same messages without communicating, for 500 problems [J7]") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    problem_drawer drawer(seed);
    const problem p = drawer.draw().p;
    const int ranks = static_cast<int>(p.team.ring * p.team.all_to_all);
    std::vector<std::vector<recorded_message>> logs;
    for (int r = 0; r < ranks; ++r) logs.push_back(posted_by(r, p));
    bool same = true;
    for (int a = 0; a < ranks && same; ++a)
      for (int b = 0; b < ranks && same; ++b)
        same = between(logs[static_cast<std::size_t>(a)], direction::send, a, b) ==
               between(logs[static_cast<std::size_t>(b)], direction::receive, a, b);
    CHECK_MESSAGE(same, "problem " << seed << ": " << name_of(p));
  }
}

TEST_CASE("K and V do not change places, on one rank, on two that are each other's both neighbours, and on more [J1]") {
  attention_case c{.tokens = 8, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_all};
  tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  std::fill(in.k.begin(), in.k.end(), 1.f);
  std::fill(in.v.begin(), in.v.end(), 2.f);
  c.inputs = in;
  c.ranks = {1, 2, 4, 8};
  check_everywhere(c, [](const problem&, const outcome<float>& got) {
    return all_are(got.out, 2) ? std::string() : std::string("out is not the constant of V");
  });
}

TEST_CASE("a ring of an odd number of ranks gives the published sums [J2]") {
  attention_case c{.tokens = 15,
                   .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4},
                   .mask = see_past,
                   .sums = golden{1.73361452, 57.26928762, -0.26712769, -0.08517877, 1.06685236}};
  c.ranks = {3, 5, 7};
  check_everywhere(c);
}

TEST_CASE("ranks that own nothing post and await no empty message [J4]") {
  attention_case c{.tokens = 2, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_past};
  c.ranks = {5, 8};
  check_everywhere(c);
  for (const mesh_shape& team : every_mesh(8))
    for (const schedule s : every_schedule)
      for (int r = 0; r < 8; ++r)
        for (const recorded_message& m : posted_by(r, c.at(contiguously, 8, team, s))) CHECK(m.bytes > 0);
}

}  // namespace seqpar::test
