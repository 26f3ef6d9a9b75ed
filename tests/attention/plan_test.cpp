// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans as values: what they own, what may be dropped or shared, and the types of their results.
#include <mutex>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

using mixed_plan = attention_plan<bfloat16, seqpar::within<causal>, threads::transport, host_fast, float, float>;

/// Planned in a scope of its own: the bounds, the layout, the mask, the mesh and the options are gone afterwards.
mixed_plan planned_from_temporaries(const threads::transport& world, mesh_shape team, const attention_shape& shape,
                                    attention_options options) {
  std::vector<index_t> bounds = pack({5, 1, 7});
  auto layout = std::make_unique<per_document<zigzag>>(
      per_document<zigzag>{bounds, {.tokens = 0, .ranks = static_cast<int>(team.ring * team.all_to_all)}});
  auto plan = plan_attention<bfloat16, float, float>(mesh(world, team), *layout,
                                                     seqpar::within{documents{bounds}, causal{}}, shape, options);
  std::fill(bounds.begin(), bounds.end(), -77);
  return plan;
}

std::vector<bfloat16> rows_of(const std::vector<float>& global, const any_layout& layout, int rank, index_t columns) {
  std::vector<bfloat16> x;
  for (index_t i = 0; i < layout.count_of(rank); ++i)
    for (index_t c = 0; c < columns; ++c)
      x.push_back(bfloat16(global[static_cast<std::size_t>(layout.global_of(rank, i) * columns + c)]));
  return x;
}

}  // namespace

TEST_CASE("bfloat16 in, fp32 out and fp32 gradients, from a plan that outlives all it was made of and is moved") {
  const std::vector<index_t> bounds = pack({5, 1, 7});
  const attention_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 6, .value_dim = 3};
  for (const mesh_shape& team : every_mesh(4))
    for (const schedule s : every_schedule)
      for (const write how : {write::assign, write::add}) {
        const any_layout layout(per_document<zigzag>{bounds, {.tokens = 0, .ranks = 4}}, "zigzag per document");
        problem p{layout, layout, any_mask(seqpar::within{documents{bounds}, causal{}}, "documents"),
                  shape,  team,   {.passes = forward_backward, .schedule = s, .window = window_of(team.ring)}};
        const tensors in = recipe_tensors(p);
        dense_result want =
            dense_attention(dense_shape_of(p), {.scale = default_scale}, rounded<bfloat16>(in.q),
                            rounded<bfloat16>(in.k), rounded<bfloat16>(in.v), rounded<bfloat16>(in.dout), {},
                            [&](index_t q, index_t k) { return p.mask.allows(q, k); });
        outcome<float> got = empty_outcome(p);
        run_ranks(4, [&](threads::transport world) {
          mixed_plan first = planned_from_temporaries(
              world, team, shape,
              {.passes = forward_backward, .schedule = s, .window = window_of(team.ring), .gradients = how});
          const host_memory memory(first.memory());
          first.prepare(memory, on_host{});
          const mixed_plan plan = std::move(first);
          const int me = world.rank();
          const index_t n = layout.count_of(me);
          const auto q = rows_of(in.q, layout, me, 24), k = rows_of(in.k, layout, me, 12),
                     v = rows_of(in.v, layout, me, 6), dout = rows_of(in.dout, layout, me, 12);
          const float before = how == write::add ? 0.5f : std::numeric_limits<float>::quiet_NaN();
          std::vector<float> out(dout.size()), lse(static_cast<std::size_t>(4 * n)), dq(q.size(), before),
              dk(k.size(), before), dv(v.size(), before);
          const mixed_plan::forward_type f{.q = dense_view(q.data(), {1, n, 4, 6}),
                                           .k = dense_view(k.data(), {1, n, 2, 6}),
                                           .v = dense_view(v.data(), {1, n, 2, 3}),
                                           .out = dense_view(out.data(), {1, n, 4, 3}),
                                           .lse = dense_heads(lse.data(), {1, 4, n})};
          check(plan.forward(f, memory, on_host{}));
          check(plan.backward({.q = f.q,
                               .k = f.k,
                               .v = f.v,
                               .out = f.out,
                               .lse = f.lse,
                               .dout = dense_view(dout.data(), {1, n, 4, 3}),
                               .dq = dense_view(dq.data(), {1, n, 4, 6}),
                               .dk = dense_view(dk.data(), {1, n, 2, 6}),
                               .dv = dense_view(dv.data(), {1, n, 2, 3})},
                              memory, on_host{}));
          const auto put = [&](const std::vector<float>& from, std::vector<float>& to, index_t columns, float less) {
            for (index_t i = 0; i < n; ++i)
              for (index_t c = 0; c < columns; ++c)
                to[static_cast<std::size_t>(layout.global_of(me, i) * columns + c)] =
                    from[static_cast<std::size_t>(i * columns + c)] - less;
          };
          const float less = how == write::add ? 0.5f : 0.f;
          put(out, got.out, 12, 0);
          put(dq, got.dq, 24, less);
          put(dk, got.dk, 12, less);
          put(dv, got.dv, 6, less);
          for (index_t h = 0; h < 4; ++h)
            for (index_t i = 0; i < n; ++i)
              got.lse[static_cast<std::size_t>(h * 13 + layout.global_of(me, i))] =
                  lse[static_cast<std::size_t>(h * n + i)];
        });
        if (how == write::add)
          for (auto* m : {&want.dq_magnitude, &want.dk_magnitude, &want.dv_magnitude})
            for (double& x : *m) x += 1;
        const auto good = [&](const char* name, const verdict& v) { CHECK_MESSAGE(v.good(), name << ": " << v); };
        good("out", compare(got.out, want.out, want.out_magnitude));
        good("lse", compare(got.lse, want.lse, want.lse_magnitude));
        good("dq", compare(got.dq, want.dq, want.dq_magnitude));
        good("dk", compare(got.dk, want.dk, want.dk_magnitude));
        good("dv", compare(got.dv, want.dv, want.dv_magnitude));
      }
}

