// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A picture of a run on paper: what every rank does when, and what comes to it.
#pragma once

#include <string>
#include <vector>

#include <seqpar/cost/timeline.hpp>

#include "svg.hpp"
#include "table.hpp"

namespace demo {

/// A band for each rank: above, computing in its colour, copying grey, waiting white; below, the transfers that arrive,
/// in the sender's colour. Several timelines follow one another.
inline std::string draw_timelines(const std::string& title, const std::vector<seqpar::timeline>& passes, int ranks) {
  using kind = seqpar::timeline_span::kind;
  constexpr double margin = 24, left = 90, width = 1000, high = 14, low = 6, pitch = 28, top = 84;
  const int shown = std::min(ranks, 64);
  double total = 0;
  for (const seqpar::timeline& t : passes) total += t.total();
  const double scale = total > 0 ? width / total : 0;
  svg s(static_cast<int>(left + width + margin), static_cast<int>(top + pitch * shown + 40));
  s.text(margin, 34, title, 20, "#111");
  s.text(margin, 56,
         "computing in the rank's colour, copying grey, waiting white; below, what arrives, in the sender's colour");
  for (int r = 0; r < shown; ++r) {
    s.text(margin, top + pitch * r + 12, "rank " + std::to_string(r), 11);
    s.box(left, top + pitch * r, width, high, "#ffffff", "#ddd");
  }
  double before = 0;
  for (const seqpar::timeline& t : passes) {
    for (const seqpar::timeline_span& x : t.spans()) {
      if (x.to >= shown || x.what == kind::wait) continue;
      const bool arrives = x.what == kind::transfer;
      const double y = top + pitch * x.to + (arrives ? high + 2 : 0);
      s.box(left + (before + x.start) * scale, y, (x.end - x.start) * scale, arrives ? low : high,
            x.what == kind::memory ? "#999999" : colour_of(x.rank).text());
    }
    before += t.total();
    s.box(left + before * scale, top - 6, 1, pitch * shown + 8, "#333");
  }
  s.text(left, top + pitch * shown + 24, "0", 11);
  s.text(left + width - 60, top + pitch * shown + 24, fixed_text(1e3 * total, 3) + " ms", 11);
  return s.text();
}

}  // namespace demo
