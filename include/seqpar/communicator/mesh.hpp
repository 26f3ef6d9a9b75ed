// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who talks to whom: R × U ranks of a transport, U exchange heads (all-to-all), R pass sequence blocks (ring).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/transport/concept.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The shape of a mesh. `inside` is the axis whose members are neighbours in the list of ranks:
/// axis::all_to_all: index = r·U + u;  axis::ring: index = u·R + r.
struct mesh_shape {
  extent ring;
  extent all_to_all;
  axis inside = axis::all_to_all;

  constexpr int size() const { return static_cast<int>(ring * all_to_all); }
  constexpr int ring_of(int member) const {
    return static_cast<int>(inside == axis::all_to_all ? member / all_to_all : member % ring);
  }
  constexpr int all_to_all_of(int member) const {
    return static_cast<int>(inside == axis::all_to_all ? member % all_to_all : member / ring);
  }
  constexpr int member_at(int r, int u) const {
    return static_cast<int>(inside == axis::all_to_all ? r * all_to_all + u : u * ring + r);
  }
};

/// Which ranks of the transport the peers of a route are: all members of a mesh, or those along one of its axes, at
/// even distances in its list. A view of that list.
struct peer_ranks {
  const int* ranks;
  int first, step;
  int rank_of(int peer) const { return ranks[first + peer * step]; }
};

/// Members 0 … R·U−1, each a rank of the transport; layouts, shards and reports speak of members, messages of ranks.
/// The order of the list is the order of the members. Copies share the transport, which must outlive them.
///
/// Fails (constructor, error): sizes below 1, list ≠ R·U ranks, a rank twice or out of range, this rank not in the
/// list. Source: ring and Ulysses attention as the two ends, USP and LoongTrain's 2-D attention between them.
template <transport Transport>
class mesh {
 public:
  using transport_type = Transport;

  /// All ranks of the transport, in order.
  mesh(const Transport& world, mesh_shape shape) : mesh(world, shape, iota(world.size())) {}

  mesh(const Transport& world, mesh_shape shape, std::vector<int> ranks)
      : transport_(world), shape_(shape), ranks_(std::move(ranks)) {
    if (failure f = problem_of(world, shape, ranks_)) raise(*f);
    index_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), world.rank()) - ranks_.begin());
  }

  /// What keeps these from being a mesh with this rank in it; try_mesh returns it.
  static failure problem_of(const Transport& world, mesh_shape shape, const std::vector<int>& ranks) {
    const auto wrong = [](detail::words what) { return detail::invalid("mesh", what); };
    const index_t n = static_cast<index_t>(ranks.size());
    if (shape.ring < 1 || shape.all_to_all < 1) return wrong({"ring and all_to_all must be at least 1"});
    if (n % shape.ring != 0 || n / shape.ring != shape.all_to_all)
      return wrong({"ring ", shape.ring, " x all_to_all ", shape.all_to_all, " is not the number of ranks, ", n,
                    "; start as many as the product, or give a list of so many ranks"});
    std::vector<bool> seen(static_cast<std::size_t>(world.size()), false);
    for (int rank : ranks) {
      if (rank < 0 || rank >= world.size())
        return wrong({"rank ", rank, " is not a rank of the transport, which has ", world.size(),
                      "; take a smaller process_grid or list, or start more ranks"});
      if (seen[static_cast<std::size_t>(rank)]) return wrong({"rank ", rank, " is listed twice"});
      seen[static_cast<std::size_t>(rank)] = true;
    }
    if (!seen[static_cast<std::size_t>(world.rank())])
      return wrong({"rank ", world.rank(), " builds a mesh that it is not a member of"});
    return {};
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  bool moved_from() const { return ranks_.empty(); }  ///< else it has members
  int index() const { return index_; }                ///< which member this rank is
  int ring_size() const { return static_cast<int>(shape_.ring); }
  int all_to_all_size() const { return static_cast<int>(shape_.all_to_all); }
  int ring_of(int member) const { return shape_.ring_of(member); }
  int all_to_all_of(int member) const { return shape_.all_to_all_of(member); }
  int member_at(int ring, int all_to_all) const { return shape_.member_at(ring, all_to_all); }
  const mesh_shape& shape() const { return shape_; }
  int rank_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  const std::vector<int>& ranks() const { return ranks_; }
  const Transport& transport() const { return transport_; }
  operator peer_ranks() const { return {ranks_.data(), 0, 1}; }
  /// The ranks along one axis through (ring, all_to_all); valid while this mesh is.
  peer_ranks along(axis a, int ring, int all_to_all) const {
    return a == axis::ring ? peer_ranks{ranks_.data(), member_at(0, all_to_all), member_at(1, 0)}
                           : peer_ranks{ranks_.data(), member_at(ring, 0), member_at(0, 1)};
  }

 private:
  static std::vector<int> iota(int n) {
    std::vector<int> list(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) list[static_cast<std::size_t>(i)] = i;
    return list;
  }

  Transport transport_;
  mesh_shape shape_;
  std::vector<int> ranks_;
  int index_ = -1;
};

namespace detail {
template <class M>
concept is_mesh = requires(const M& team) {
  []<class World>(const mesh<World>&) {}(team);
};

/// The text for who gives something else, a transport say, where a mesh is meant.
template <class Team>
constexpr void explain_mesh() {
  static_assert(is_mesh<Team>,
                "[seqpar] a plan takes a mesh, not a transport: give ring(world), all_to_all(world) or "
                "mesh(world, {.ring = R, .all_to_all = U})");
}
}  // namespace detail

/// A mesh, or the error that its constructor raises.
template <transport Transport>
result<mesh<Transport>> try_mesh(const Transport& world, mesh_shape shape, std::vector<int> ranks) {
  if (failure f = mesh<Transport>::problem_of(world, shape, ranks)) return *f;
  return mesh<Transport>(world, shape, std::move(ranks));
}

/// P × 1: every rank passes blocks of the sequence.
template <transport Transport>
mesh<Transport> ring(const Transport& world) {
  return {world, {.ring = world.size(), .all_to_all = 1}};
}
template <transport Transport>
mesh<Transport> ring(const Transport& world, std::vector<int> ranks) {
  const auto n = ranks.size();
  return {world, {.ring = n, .all_to_all = 1}, std::move(ranks)};
}

/// 1 × P: every rank exchanges heads with every other.
template <transport Transport>
mesh<Transport> all_to_all(const Transport& world) {
  return {world, {.ring = 1, .all_to_all = world.size()}};
}
template <transport Transport>
mesh<Transport> all_to_all(const Transport& world, std::vector<int> ranks) {
  const auto n = ranks.size();
  return {world, {.ring = 1, .all_to_all = n}, std::move(ranks)};
}

}  // namespace v0_1
}  // namespace seqpar
