// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results on many ranks against those on one.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "table.hpp"

namespace demo {

/// Compares tensors element by element: |got − want| ≤ tolerance·max|want|, where NaN never is.
class comparison {
 public:
  explicit comparison(double tolerance) : tolerance_(tolerance) {}

  void see(const std::string& name, const std::vector<float>& got, const std::vector<float>& want) {
    double range = 0, largest = 0;
    bool good = got.size() == want.size();
    for (float x : want) range = std::max(range, std::abs(double{x}));
    for (std::size_t i = 0; good && i < got.size(); ++i) {
      const double d = std::abs(double{got[i]} - double{want[i]});
      if (!(d <= largest)) largest = d;
      good = d <= tolerance_ * range;
    }
    good_ = good_ && good;
    worst_ = std::max(worst_, range > 0 ? largest / range : 0);
    table_.add({name, count_text(static_cast<std::int64_t>(want.size())), tiny_text(range), tiny_text(largest),
                tiny_text(range > 0 ? largest / range : 0), good ? "equal" : "WRONG"});
  }
  bool good() const { return good_; }
  double worst() const { return worst_; }  ///< largest difference / max|x| of all that were good
  /// The table, with what its columns mean.
  void print() const {
    table_.print();
    std::printf("largest: difference of any element; tolerance %s of max|x|\n\n", tiny_text(tolerance_).c_str());
  }

 private:
  double tolerance_;
  bool good_ = true;
  double worst_ = 0;
  table table_{{"against one rank", "elements", "max|x|", "largest", "/ max|x|", ""}};
};

}  // namespace demo
