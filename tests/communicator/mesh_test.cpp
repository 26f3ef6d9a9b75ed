// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is whose neighbour: meshes in both placements, process grids, and exchanges over groups of a larger world.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/communicator/process_grid.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/threads.hpp>

using namespace seqpar;
using groups = std::vector<std::vector<int>>;

namespace {

/// Rank r of a world of n that moves nothing.
struct world_of {
  explicit world_of(int n) : size(n) {}
  recorder rank(int r) { return {r, size, log}; }
  int size;
  std::vector<recorded_message> log{};
};

/// All groups of the mesh along one axis, each in the order of its members.
template <class Mesh>
groups groups_of(const Mesh& m, axis along) {
  groups all;
  const bool ring = along == axis::ring;
  for (int other = 0; other < (ring ? m.all_to_all_size() : m.ring_size()); ++other) {
    std::vector<int> one;
    for (int i = 0; i < (ring ? m.ring_size() : m.all_to_all_size()); ++i) {
      const int r = ring ? i : other, u = ring ? other : i;
      one.push_back(m.rank_of(m.member_at(r, u)));
      CHECK(m.along(along, r, u).rank_of(i) == one.back());
    }
    all.push_back(one);
  }
  return all;
}
groups groups_of(const process_grid& g, parallel along) {
  groups all;
  for (int r = 0; r < static_cast<int>(g.size()); ++r) {
    const int rank = g.ranks.empty() ? r : g.ranks[static_cast<std::size_t>(r)];
    const std::vector<int> one = g.group(along, rank);
    if (one.front() == rank) all.push_back(one);
  }
  return all;
}
template <class F>
std::string told(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// What every rank of `ranks` holds after a gather of zigzag shards labelled by global position.
template <class Team>
std::vector<float> gathered(const Team& team, index_t tokens) {
  const zigzag l{.tokens = tokens, .ranks = team.size()};
  auto plan = plan_gather(team, l, {.row_bytes = sizeof(float)});
  const host_memory memory(plan.memory());
  plan.prepare(memory, on_host{});
  std::vector<float> in, out(static_cast<std::size_t>(tokens), -1);
  for (index_t i = 0; i < l.count_of(team.index()); ++i) in.push_back(static_cast<float>(l.global_of(team.index(), i)));
  check(plan.forward(in.data(), out.data(), memory, on_host{}));
  return out;
}
std::vector<float> naturals(index_t n) {
  std::vector<float> x;
  for (index_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i));
  return x;
}

}  // namespace

