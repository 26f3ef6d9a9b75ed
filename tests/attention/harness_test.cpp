// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that compiles rank_run, and proofs that the harness sees what it is for.
#include <tests/attention/rank.hpp>

namespace seqpar::test {

namespace {
/// Calls f(local element, global element) for a rank's rows of a tensor [batch][tokens][columns].
template <class F>
void for_each_element(const any_layout& layout, int me, index_t batch, index_t columns, F&& f) {
  const index_t rows = layout.count_of(me), tokens = layout.token_count();
  for (index_t b = 0; b < batch; ++b)
    for (index_t t = 0; t < rows; ++t)
      for (index_t c = 0; c < columns; ++c)
        f(static_cast<std::size_t>((b * rows + t) * columns + c),
          static_cast<std::size_t>((b * tokens + layout.global_of(me, t)) * columns + c));
}
std::vector<float> dealt(const any_layout& layout, int me, index_t batch, index_t columns,
                         const std::vector<float>& global) {
  std::vector<float> x(static_cast<std::size_t>(batch * layout.count_of(me) * columns));
  for_each_element(layout, me, batch, columns, [&](std::size_t i, std::size_t g) { x[i] = global[g]; });
  return x;
}
}  // namespace

rank_run::rank_run(const threads::transport& world, const problem& p, index_t remembered)
    : record(world.rank(), world.size(), remembered),
      team(p.ranks.empty() ? mesh<transport_type>(traced(world, record), p.team)
                           : mesh<transport_type>(traced(world, record), p.team, p.ranks)),
      plan(plan_attention<float>(team, p.q_layout, p.kv_layout, p.mask, p.shape, p.options)),
      owned(plan.memory()),
      given(owned) {
  load(p, recipe_tensors(p));
}
void rank_run::prepare() {
  plan.prepare(given, on_host{});
}
void rank_run::update(const problem& next) {
  plan.update(next.q_layout, next.kv_layout, next.mask, given);
  load(next, recipe_tensors(next));
}
void rank_run::load(const problem& p, const tensors& in) {
  const attention_shape& n = p.shape;
  const int me = team.index();
  const index_t rows = p.q_layout.count_of(me), keys = p.kv_layout.count_of(me);
  q = dealt(p.q_layout, me, n.batch, n.heads * n.head_dim, in.q);
  k = dealt(p.kv_layout, me, n.batch, n.kv_heads * n.head_dim, in.k);
  v = dealt(p.kv_layout, me, n.batch, n.kv_heads * n.v_dim(), in.v);
  dout = dealt(p.q_layout, me, n.batch, n.heads * n.v_dim(), in.dout);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  dq.assign(q.size(), nan);
  dk.assign(k.size(), nan);
  dv.assign(v.size(), nan);
  out.assign(dout.size(), nan);
  lse.assign(static_cast<std::size_t>(n.batch * n.heads * rows), nan);
  const std::array<index_t, 4> qs{n.batch, rows, n.heads, n.head_dim}, ks{n.batch, keys, n.kv_heads, n.head_dim},
      vs{n.batch, keys, n.kv_heads, n.v_dim()}, os{n.batch, rows, n.heads, n.v_dim()};
  f = {.q = dense_view<const float>(q.data(), qs),
       .k = dense_view<const float>(k.data(), ks),
       .v = dense_view<const float>(v.data(), vs),
       .out = dense_view(out.data(), os),
       .lse = dense_heads(lse.data(), {n.batch, n.heads, rows})};
  b = {.q = f.q,
       .k = f.k,
       .v = f.v,
       .out = f.out,
       .lse = f.lse,
       .dout = dense_view<const float>(dout.data(), os),
       .dq = dense_view(dq.data(), qs),
       .dk = dense_view(dk.data(), ks),
       .dv = dense_view(dv.data(), vs)};
}
status rank_run::forward() const noexcept {
  return plan.forward(f, given, on_host{});
}
status rank_run::backward() const noexcept {
  return plan.backward(b, given, on_host{});
}
void rank_run::store(const problem& p, outcome<float>& to) const {
  const attention_shape& n = p.shape;
  const int me = team.index();
  const auto put = [&](const any_layout& layout, index_t columns, const std::vector<float>& from,
                       std::vector<float>& global) {
    for_each_element(layout, me, n.batch, columns, [&](std::size_t i, std::size_t g) { global[g] = from[i]; });
  };
  put(p.q_layout, n.heads * n.v_dim(), out, to.out);
  put(p.q_layout, n.heads * n.head_dim, dq, to.dq);
  put(p.kv_layout, n.kv_heads * n.head_dim, dk, to.dk);
  put(p.kv_layout, n.kv_heads * n.v_dim(), dv, to.dv);
  const index_t rows = p.q_layout.count_of(me);
  for (index_t x = 0; x < n.batch * n.heads; ++x)
    for (index_t t = 0; t < rows; ++t)
      to.lse[static_cast<std::size_t>(x * p.q_layout.token_count() + p.q_layout.global_of(me, t))] =
          lse[static_cast<std::size_t>(x * rows + t)];
}

outcome<float> empty_outcome(const problem& p) {
  const dense_shape d = dense_shape_of(p);
  const auto nans = [](index_t n) {
    return std::vector<float>(static_cast<std::size_t>(n), std::numeric_limits<float>::quiet_NaN());
  };
  outcome<float> o;
  o.out = nans(d.out_size());
  o.lse = nans(d.lse_size());
  o.dq = nans(d.q_size());
  o.dk = nans(d.k_size());
  o.dv = nans(d.v_size());
  const std::vector<byte_count> bytes = wanted_bytes<float>(p);  // not measured here
  for (const byte_count& b : bytes) {
    o.forward_bytes.push_back(b.forward);
    o.backward_bytes.push_back(b.backward);
  }
  return o;
}

TEST_CASE("fault_of sees one wrong element of any result, and one byte too many or too few") {
  const attention_case c{.tokens = 11, .shape = {.heads = 2, .kv_heads = 1, .head_dim = 4}, .mask = see_past};
  for (const schedule s : every_schedule) {
    const problem p = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, s);
    const tensors in = recipe_tensors(p);
    const dense_result want = definition<float>(p, in);
    const outcome<float> good = run_problem<float>(p, in);
    CHECK(fault_of(p, good, want) == "");
    const auto spoilt = [&](auto&& spoil) {
      outcome<float> bad = good;
      spoil(bad);
      return fault_of(p, bad, want);
    };
    CHECK(spoilt([](auto& o) { o.out[5] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.lse[3] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dq[40] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dk[12] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dv[43] += 1e-4f; }) != "");
    CHECK(spoilt([](auto& o) { o.dv[43] = std::numeric_limits<float>::quiet_NaN(); }) != "");
    CHECK(spoilt([](auto& o) { ++o.forward_bytes[1]; }) != "");
    CHECK(spoilt([](auto& o) { --o.backward_bytes[2]; }) != "");
    CHECK(spoilt([](auto& o) { o.replicas_agree = false; }) != "");
  }
}

}  // namespace seqpar::test
