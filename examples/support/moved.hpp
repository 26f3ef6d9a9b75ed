// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What moved in each step of a run, beside what was wanted.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "table.hpp"

namespace demo {

using seqpar::index_t;

using bytes_of_steps = std::vector<std::pair<std::string, index_t>>;

/// Counts the bytes that one rank sends from now on, step by step, from the record of a traced transport.
class meter {
 public:
  explicit meter(const seqpar::flight_record& record) : record_(record) { skip(); }
  /// What was sent since the last call belongs to no step (plans agree, say).
  void skip() { seen_ = record_.bytes(seqpar::direction::send); }
  /// What was sent since the last call belongs to `step`.
  void note(const std::string& step) {
    const index_t before = std::exchange(seen_, record_.bytes(seqpar::direction::send));
    if (steps_.empty() || steps_.back().first != step) steps_.emplace_back(step, 0);
    steps_.back().second += seen_ - before;
  }
  const bytes_of_steps& steps() const { return steps_; }

 private:
  const seqpar::flight_record& record_;
  index_t seen_ = 0;
  bytes_of_steps steps_;
};

/// Prints the sums over ranks beside what was wanted, step by step; are they equal?
inline bool print_moved(const std::vector<bytes_of_steps>& of_ranks, const bytes_of_steps& wanted) {
  table t({"all ranks together", "moved", "wanted", ""});
  bool good = true;
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    index_t moved = 0;
    bool same = true;
    for (const bytes_of_steps& steps : of_ranks) {
      same = same && steps.size() == wanted.size() && steps[s].first == wanted[s].first;
      if (same) moved += steps[s].second;
    }
    same = same && moved == wanted[s].second;
    good = good && same;
    t.add({wanted[s].first, bytes_text(moved), bytes_text(wanted[s].second), same ? "equal" : "WRONG"});
  }
  t.print();
  std::printf("\n");
  return good;
}

}  // namespace demo