TEST_CASE("the groups of a mesh in a world of 8, in both placements, are those of the public systems") {
  world_of world(8);
  const auto mesh_of = [&](int ring, int all_to_all, axis inside) {
    return mesh(world.rank(0), {.ring = ring, .all_to_all = all_to_all, .inside = inside});
  };
  const mesh u2r4 = mesh_of(4, 2, axis::all_to_all), u2r4_high = mesh_of(4, 2, axis::ring);
  CHECK(groups_of(u2r4, axis::all_to_all) == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(u2r4, axis::ring) == groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(groups_of(u2r4_high, axis::all_to_all) == groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(u2r4_high, axis::ring) == groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  const mesh u4r2 = mesh_of(2, 4, axis::all_to_all), u4r2_high = mesh_of(2, 4, axis::ring);
  CHECK(groups_of(u4r2, axis::all_to_all) == groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_of(u4r2, axis::ring) == groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(u4r2_high, axis::all_to_all) == groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(groups_of(u4r2_high, axis::ring) == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
}

TEST_CASE("a mesh inside each data-parallel group, in both placements") {
  const process_grid grid{.data = 2, .sequence = 4, .tensor = 1};
  groups a2a, ring, a2a_high, ring_high;
  for (int rank : {0, 4}) {
    world_of world(8);
    const std::vector<int> list = grid.group(parallel::sequence, rank);
    const mesh low(world.rank(rank), {.ring = 2, .all_to_all = 2}, list);
    const mesh high(world.rank(rank), {.ring = 2, .all_to_all = 2, .inside = axis::ring}, list);
    for (const auto& g : groups_of(low, axis::all_to_all)) a2a.push_back(g);
    for (const auto& g : groups_of(low, axis::ring)) ring.push_back(g);
    for (const auto& g : groups_of(high, axis::all_to_all)) a2a_high.push_back(g);
    for (const auto& g : groups_of(high, axis::ring)) ring_high.push_back(g);
  }
  CHECK(a2a == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(ring == groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(a2a_high == groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(ring_high == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
}

TEST_CASE("every member has one place, and ring_of, all_to_all_of and member_at undo each other") {
  for (axis inside : {axis::all_to_all, axis::ring})
    for (int r = 1; r <= 4; ++r)
      for (int u = 1; u <= 4; ++u) {
        world_of world(r * u);
        const mesh m(world.rank(r * u - 1), {.ring = r, .all_to_all = u, .inside = inside});
        CHECK(m.size() == r * u);
        CHECK(m.index() == r * u - 1);
        for (int i = 0; i < m.size(); ++i) CHECK(m.member_at(m.ring_of(i), m.all_to_all_of(i)) == i);
      }
  world_of world(4);
  const mesh all = ring(world.rank(2)), heads = all_to_all(world.rank(2));
  CHECK((all.ring_size() == 4 && all.all_to_all_size() == 1));
  CHECK((heads.ring_size() == 1 && heads.all_to_all_size() == 4));
}

TEST_CASE("the groups of process grids are those of the public systems") {
  const process_grid longcat{.data = 2, .sequence = 4, .tensor = 1};
  CHECK(groups_of(longcat, parallel::sequence) == groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_of(longcat, parallel::data) == groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_of(longcat, parallel::tensor) == groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
  const process_grid megatron{.data = 2, .sequence = 2, .tensor = 2};
  CHECK(groups_of(megatron, parallel::tensor) == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(megatron, parallel::sequence) == groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_of(megatron, parallel::data) == groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const process_grid data_first{
      .data = 2, .sequence = 2, .tensor = 2, .order = {parallel::data, parallel::tensor, parallel::sequence}};
  CHECK(groups_of(data_first, parallel::data) == groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_of(data_first, parallel::sequence) == groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const process_grid placed{.data = 1,
                            .sequence = 4,
                            .tensor = 1,
                            .order = {parallel::tensor, parallel::sequence, parallel::data},
                            .ranks = {0, 2, 1, 3}};
  CHECK(placed.group(parallel::sequence, 1) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("along each axis the groups of a process grid are a partition") {
  for (const process_grid& g :
       {process_grid{.data = 3, .sequence = 2, .tensor = 4},
        process_grid{
            .data = 1, .sequence = 5, .tensor = 2, .order = {parallel::sequence, parallel::data, parallel::tensor}}})
    for (parallel along : {parallel::data, parallel::sequence, parallel::tensor}) {
      std::vector<int> seen(static_cast<std::size_t>(g.size()), 0);
      for (const auto& group : groups_of(g, along)) {
        CHECK(static_cast<index_t>(group.size()) == g.size_of(along));
        for (int r : group) {
          ++seen[static_cast<std::size_t>(r)];
          CHECK(g.group(along, r) == group);
        }
      }
      CHECK(seen == std::vector<int>(seen.size(), 1));
    }
}

TEST_CASE("a bad mesh or process grid is refused in words") {
  world_of world(4);
  const auto mesh_told = [&](mesh_shape shape, std::vector<int> list) {
    return told([&] { (void)mesh(world.rank(0), shape, std::move(list)); });
  };
  CHECK(mesh_told({.ring = 2, .all_to_all = 2}, {0, 1, 2, 3}) == "");
  CHECK(contains(mesh_told({.ring = 0, .all_to_all = 2}, {}), "at least 1"));
  CHECK(mesh_told({.ring = 2, .all_to_all = 2}, {0, 1, 2}) ==
        "[seqpar] mesh: ring 2 x all_to_all 2 is not the number of ranks, 3; start as many as the product, or give "
        "a list of so many ranks");
  CHECK(contains(mesh_told({.ring = 2, .all_to_all = 1}, {0, 4}),
                 "rank 4 is not a rank of the transport, which has 4; take a smaller process_grid"));
  CHECK(contains(mesh_told({.ring = 2, .all_to_all = 1}, {-1, 0}), "rank -1 is not a rank of the transport"));
  CHECK(contains(mesh_told({.ring = 2, .all_to_all = 1}, {0, 0}), "rank 0 is listed twice"));
  CHECK(contains(mesh_told({.ring = 2, .all_to_all = 1}, {1, 2}), "rank 0 builds a mesh that it is not a member of"));
  CHECK(contains(told([&] { (void)mesh(world.rank(0), {.ring = 3, .all_to_all = 2}); }),
                 "is not the number of ranks, 4"));

  const auto grid_told = [](const process_grid& g, int rank = 0) {
    return told([&] { (void)g.group(parallel::sequence, rank); });
  };
  CHECK(contains(grid_told({.data = 0, .sequence = 2, .tensor = 1}), "every axis must be at least 1"));
  CHECK(contains(grid_told({.data = 2, .sequence = 2, .tensor = 1}, 4), "rank 4 is not in the grid"));
  CHECK(contains(
      grid_told({.data = 2, .sequence = 2, .tensor = 1, .order = {parallel::data, parallel::data, parallel::tensor}}),
      "every axis once"));
  CHECK(contains(grid_told({.data = 2,
                            .sequence = 2,
                            .tensor = 1,
                            .order = {parallel::tensor, parallel::sequence, parallel::data},
                            .ranks = {0, 1, 2}}),
                 "must have 4 entries, got 3"));
  CHECK(contains(grid_told({.data = 2,
                            .sequence = 2,
                            .tensor = 1,
                            .order = {parallel::tensor, parallel::sequence, parallel::data},
                            .ranks = {0, 1, 2, 2}}),
                 "rank 2 is listed twice"));
}

TEST_CASE("a group that is not the world, in any order, gathers in the order given [O1]") {
  for (const std::vector<int>& list : {std::vector<int>{2, 3}, {3, 1}, {0, 3}, {3, 0, 2}})
    run_ranks(4, [&](threads::transport world) {
      for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i] == world.rank()) {
          const mesh team = ring(world, list);
          if (team.index() != static_cast<int>(i) || team.rank_of(team.index()) != world.rank())
            raise(error(errc::invalid_argument, "index"));
          if (gathered(team, 11) != naturals(11)) raise(error(errc::invalid_argument, "order"));
        }
    });
}

TEST_CASE("two groups of one world work side by side [O1]") {
  threads::options options{.ranks = 4};
  options.adversary = 3;
  run_ranks(options, [](threads::transport world) {
    const mesh team = world.rank() % 2 == 0 ? ring(world, {2, 0}) : ring(world, {1, 3});
    for (int i = 0; i < 20; ++i)
      if (gathered(team, 7 + world.rank() % 2) != naturals(7 + world.rank() % 2))
        raise(error(errc::invalid_argument, "order"));
  });
}

TEST_CASE("zigzag inside a hybrid mesh: each ring member sees ascending positions after the exchange [O2]") {
  const nested<zigzag, contiguous> l{{.tokens = 16, .ranks = 2}, {.tokens = 8, .ranks = 4}};
  const std::vector<std::vector<float>> shards{{0, 1}, {2, 3}, {12, 13}, {14, 15}, {4, 5}, {6, 7}, {8, 9}, {10, 11}};
  const std::vector<float> seen[] = {{0, 1, 2, 3, 12, 13, 14, 15}, {4, 5, 6, 7, 8, 9, 10, 11}};
  run_ranks(8, [&](threads::transport world) {
    const mesh whole(world, {.ring = 2, .all_to_all = 4});
    std::vector<float> mine;
    for (index_t i = 0; i < l.count_of(whole.index()); ++i)
      mine.push_back(static_cast<float>(l.global_of(whole.index(), i)));
    if (mine != shards[static_cast<std::size_t>(world.rank())]) raise(error(errc::invalid_argument, "shard"));
    const int r = whole.ring_of(whole.index());
    std::vector<int> members;
    for (int u = 0; u < 4; ++u) members.push_back(whole.rank_of(whole.member_at(r, u)));
    auto plan =
        plan_gather(all_to_all(world, members), contiguous{.tokens = 8, .ranks = 4}, {.row_bytes = sizeof(float)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> out(8);
    check(plan.forward(mine.data(), out.data(), memory, on_host{}));
    if (out != seen[r]) raise(error(errc::invalid_argument, "order"));
  });
}

TEST_CASE("two communicators over the same ranks, used in turn with random delays, never mix or hang [O3]") {
  threads::options options{.ranks = 4};
  options.adversary = 11;
  options.deadline = std::chrono::seconds(20);
  run_ranks(options, [](threads::transport world) {
    const mesh whole(world, {.ring = 2, .all_to_all = 2});
    const int r = whole.ring_of(whole.index()), u = whole.all_to_all_of(whole.index());
    const mesh row = all_to_all(world, {whole.member_at(r, 0), whole.member_at(r, 1)});
    const mesh column = ring(world, {whole.member_at(0, u), whole.member_at(1, u)});
    const contiguous l{.tokens = 6, .ranks = 2};
    auto along_row = plan_gather(row, l, {.row_bytes = sizeof(float)}),
         along_column = plan_gather(column, l, {.row_bytes = sizeof(float)});
    const host_memory a(along_row.memory()), b(along_column.memory());
    along_row.prepare(a, on_host{});
    along_column.prepare(b, on_host{});
    for (int i = 0; i < 1000; ++i) {
      const auto mark = [i](int rank) { return static_cast<float>(10 * i + rank); };
      const std::vector<float> in(3, mark(world.rank()));
      std::vector<float> out(6), din(3);
      check(along_row.forward(in.data(), out.data(), a, on_host{}));
      if (out[0] != mark(whole.member_at(r, 0)) || out[5] != mark(whole.member_at(r, 1)))
        raise(error(errc::invalid_argument, "row"));
      check(along_column.forward(in.data(), out.data(), b, on_host{}));
      if (out[0] != mark(whole.member_at(0, u)) || out[5] != mark(whole.member_at(1, u)))
        raise(error(errc::invalid_argument, "column"));
      if (i % 10 != 0) continue;
      check(along_column.adjoint<float>(out.data(), din.data(), b, on_host{}));
      check(along_row.adjoint<float>(out.data(), din.data(), a, on_host{}));
    }
  });
}

TEST_CASE("a mesh built from ranks 0, 2, 1, 3 keeps natural order and its all-to-all pairs [O4]") {
  run_ranks(4, [](threads::transport world) {
    const mesh team(world, {.ring = 2, .all_to_all = 2}, {0, 2, 1, 3});
    if (groups_of(team, axis::all_to_all) != groups{{0, 2}, {1, 3}}) raise(error(errc::invalid_argument, "pairs"));
    if (gathered(team, 16) != naturals(16)) raise(error(errc::invalid_argument, "gather"));
    const zigzag from{.tokens = 16, .ranks = 4};
    const striped to{.tokens = 16, .ranks = 4};
    auto plan = plan_reshard(team, from, to, {.row_bytes = sizeof(float)});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> in, out(4);
    for (index_t i = 0; i < 4; ++i) in.push_back(static_cast<float>(from.global_of(team.index(), i)));
    check(plan.forward(in.data(), out.data(), memory, on_host{}));
    for (index_t i = 0; i < 4; ++i)
      if (out[static_cast<std::size_t>(i)] != static_cast<float>(to.global_of(team.index(), i)))
        raise(error(errc::invalid_argument, "reshard"));
  });
}
