// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention by the kernels of CUDA devices: the problems that the host's tests draw, over every transport of streams.
#include <doctest/doctest.h>

#include <seqpar/seqpar.hpp>
#include <tests/attention/draw.hpp>
#include <tests/cuda/engine.hpp>

namespace seqpar::test {
namespace {

using kernel = cuda::attention<cuda::head_class<32>>;

/// P and dS are rounded to T once each.
constexpr double products = 2;

template <class T, class Engine, class Mask = any_mask>
std::string fault_on(const Engine& on, const problem& p, const Mask& mask) {
  const tensors in = recipe_tensors(p);
  const outcome<T> got = run_problem_on<T>(on, p, in, kernel{}, mask);
  if (const std::string found = complaints(); !found.empty()) return found;
  return fault_of(p, got, definition<T>(p, in), std::same_as<T, float> ? 0 : products);
}

/// A window over frames × height × width, asked pair by pair; and by coordinates, worked out once a row.
struct window_3d {
  index_t height, width, reach_t, reach_h, reach_w;
  struct coordinate {
    std::int32_t t, h, w, unused;
  };
  SEQPAR_HD coordinate coordinate_of(index_t position) const {
    const index_t frame = position / (height * width), in_frame = position - frame * height * width;
    return {static_cast<std::int32_t>(frame), static_cast<std::int32_t>(in_frame / width),
            static_cast<std::int32_t>(in_frame % width), 0};
  }
  SEQPAR_HD static bool near(std::int32_t a, std::int32_t b, index_t reach) { return a - b <= reach && b - a <= reach; }
  SEQPAR_HD bool allows_at(const coordinate& q, const coordinate& k) const {
    return near(q.t, k.t, reach_t) && near(q.h, k.h, reach_h) && near(q.w, k.w, reach_w);
  }
  SEQPAR_HD bool allows(index_t q, index_t k) const { return allows_at(coordinate_of(q), coordinate_of(k)); }
};
/// The same without coordinates.
struct asked_window : private window_3d {
  explicit asked_window(const window_3d& w) : window_3d(w) {}
  SEQPAR_HD bool allows(index_t q, index_t k) const { return window_3d::allows(q, k); }
};

/// In every type, or in bfloat16 alone: which type it is, kernels know and transports do not.
template <bool Every, class Engine>
void check_drawn(const Engine& on, int most_ranks, std::uint64_t first, int wanted) {
  int done = 0;
  for (std::uint64_t seed = first; done < wanted; ++seed) {
    problem_drawer drawer(seed);
    drawn_problem d = drawer.draw();
    if (std::max<index_t>(d.p.team.ring * d.p.team.all_to_all, d.p.world) > most_ranks || !fits_in_intervals(d.p))
      continue;
    d.p.options.joint_gradient = joint_gradient::complete;
    ++done;
    CAPTURE(seed);
    CAPTURE(d.families);
    if constexpr (Every) {
      if (d.type == 0) CHECK(fault_on<float>(on, d.p, d.p.mask) == "");
      if (d.type == 1) CHECK(fault_on<float16>(on, d.p, d.p.mask) == "");
    }
    if (!Every || d.type == 2) CHECK(fault_on<bfloat16>(on, d.p, d.p.mask) == "");
  }
}
}  // namespace

TEST_CASE("attention by the kernels over NCCL is right: any layout, mesh and mask of intervals") {
  check_drawn<false>(nccl_threads<on_kernels>{}, std::min(4, devices()), 1, 12);
}

TEST_CASE("attention by the kernels over threads with streams is right: any layout, mesh and mask of intervals") {
  check_drawn<true>(device_threads<on_kernels>{}, 4, 1001, 12);
}

TEST_CASE("queries that visit the keys are merged by the kernels at home: as right as keys that move") {
  const zigzag layout{.tokens = 70, .ranks = 4};
  problem p{.q_layout = any_layout(layout, "zigzag"),
            .kv_layout = any_layout(layout, "zigzag"),
            .mask = any_mask(all_of{causal{}, window{.left = 30, .right = 0}}),
            .shape = {.batch = 2, .heads = 6, .kv_heads = 3, .head_dim = 16},
            .team = {2, 2}};
  p.options.passes = forward_backward;
  p.options.moves = {side::queries, side::queries};
  CHECK(fault_on<bfloat16>(device_threads<on_kernels>{}, p, p.mask) == "");
  p.team = {4, 1};
  CHECK(fault_on<float>(device_threads<on_kernels>{}, p, p.mask) == "");
}

TEST_CASE("a functor mask runs in the kernels as it is, with coordinates and without") {
  const window_3d window{.height = 4, .width = 5, .reach_t = 1, .reach_h = 1, .reach_w = 2};
  const grid layout{.frames = 4, .height = 4, .width = 5, .split_h = 2, .split_w = 1};
  problem p{.q_layout = any_layout(layout, "grid"),
            .kv_layout = any_layout(layout, "grid"),
            .mask = any_mask(window),
            .shape = {.heads = 2, .kv_heads = 1, .head_dim = 16},
            .team = {2, 1}};
  p.options.passes = forward_backward;
  CHECK(fault_on<bfloat16>(device_threads<on_kernels>{}, p, window) == "");
  CHECK(fault_on<float16>(device_threads<on_kernels>{}, p, asked_window(window)) == "");
  CHECK(fault_on<float>(device_threads<on_kernels>{}, p, window) == "");
}

TEST_CASE("a mask that the kernels cannot ask is refused while planning, the same on every rank") {
  const any_mask wild(window_3d{.height = 2, .width = 3, .reach_t = 1, .reach_h = 0, .reach_w = 1});
  std::vector<recorded_message> log;
  const auto plan = try_plan_attention<float>(ring(recorder(0, 2, log)), contiguous{.tokens = 12, .ranks = 2}, wild,
                                              {.heads = 1, .kv_heads = 1, .head_dim = 8}, {}, kernel{});
  REQUIRE(!plan.ok());
  CHECK(std::string(plan.failure().what()).find("this kernel cannot ask this type of mask") != std::string::npos);
}

TEST_CASE(
    "forward and backward by kernels are captured in their first run, and a replay has the bits of an eager run") {
  using site = basic_stream_site<on_kernels>;
  for (const mesh_shape& shape : {mesh_shape{1, 1}, mesh_shape{2, 1}, mesh_shape{1, 2}}) {
    if (shape.ring * shape.all_to_all > devices()) continue;
    nccl_threads<on_kernels>{}.run({.ranks = shape.ring * shape.all_to_all}, [&](nccl::transport t) {
      small_rank<nccl::transport, kernel, site> eager(t, shape), replayed(t, shape);
      compare_replays(eager, replayed, 2);
    });
  }
  CHECK(complaints() == "");
}

}  // namespace seqpar::test
