// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sets of positions kept by where their intervals end, modulo a turn: to count the rows of cards dealt in turns.
#pragma once

#include <vector>

#include <seqpar/cost/pieces.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// A set of positions for each member, by the ends of its intervals modulo `turn`: all it takes to count the rows of a
/// run with this step that passes over all of them.
class ends_in_turns {
 public:
  ends_in_turns() = default;
  ends_in_turns(index_t turn, std::size_t members) : turn_(turn), by_turn_(turn), sizes_(members) {
    ends_.resize(members * static_cast<std::size_t>(turn));
  }
  bool empty() const { return sizes_.empty(); }
  void add(std::size_t member, interval i, index_t times = 1) {
    sizes_[member] += times * i.size();
    index_t* ends = ends_.data() + member * static_cast<std::size_t>(turn_);
    if (i.hi != hi_) rest_of_hi_ = in_turn(hi_ = i.hi);  // most intervals of a piece end together
    ends[rest_of_hi_] += times;
    ends[in_turn(i.lo)] -= times;
  }
  void add(std::size_t member, const comb& c) {
    if (in_turn(c.step) == 0) return add(member, c.first, c.count);
    for (index_t i = 0; i < c.count; ++i) add(member, c.tooth(i));
  }
  index_t size(std::size_t member) const { return sizes_[member]; }
  /// Rows first + i·turn: Σ ⌈(hi − first) / turn⌉ − ⌈(lo − first) / turn⌉.
  index_t rows(std::size_t member, index_t first) const {
    const index_t* ends = ends_.data() + member * static_cast<std::size_t>(turn_);
    index_t in_turns = sizes_[member], rest = 0;
    for (index_t x = 0; x < turn_; ++x) {
      in_turns -= x * ends[x];
      rest += x > first ? ends[x] : 0;
    }
    return in_turns / turn_ + rest;
  }

 private:
  index_t in_turn(index_t x) const { return x - x / by_turn_ * turn_; }
  index_t turn_ = 0;
  divisor by_turn_{1};
  index_t hi_ = 0, rest_of_hi_ = 0;
  std::vector<index_t> sizes_, ends_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
