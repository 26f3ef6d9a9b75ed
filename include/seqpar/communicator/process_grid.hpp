// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The world cut into data-, sequence- and tensor-parallel groups.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <seqpar/error.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

enum class parallel { data, sequence, tensor };

/// dp × sp × tp ranks in an explicit order, the fastest axis first. With list L (identity when empty), the rank at
/// coordinates c is L[c_0 + n_0·(c_1 + n_1·c_2)], 0, 1, 2 the axes in that order.
///
///   process_grid grid{.data = 2, .sequence = 4, .tensor = 1};
///   mesh team{world, {.ring = 2, .all_to_all = 2}, grid.group(parallel::sequence, world.rank())};
///
/// Megatron's tp-cp-dp is the default order; DeepSpeed, LongVILA and LongCat are the case tensor = 1.
struct process_grid {
  extent data, sequence, tensor;
  std::array<parallel, 3> order = {parallel::tensor, parallel::sequence, parallel::data};
  std::vector<int> ranks = {};

  index_t size() const { return data * sequence * tensor; }
  index_t size_of(parallel a) const { return a == parallel::data ? data : a == parallel::sequence ? sequence : tensor; }

  /// The ranks that differ from `rank` along one axis only, in ascending coordinate. Fails (error) on a bad grid or
  /// rank.
  template <class = when_used>
  std::vector<int> group(parallel along, int rank) const {
    check();
    index_t position = -1;
    for (index_t i = 0; i < size(); ++i)
      if (at(i) == rank) position = i;
    if (position < 0) raise(detail::invalid("process_grid", {"rank ", rank, " is not in the grid"}));
    index_t stride = 1;
    for (parallel a : order) {
      if (a == along) break;
      stride *= size_of(a);
    }
    const index_t n = size_of(along), first = position - position / stride % n * stride;
    std::vector<int> list;
    for (index_t i = 0; i < n; ++i) list.push_back(at(first + i * stride));
    return list;
  }

 private:
  int at(index_t position) const {
    return ranks.empty() ? static_cast<int>(position) : ranks[static_cast<std::size_t>(position)];
  }
  template <class = when_used>
  void check() const {
    if (data < 1 || sequence < 1 || tensor < 1) raise(detail::invalid("process_grid", "every axis must be at least 1"));
    if (order[0] == order[1] || order[1] == order[2] || order[0] == order[2])
      raise(detail::invalid("process_grid", "the order must name every axis once"));
    if (!ranks.empty() && static_cast<index_t>(ranks.size()) != size())
      raise(detail::invalid("process_grid", {"the list of ranks must have ", size(), " entries, got ", ranks.size()}));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (ranks[i] == ranks[j]) raise(detail::invalid("process_grid", {"rank ", ranks[i], " is listed twice"}));
  }
};

}  // namespace v0_1
}  // namespace seqpar
