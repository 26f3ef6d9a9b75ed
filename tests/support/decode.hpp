// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One decode problem: every rank appends, advances and attends step by step, on any engine, and beside it the fp64
// definition.
#pragma once

#include <cstring>
#include <deque>

#include <seqpar/attention/decode.hpp>
#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/window.hpp>
#include <tests/support/attention_apart.hpp>

namespace seqpar::test {

using any_cache = appended<any_layout>;

inline const any_mask past(causal{}, "causal");
inline const any_mask window_and_sinks(any_of{all_of{causal{}, window{.left = 9, .right = 0}}, first_keys{2}},
                                       "window, sinks");

/// From `cache` on, `steps` times `fresh` tokens are appended, which are then the queries. Every rank runs them all.
struct decode_problem {
  any_cache cache;
  decode_shape shape{.heads = 4, .kv_heads = 2, .head_dim = 4, .queries = 1, .cache_rows = 0};
  any_mask mask = past;
  index_t steps = 1, fresh = 1;
  mesh_shape team{1, 1};  ///< ring 1: as many as the cache's ranks
  std::optional<std::uint64_t> adversary{};
  std::vector<run> queries{};  ///< of each step; empty: the fresh ones

  mesh_shape mesh() const { return {cache.rank_count(), team.all_to_all, team.inside}; }
  int ranks() const { return static_cast<int>(mesh().ring * mesh().all_to_all); }
  index_t tokens(index_t after_step) const { return cache.token_count() + (after_step + 1) * fresh; }
  index_t query_count(index_t step) const {
    return queries.empty() ? fresh : queries[static_cast<std::size_t>(step)].count;
  }
  std::string name() const {
    return "ring " + std::to_string(mesh().ring) + " x " + std::to_string(mesh().all_to_all) + ", prefill " +
           std::to_string(cache.prefill.token_count()) + " " + cache.prefill.name() + ", granule " +
           std::to_string(cache.granule) + ", " + mask.name();
  }
};

inline dense_shape dense_of(const decode_problem& p, index_t step) {
  const attention_shape n = p.shape.attention();
  return {n.batch, p.query_count(step), p.tokens(p.steps - 1), n.heads, n.kv_heads, n.head_dim, n.v_dim()};
}
template <class T>
std::vector<T> queries_of(const decode_problem& p, index_t step) {
  const index_t size = dense_of(p, step).q_size();
  return rounded<T>(filled<float>(tag::q, size, step * size));
}
template <class T>
struct result_of {
  std::vector<T> out;
  std::vector<float> lse;
  bool operator==(const result_of& o) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
    };
    return same(out, o.out) && same(lse, o.lse);
  }
};

/// One rank's plan, memory and cache, which is full of NaN where nothing was written.
template <class T, class Engine = on_threads, class Kernel = host_fast, class Mask = any_mask>
struct decoder {
  using transport_type = traced<typename Engine::transport>;
  using plan_type = decode_plan<T, Mask, transport_type, Kernel>;
  using site_type = decltype(std::declval<const Engine&>().site(std::declval<typename Engine::transport>()));
  using numbers = std::pmr::vector<T>;

  decoder(const typename Engine::transport& world, const decode_problem& p, const Engine& engine, const Mask& mask,
          Kernel kernel = {})
      : site(engine.site(world)),
        record(world.rank(), world.size(), 16),
        team(transport_type(world, record), p.mesh()),
        plan(plan_decode<T>(team, mask, p.shape, {}, kernel)),
        memory(plan.memory(), site.memory),
        given(memory),
        rows(p.shape.cache_rows),
        shape(p.shape.attention()) {
    k.assign(static_cast<std::size_t>(shape.batch * rows * kv_heads() * shape.head_dim), nan);
    v.assign(static_cast<std::size_t>(shape.batch * rows * kv_heads() * shape.v_dim()), nan);
    const dense_shape d = dense_of(p, 0);
    const std::vector<T> new_k = rounded<T>(filled<float>(tag::k, d.k_size())),
                         new_v = rounded<T>(filled<float>(tag::v, d.v_size()));
    all_k.assign(new_k.begin(), new_k.end());
    all_v.assign(new_v.begin(), new_v.end());
    all_tokens = d.k_tokens;
  }
  /// What was given to streams is over before its memory goes.
  ~decoder() { site.abandon(); }
  decoder(const decoder&) = delete;

  index_t kv_heads() const { return plan.kv_heads_here().size(); }
  rows_view<T> k_cache() { return dense_view(k.data(), {shape.batch, rows, kv_heads(), shape.head_dim}); }
  rows_view<T> v_cache() { return dense_view(v.data(), {shape.batch, rows, kv_heads(), shape.v_dim()}); }
  append_arguments<T> last(index_t tokens, index_t count) {
    const auto part = [&](numbers& x, index_t dim) {
      rows_view<const T> w = dense_view<const T>(x.data(), {shape.batch, all_tokens, shape.kv_heads, dim});
      w.pointer += (tokens - count) * w.stride[1];
      w.shape[1] = count;
      return w;
    };
    return {part(all_k, shape.head_dim), part(all_v, shape.v_dim()), k_cache(), v_cache()};
  }
  void prepare() { plan.prepare(given, site.exec); }
  status append(const any_cache& cache, index_t count) {
    return plan.append(cache, last(cache.token_count(), count), site.exec);
  }
  status advance(const any_cache& cache, const decode_queries& queries) {
    return plan.advance(cache, queries, given, site.exec);
  }
  /// The coming runs have these queries, and tensors of their own for each aim(); results are NaN.
  void aim(const std::vector<T>& queries, index_t count) {
    tensors& x = steps.emplace_back(site.memory);
    x.q.assign(queries.begin(), queries.end());
    x.out.assign(static_cast<std::size_t>(shape.batch * count * shape.heads * shape.v_dim()), nan);
    x.lse.assign(static_cast<std::size_t>(shape.batch * count * shape.heads), std::numeric_limits<float>::quiet_NaN());
    a = {dense_view<const T>(x.q.data(), {shape.batch, count, shape.heads, shape.head_dim}), k_cache(), v_cache(),
         dense_view(x.out.data(), {shape.batch, count, shape.heads, shape.v_dim()}),
         dense_heads(x.lse.data(), {shape.batch, shape.heads, count})};
  }
  status forward() const noexcept { return plan.forward(a, given, site.exec); }
  result_of<T> result(std::size_t step) const {
    const tensors& x = steps[step];
    return {{x.out.begin(), x.out.end()}, {x.lse.begin(), x.lse.end()}};
  }
  result_of<T> result() const { return result(steps.size() - 1); }