TEST_CASE("two plans of other head counts run in turn over one transport, sharing scratch and exchange memory [C2]") {
  const auto with = [](index_t heads, index_t kv_heads, mesh_shape team, schedule s) {
    return attention_case{.tokens = 8, .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = 4}, .mask = see_past}
        .at(in_zigzag, 4, team, s);
  };
  for (const mesh_shape& team : every_mesh(4))
    for (const schedule s : every_schedule) {
      const std::vector<problem> problems{with(7, 7, team, s), with(12, 3, team, s), with(12, 12, team, s)};
      std::vector<outcome<float>> alone, together;
      for (const problem& p : problems) {
        alone.push_back(run_problem<float>(p, recipe_tensors(p)));
        together.push_back(empty_outcome(p));
      }
      run_ranks(4, [&](threads::transport world) {
        std::vector<std::unique_ptr<rank_run>> ranks;
        for (const problem& p : problems) ranks.push_back(std::make_unique<rank_run>(world, p));
        memory_sizes most;
        for (const auto& r : ranks) {
          most.scratch = std::max(most.scratch, r->plan.memory().scratch);
          most.exchange = std::max(most.exchange, r->plan.memory().exchange);
        }
        const host_memory shared(most);
        for (const auto& r : ranks) {
          r->given.scratch = seqpar::memory(shared).scratch;
          r->given.exchange = seqpar::memory(shared).exchange;
          r->prepare();
        }
        for (int turn = 0; turn < 3; ++turn) {
          for (const auto& r : ranks) check(r->forward());
          for (const auto& r : ranks) check(r->backward());
        }
        for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->store(problems[i], together[i]);
      });
      for (std::size_t i = 0; i < problems.size(); ++i)
        CHECK_MESSAGE(same_bits(alone[i], together[i]), name_of(problems[i]));
    }
}

TEST_CASE("traced or not, under the adversary or not, one rank's thread or another's: the same bits") {
  const std::vector<index_t> bounds = pack({5, 1, 7});
  attention_case c{.tokens = 13,
                   .shape = {.heads = 4, .kv_heads = 2, .head_dim = 6},
                   .mask = any_mask(seqpar::within{documents{bounds}, causal{}}, "documents")};
  for (const mesh_shape& team : every_mesh(4)) {
    problem p = c.at(in_zigzag, 4, team, schedule::direct);
    const tensors in = recipe_tensors(p);
    const outcome<float> traced_run = run_problem<float>(p, in);
    outcome<float> got = traced_run;
    run_ranks({.ranks = 4, .adversary = 9}, [&](threads::transport world) {
      auto plan = plan_attention<float>(mesh(world, team), p.q_layout, p.mask, p.shape, {});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      rank_run rank(world, p);  // only for its tensors
      check(plan.forward(rank.f, memory, on_host{}));
      rank.store(p, got);
    });
    CHECK(same_bits(got.out, traced_run.out));
    CHECK(same_bits(got.lse, traced_run.lse));
  }
}

}  // namespace seqpar::test
