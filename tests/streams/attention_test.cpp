// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention on streams: the bits of attention on the host, whatever the mesh, layouts, masks and options.
#include <doctest/doctest.h>

#include <tests/attention/draw.hpp>
#include <tests/streams/engine.hpp>
#include <tests/support/placed_meshes.hpp>

namespace seqpar::test {
namespace {

template <class T, class Engine>
std::string fault_on(const Engine& on, const problem& p) {
  const tensors in = recipe_tensors(p);
  const outcome<T> got = run_problem_on<T>(on, p, in, late_kernel{});
  const outcome<T> want = run_problem<T>(p, in, host_fast{});
  if (const std::string part = difference(got, want); !part.empty()) return "differs from the host: " + part;
  return fault_of(p, got, definition<T>(p, in));
}

template <class Engine>
void check_drawn(const Engine& on, int most_ranks, std::uint64_t first, int wanted) {
  int done = 0;
  for (std::uint64_t seed = first; done < wanted; ++seed) {
    problem_drawer drawer(seed);
    drawn_problem d = drawer.draw();
    if (std::max<index_t>(d.p.team.ring * d.p.team.all_to_all, d.p.world) > most_ranks) continue;
    d.p.options.joint_gradient = joint_gradient::complete;  // partial sums are added up by the test, not by seqpar
    ++done;
    CAPTURE(seed);
    CAPTURE(d.families);
    if (d.type == 2)
      CHECK(fault_on<bfloat16>(on, d.p) == "");
    else
      CHECK(fault_on<float>(on, d.p) == "");
  }
}
}  // namespace

TEST_CASE("attention over NCCL has the bits of attention on the host") {
  check_drawn(on_nccl{}, std::min(8, devices()), 1, 50);
}

TEST_CASE("attention over threads with streams has the bits of attention on the host") {
  check_drawn(on_device_threads{}, 8, 1001, 25);
  check_drawn(on_device_threads{.one_device = false}, 8, 2001, 25);
}

TEST_CASE("meshes and shares placed by hand give on streams what they give on the host [O2] [O4]") {
  for (const problem& p : placed_meshes(8)) {
    const tensors in = recipe_tensors(p);
    const outcome<float> want = run_problem<float>(p, in, host_fast{});
    CHECK(difference(run_problem_on<float>(on_device_threads{}, p, in, late_kernel{}), want) == "");
    if (devices() >= p.team.ring * p.team.all_to_all)
      CHECK(difference(run_problem_on<float>(on_nccl{}, p, in, late_kernel{}), want) == "");
  }
}

TEST_CASE("gradients have the same bits with overlap and without, whatever the tensors' strides [K2]") {
  for (const mesh_shape& team : {mesh_shape{4, 1}, mesh_shape{1, 4}, mesh_shape{2, 2}})
    for (const strides memory : {strides::packed_qkv, strides::heads_first}) {
      const zigzag layout{.tokens = 37, .ranks = 4};
      const problem p{.q_layout = any_layout(layout, "zigzag"),
                      .kv_layout = any_layout(layout, "zigzag"),
                      .mask = any_mask(causal{}),
                      .shape = {.heads = 4, .kv_heads = 2, .head_dim = 8},
                      .team = team,
                      .memory = memory};
      const tensors in = recipe_tensors(p);
      const outcome<float> want = run_problem<float>(p, in, host_fast{});
      for (const bool overlap : {false, true}) {
        CHECK(difference(run_problem_on<float>(on_device_threads{.overlap = overlap}, p, in, late_kernel{}), want) ==
              "");
        if (devices() >= 4)
          CHECK(difference(run_problem_on<float>(on_nccl{.overlap = overlap}, p, in, late_kernel{}), want) == "");
      }
    }
}

TEST_CASE("queries that visit the keys have the same bits with overlap and without") {
  for (const mesh_shape& team : {mesh_shape{4, 1}, mesh_shape{2, 2}}) {
    const zigzag layout{.tokens = 37, .ranks = 4};
    problem p{.q_layout = any_layout(layout, "zigzag"),
              .kv_layout = any_layout(layout, "zigzag"),
              .mask = any_mask(causal{}),
              .shape = {.heads = 4, .kv_heads = 2, .head_dim = 8},
              .team = team,
              .memory = strides::packed_qkv};
    p.options.moves = {side::queries, side::queries};
    const tensors in = recipe_tensors(p);
    const outcome<float> want = run_problem<float>(p, in, host_fast{});
    for (const bool overlap : {false, true}) {
      CHECK(difference(run_problem_on<float>(on_device_threads{.overlap = overlap}, p, in, late_kernel{}), want) == "");
      if (devices() >= 4)
        CHECK(difference(run_problem_on<float>(on_nccl{.overlap = overlap}, p, in, late_kernel{}), want) == "");
    }
  }
}

TEST_CASE("inputs that a slow stream writes late are sent as written, and may be written over behind the call [K1]") {
  const auto check_on = [](const auto& on, int ranks) {
    for (const bool slow_compute : {true, false})
      on.run({.ranks = ranks}, [&](auto t) {
        using transport = decltype(t);
        stream_rank<transport> usual(t, {ranks, 1}), late(t, {ranks, 1});
        check(usual.run());
        usual.site.settle();
        const std::vector<std::pmr::vector<float>*> inputs{&late.q, &late.k, &late.v, &late.dout};
        const auto write = [&](float poison) {  // stream order: before, or behind, what is already there
          check_cuda(enqueue(late.site.exec.compute, [&late, inputs, poison] {
            if (poison == 0) return late.fill(0);
            for (auto* x : inputs) std::fill(x->begin(), x->end(), poison);
          }));
        };
        for (auto* x : inputs) std::fill(x->begin(), x->end(), -7.f);
        const cudaStream_t slow = slow_compute ? late.site.exec.compute : late.site.exec.exchange;
        check_cuda(enqueue(slow, [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }));
        write(0);
        check(late.run());
        write(-9);
        late.site.settle();
        if (late.results() != usual.results()) raise(error(errc::invalid_argument, "other results"));
      });
  };
  check_on(on_device_threads{}, 2);
  if (devices() >= 2) check_on(on_nccl{}, 2);
}

}  // namespace seqpar::test
