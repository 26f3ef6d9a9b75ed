// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small video models that generate: layers over a dealt video with a prompt, and layers over a key/value cache.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "layer.hpp"
#include "program.hpp"

namespace demo {

/// Rows [count][width] of the stream `seed` from row `first` on: a hash, so that any rank makes those that it needs.
inline numbers noise(int seed, index_t first, index_t count, index_t width) {
  numbers x(at(count * width));
  for (index_t i = 0; i < count * width; ++i) x[at(i)] = uniform(static_cast<std::uint64_t>(seed), first * width + i);
  return x;
}

/// One layer's key/value cache with the face of an attention plan, so that a layer can stand on it: writes the keys of
/// the rows it is given as the newest of `cache`, then attends to all of them. Given the newest rows again, it
/// overwrites them. `cache` is read anew by each run; whoever grows it tells the plan (advance).
template <class Plan, class Layout>
class cached_attention {
 public:
  cached_attention(const Plan& plan, const Layout& cache)
      : plan_(&plan),
        cache_(&cache),
        shape_{1, plan.shape().cache_rows, plan.kv_heads_here().size(), plan.shape().head_dim},
        k_(at(shape_[1] * shape_[2] * shape_[3])),
        v_(k_) {}
  template <class Exec>
  seqpar::status forward(const seqpar::forward_arguments<float>& a, const seqpar::memory& memory, Exec exec) {
    const auto k = seqpar::dense_view(k_.data(), shape_), v = seqpar::dense_view(v_.data(), shape_);
    if (seqpar::status s = plan_->append(*cache_, {.k = a.k, .v = a.v, .k_cache = k, .v_cache = v}); !s.ok()) return s;
    return plan_->forward({.q = a.q, .k = k, .v = v, .out = a.out, .lse = a.lse}, memory, exec);
  }

 private:
  const Plan* plan_;
  const Layout* cache_;
  std::array<index_t, 4> shape_;
  numbers k_, v_;
};

/// So many layers, the weights of each fixed by its number.
template <class Plan>
std::vector<layer<Plan>> layers_on(std::vector<Plan*> plans, const layer_shape& n, const seqpar::memory& memory,
                                   std::span<const index_t> positions) {
  std::vector<layer<Plan>> made;
  for (Plan* plan : plans) made.emplace_back(n, *plan, memory, positions, 100 * (made.size() + 1));
  return made;
}
template <class Layer>
numbers through(std::vector<Layer>& layers, numbers x) {
  for (Layer& l : layers) x = l.forward(x);
  return x;
}

/// A model of the prompt and a dealt video. The prompt lies in front of this rank's rows on every rank (n.joint) and is
/// counted once.
template <class Team, class Layout, class Mask>
class dealt_model {
 public:
  dealt_model(const Team& team, const Layout& layout, const Mask& mask, const layer_shape& n, int depth)
      : plan_(seqpar::plan_attention<float>(team, layout, mask,
                                            {.heads = n.heads,
                                             .kv_heads = n.kv_heads,
                                             .head_dim = n.head_dim,
                                             .joint_q = n.joint,
                                             .joint_kv = n.joint})),
        memory_(prepared(plan_)) {
    std::vector<index_t> positions;
    for (index_t t = 0; t < n.joint; ++t) positions.push_back(t);
    for (index_t i = 0; i < plan_.q_rows(); ++i) positions.push_back(n.joint + layout.global_of(team.index(), i));
    layers_ = layers_on(std::vector(at(depth), &plan_), n, memory_, positions);
  }
  dealt_model(const dealt_model&) = delete;
  dealt_model& operator=(const dealt_model&) = delete;

  /// x: this rank's rows; the result is without the prompt.
  numbers forward(const numbers& prompt, const numbers& x) {
    numbers all = prompt;
    all.insert(all.end(), x.begin(), x.end());
    all = through(layers_, std::move(all));
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
    return all;
  }
  /// How many keys each query has, if the mask is full: where all scores are 0, lse is the logarithm of their number.
  /// −1 if not all queries of this rank say the same.
  index_t keys_counted() const;