  struct tensors {
    explicit tensors(std::pmr::memory_resource* where) : q(where), out(where), lse(where) {}
    numbers q, out;
    std::pmr::vector<float> lse;
  };
  const T nan = T(std::numeric_limits<float>::quiet_NaN());
  site_type site;
  flight_record record;
  mesh<transport_type> team;
  plan_type plan;
  guarded_memory memory;
  seqpar::memory given;
  index_t rows, all_tokens = 0;
  attention_shape shape;
  numbers k{site.memory}, v{site.memory}, all_k{site.memory}, all_v{site.memory};
  std::deque<tensors> steps;
  typename plan_type::forward_type a;
};

/// Every rank's results of every step; nothing waits between them. Throws what goes wrong.
template <class T, class Engine = on_threads, class Kernel = host_fast, class Mask = any_mask>
std::vector<std::vector<result_of<T>>> decode(decode_problem p, const Engine& engine, const Mask& mask,
                                              Kernel kernel = {}) {
  p.shape.cache_rows = p.cache.rows_for(p.tokens(p.steps - 1));
  for (index_t s = 0; s < p.steps; ++s) p.shape.queries = std::max<index_t>({1, p.shape.queries, p.query_count(s)});
  std::vector<std::vector<result_of<T>>> results(static_cast<std::size_t>(p.ranks()));
  threads::options world_options{.ranks = p.ranks()};
  if (p.adversary) world_options.adversary = *p.adversary;
  engine.run(world_options, [&](typename Engine::transport world) {
    decoder<T, Engine, Kernel, Mask> rank(world, p, engine, mask, kernel);
    rank.prepare();
    any_cache cache = p.cache;
    check(rank.append(cache, cache.token_count()));
    for (index_t step = 0; step < p.steps; ++step) {
      cache = cache.grown(p.fresh);
      check(rank.append(cache, p.fresh));
      check(rank.advance(cache, p.queries.empty() ? decode_queries(p.fresh)
                                                  : decode_queries(p.queries[static_cast<std::size_t>(step)])));
      rank.aim(queries_of<T>(p, step), p.query_count(step));
      const index_t before = rank.record.bytes(direction::send);
      check(rank.forward());
      if (rank.record.bytes(direction::send) - before != rank.plan.bytes_sent(p.query_count(step), rank.site.exec))
        throw std::runtime_error("other bytes were sent than bytes_sent() says");
    }
    rank.site.settle();
    for (std::size_t step = 0; step < rank.steps.size(); ++step)
      results[static_cast<std::size_t>(world.rank())].push_back(rank.result(step));
    if (!rank.memory.intact()) throw std::runtime_error("memory beyond the sizes asked for was written");
  });
  return results;
}

/// What differs from the definition, element by element, or between two ranks; empty when nothing does. `products`: how
/// often a kernel rounds the terms of its sums to T.
template <class T>
std::string fault_of(const decode_problem& p, const std::vector<std::vector<result_of<T>>>& got, double products = 0) {
  for (std::size_t r = 1; r < got.size(); ++r)
    if (!(got[r] == got[0])) return p.name() + ": rank " + std::to_string(r) + " has other bits than rank 0";
  for (index_t step = 0; step < p.steps; ++step) {
    const dense_shape d = dense_of(p, step);
    const index_t tokens = p.tokens(step);
    const any_mask mask = p.mask.bound(tokens, tokens);
    const run at = p.queries.empty() ? run{tokens - p.fresh, p.fresh, 1} : p.queries[static_cast<std::size_t>(step)];
    dense_result want = dense_attention(d, {.scale = default_scale}, queries_of<T>(p, step),
                                        rounded<T>(filled<float>(tag::k, d.k_size())),
                                        rounded<T>(filled<float>(tag::v, d.v_size())), std::vector<float>{}, {},
                                        [&](index_t i, index_t j) { return j < tokens && mask.allows(at.at(i), j); });
    for (double& m : want.out_magnitude) m *= 1 + products * roundoff<T> / (roundings * 0x1p-24);
    const result_of<T>& have = got[0][static_cast<std::size_t>(step)];
    for (const verdict& v :
         {compare(have.out, want.out, want.out_magnitude), compare(have.lse, want.lse, want.lse_magnitude)})
      if (!v.good()) {
        std::ostringstream text;
        text << p.name() << ", step " << step << ": " << v;
        return text.str();
      }
  }
  return "";
}

inline std::vector<any_cache> caches(int ranks, index_t prefill, index_t granule) {
  return {{any_layout(contiguous{.tokens = prefill, .ranks = ranks}, "contiguous"), 0, granule},
          {any_layout(zigzag{.tokens = prefill, .ranks = ranks}, "zigzag"), 0, granule}};
}
inline any_cache empty_cache(int ranks, index_t granule = 1) {
  return caches(ranks, 0, granule)[0];
}

}  // namespace seqpar::test
