// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's small attention with its tensors: what tests of faults and of capture run again and again.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include <seqpar/attention/plan.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/mask/causal.hpp>
#include <tests/support/apart.hpp>
#include <tests/support/engine.hpp>
#include <tests/support/guarded_memory.hpp>

namespace seqpar::test {

/// Causal attention of 48 tokens, 4 query heads on 2 key heads of 8 numbers.
template <class Transport, class Kernel = host_fast, class Site = host_site>
class small_rank {
 public:
  static constexpr index_t tokens = 48;

  small_rank(const Transport& t, const mesh_shape& shape, attention_options options = {.passes = forward_backward},
             Kernel kernel = {})
      : plan(plan_attention<float>(mesh<Transport>(t, shape),
                                   zigzag{.tokens = tokens, .ranks = shape.ring * shape.all_to_all}, causal{},
                                   {.batch = 1, .heads = 4, .kv_heads = 2, .head_dim = 8}, options, kernel)),
        memory(plan.memory(), site.memory) {
    for (auto* x : {&q, &out, &dout, &dq}) x->resize(static_cast<std::size_t>(plan.q_rows() * 4 * 8));
    for (auto* x : {&k, &v, &dk, &dv}) x->resize(static_cast<std::size_t>(plan.kv_rows() * 2 * 8));
    lse.resize(static_cast<std::size_t>(plan.q_rows() * 4));
    fill(0);
    plan.prepare(memory, site.exec);
    site.settle();
  }
  /// What a failed run has still given to the streams is over before its memory goes.
  ~small_rank() { site.abandon(); }
  /// Other inputs for each `turn`; results are poisoned.
  void fill(int turn) {
    int i = 0;
    for (auto* x : {&q, &k, &v, &dout})
      for (float& e : *x) e = static_cast<float>((++i * 37 + turn * 101) % 97) / 97.f - 0.5f;
    for (auto* x : {&out, &lse, &dq, &dk, &dv}) std::memset(x->data(), 0xFF, x->size() * sizeof(float));
  }
  status run() {
    const std::array<index_t, 4> qs{1, plan.q_rows(), 4, 8}, ks{1, plan.kv_rows(), 2, 8};
    const auto view = [](auto& x, const std::array<index_t, 4>& s) { return dense_view(x.data(), s); };
    const heads_view<float> sums = dense_heads(lse.data(), {1, 4, plan.q_rows()});
    if (status s =
            plan.forward({.q = view(q, qs), .k = view(k, ks), .v = view(v, ks), .out = view(out, qs), .lse = sums},
                         memory, site.exec);
        !s.ok())
      return s;
    return plan.backward({.q = view(q, qs),
                          .k = view(k, ks),
                          .v = view(v, ks),
                          .out = view(out, qs),
                          .lse = sums,
                          .dout = view(dout, qs),
                          .dq = view(dq, qs),
                          .dk = view(dk, ks),
                          .dv = view(dv, ks)},
                         memory, site.exec);
  }
  std::vector<float> results() const {
    std::vector<float> all;
    for (const auto* x : {&out, &lse, &dq, &dk, &dv}) all.insert(all.end(), x->begin(), x->end());
    return all;
  }

  Site site;
  attention_plan<float, causal, Transport, Kernel> plan;
  guarded_memory memory;
  std::pmr::vector<float> q{site.memory}, k{site.memory}, v{site.memory}, out{site.memory}, lse{site.memory},
      dout{site.memory}, dq{site.memory}, dk{site.memory}, dv{site.memory};
};

/// Forward and backward `runs` times, this rank late at random: both axes of its mesh are used again and again. Whether
/// each run had the bits of the first one.
template <class Rank>
bool stays_the_same(Rank& rank, int runs, int seed) {
  std::vector<float> first;
  auto draw = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (int i = 0; i < runs; ++i) {
    rank.fill(0);
    draw = draw * 1664525u + 1013904223u;
    if (draw >> 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw >> 16 & 511));
    check(rank.run());
    rank.site.settle();
    if (i == 0) first = rank.results();
    if (rank.results() != first) return false;
  }
  return true;
}

}  // namespace seqpar::test