 private:
  using plan_type = decltype(seqpar::plan_attention<float>(std::declval<const Team&>(), std::declval<const Layout&>(),
                                                           std::declval<const Mask&>(),
                                                           std::declval<const seqpar::attention_shape&>()));
  plan_type plan_;
  seqpar::host_memory memory_;
  std::vector<layer<plan_type>> layers_;
};

template <class Team, class Layout, class Mask>
index_t dealt_model<Team, Layout, Mask>::keys_counted() const {
  const seqpar::attention_shape n = plan_.shape();
  const index_t q = plan_.q_rows(), kv = plan_.kv_rows(), own = q * n.heads;
  const numbers zeros(at((q + kv + n.joint_q + n.joint_kv) * n.heads * n.head_dim));
  numbers out(zeros.size()), lse(at(own + n.joint_q * n.heads));
  const auto in = [&](index_t rows, index_t h) { return seqpar::dense_view(zeros.data(), {1, rows, h, n.head_dim}); };
  seqpar::check(plan_.forward(
      {.q = in(q, n.heads),
       .k = in(kv, n.kv_heads),
       .v = in(kv, n.kv_heads),
       .out = seqpar::dense_view(out.data(), {1, q, n.heads, n.head_dim}),
       .lse = seqpar::dense_heads(lse.data(), {1, n.heads, q}),
       .joint = {.q = in(n.joint_q, n.heads),
                 .k = in(n.joint_kv, n.kv_heads),
                 .v = in(n.joint_kv, n.kv_heads),
                 .out = seqpar::dense_view(out.data() + own * n.head_dim, {1, n.joint_q, n.heads, n.head_dim}),
                 .lse = seqpar::dense_heads(lse.data() + own, {1, n.heads, n.joint_q})}},
      memory_, seqpar::on_host{}));
  const auto count = [](float x) { return std::llround(std::exp(static_cast<double>(x))); };
  for (float x : lse)
    if (count(x) != count(lse[0])) return -1;
  return lse.empty() ? -1 : count(lse[0]);
}

/// A model of the newest tokens over a cache of all tokens, which lies on the ranks as `cache` deals it; the tokens
/// themselves are on every rank.
template <class Team, class Layout, class Mask>
class cached_model {
 public:
  /// Room for `tokens` tokens, of which at most `newest` come at a time.
  cached_model(const Team& team, const Layout& cache, const Mask& mask, const layer_shape& n, int depth, index_t tokens,
               index_t newest)
      : team_(team),
        cache_(cache),
        plan_(seqpar::plan_decode<float>(team, mask,
                                         {.heads = n.heads,
                                          .kv_heads = n.kv_heads,
                                          .head_dim = n.head_dim,
                                          .queries = newest,
                                          .cache_rows = cache.rows_for(tokens)})),
        memory_(prepared(plan_)),
        caches_(at(depth), {plan_, cache_}) {
    std::vector<attention_type*> each;
    for (attention_type& c : caches_) each.push_back(&c);
    layers_ = layers_on(each, n, memory_, {});
    aim(cache.token_count());
  }
  cached_model(const cached_model&) = delete;
  cached_model& operator=(const cached_model&) = delete;

  /// The coming runs are about `count` tokens behind those of before.
  void grow(index_t count) {
    cache_ = cache_.grown(count);
    aim(count);
  }
  /// The newest tokens, whole; their keys take the place of those of the run before.
  numbers forward(const numbers& x) { return through(layers_, x); }
  index_t cached_here() const { return cache_.count_of(team_.ring_of(team_.index())); }

 private:
  using plan_type = decltype(seqpar::plan_decode<float>(std::declval<const Team&>(), std::declval<const Mask&>(),
                                                        std::declval<const seqpar::decode_shape&>()));
  using attention_type = cached_attention<plan_type, Layout>;

  void aim(index_t count) {
    seqpar::check(plan_.advance(cache_, count, memory_));
    std::vector<index_t> positions;
    for (index_t t = cache_.token_count() - count; t < cache_.token_count(); ++t) positions.push_back(t);
    for (layer<attention_type>& l : layers_) l.move_to(positions);
  }

  Team team_;
  Layout cache_;
  plan_type plan_;
  seqpar::host_memory memory_;
  std::vector<attention_type> caches_;
  std::vector<layer<attention_type>> layers_;
};

}  // namespace demo
