// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program's stages on many ranks against the same on one rank for each group.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "table.hpp"

namespace demo {

using seqpar::index_t;

/// What one rank tells of a stage of its work.
struct stage {
  std::string name;
  index_t tokens;                ///< of the stage on this rank
  index_t bytes;                 ///< sent to others
  std::vector<float> result;     ///< alike on all ranks of a group that have it; empty on those that do not
  std::vector<float> also = {};  ///< if not empty: what `result` must be by another road
};

/// The stages of one rank, with the bytes that its traced transport sends.
class stage_log {
 public:
  stage_log(int rank, int ranks) : record_(rank, ranks) {}
  seqpar::flight_record& record() { return record_; }
  /// What was sent until now belongs to no stage: plans agree, say.
  void begin() { sent_before_ = record_.bytes(seqpar::direction::send); }
  void end(std::string name, index_t tokens, std::vector<float> result, std::vector<float> also = {}) {
    const index_t bytes = record_.bytes(seqpar::direction::send) - sent_before_;
    stages_.push_back({std::move(name), tokens, bytes, std::move(result), std::move(also)});
    begin();
  }
  const std::vector<stage>& stages() const { return stages_; }

 private:
  seqpar::flight_record record_;
  index_t sent_before_ = 0;
  std::vector<stage> stages_;
};

inline const stage& stage_of(const std::vector<stage>& stages, const std::string& name) {
  return *std::find_if(stages.begin(), stages.end(), [&](const stage& s) { return s.name == name; });
}

/// max|got − want| / max|want|; infinite where they cannot be compared.
inline double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  constexpr double never = std::numeric_limits<double>::infinity();
  double range = 0, largest = 0;
  if (got.size() != want.size()) return never;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = static_cast<double>(want[i]), d = std::abs(static_cast<double>(got[i]) - x);
    if (!std::isfinite(d)) return never;
    range = std::max(range, std::abs(x));
    largest = std::max(largest, d);
  }
  return largest > 0 ? largest / range : 0;
}

/// Prints a line per stage; whether every element is within tolerance·max|x| of what one rank has. many[g·size + i] is
/// rank i of group g, of which the first has all results; one[g] is the one rank that did the work of that group.
inline bool compare_stages(const std::vector<std::vector<stage>>& many, const std::vector<std::vector<stage>>& one,
                           double tolerance) {
  table lines({"stage", "tokens a rank", "sent by all", "elements", "largest / max|x|", ""});
  const std::size_t size = many.size() / one.size();
  bool good = true;
  for (std::size_t s = 0; s < one[0].size(); ++s) {
    index_t least = many[0][s].tokens, most = least, sent = 0;
    double largest = 0;
    for (std::size_t r = 0; r < many.size(); ++r) {
      const stage& got = many[r][s];
      least = std::min(least, got.tokens);
      most = std::max(most, got.tokens);
      sent += got.bytes;
      if (r % size != 0 && got.result.empty()) continue;
      largest = std::max(largest, relative_difference(got.result, one[r / size][s].result));
      if (!got.also.empty()) largest = std::max(largest, relative_difference(got.result, got.also));
    }
    good = good && largest <= tolerance;
    lines.add({one[0][s].name, least == most ? count_text(least) : count_text(least) + "/" + count_text(most),
               bytes_text(sent), count_text(static_cast<index_t>(one[0][s].result.size())), tiny_text(largest),
               largest <= tolerance ? "equal" : "WRONG"});
  }
  lines.print();
  std::printf("\nlargest: difference of any element from one rank, over max|x| of its tensor; tolerance %s\n",
              tiny_text(tolerance).c_str());
  return good;
}

}  // namespace demo
