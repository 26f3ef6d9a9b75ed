// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A layout that owns its runs: what a solver returns, and any other layout written down.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/layout/segments.hpp>

namespace seqpar {
inline namespace v0_1 {

/// `segments` with its tables inside: rank r owns of_rank[r], end to end.
class dealt {
 public:
  explicit dealt(const std::vector<std::vector<run>>& of_rank) : offsets_(1, 0) {
    for (const std::vector<run>& list : of_rank) {
      runs_.insert(runs_.end(), list.begin(), list.end());
      offsets_.push_back(static_cast<index_t>(runs_.size()));
    }
  }
  template <sequence_layout L>
  static dealt from(const L& layout) {
    std::vector<std::vector<run>> of_rank(static_cast<std::size_t>(layout.rank_count()));
    for (int r = 0; r < layout.rank_count(); ++r)
      seqpar::for_each_run(layout, r, [&](run x) { of_rank[static_cast<std::size_t>(r)].push_back(x); });
    return dealt(of_rank);
  }

  segments view() const& { return {runs_, offsets_}; }
  segments view(a_view_must_not_outlive_its_table = {}) const&& = delete;
  index_t token_count() const { return view().token_count(); }
  int rank_count() const { return view().rank_count(); }
  index_t count_of(int rank) const { return view().count_of(rank); }
  index_t global_of(int rank, index_t local) const { return view().global_of(rank, local); }
  place place_of(index_t global) const { return view().place_of(global); }
  template <class F>
  void for_each_run(int rank, F&& f) const {
    view().for_each_run(rank, f);
  }
  flaw problem() const { return view().problem(); }
  friend bool operator==(const dealt& a, const dealt& b) { return a.runs_ == b.runs_ && a.offsets_ == b.offsets_; }

 private:
  std::vector<run> runs_;
  std::vector<index_t> offsets_;
};

}  // namespace v0_1
}  // namespace seqpar
