// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A picture of a run on paper: what every rank does when, and what comes to it.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/cost/timeline.hpp>

#include "svg.hpp"
#include "table.hpp"

namespace demo {

/// A band for each rank: above, computing in its colour, copying grey, waiting white; below, the transfers that arrive,
/// in the sender's colour. Several timelines, each with its name, follow one another.
inline std::string draw_timelines(const std::string& title, const std::string& subtitle,
                                  const std::vector<std::pair<std::string, seqpar::timeline>>& passes, int ranks) {
  using kind = seqpar::timeline_span::kind;
  constexpr double margin = 24, left = 90, width = 1000, high = 14, low = 6, pitch = 28, top = 128;
  const int shown = std::min(ranks, 64);
  const double bottom = top + pitch * shown;
  double total = 0;
  for (const auto& [name, t] : passes) total += t.total();
  const double scale = total > 0 ? width / total : 0;
  svg s(static_cast<int>(left + width + 3 * margin), static_cast<int>(bottom + 48));
  s.text(margin, 34, title, 20, "#111");
  s.text(margin, 54, subtitle, 12, "#666");
  s.text(margin, 78,
         "Above: computing in the rank's colour, copying grey, waiting white. Below: what arrives, in the sender's "
         "colour." +
             (shown < ranks ? " The first " + std::to_string(shown) + " ranks." : std::string()));
  for (int r = 0; r < shown; ++r) {
    s.text(margin, top + pitch * r + 12, "rank " + std::to_string(r), 11);
    s.box(left, top + pitch * r, width, high, "#ffffff", "#ddd");
  }
  double before = 0;
  for (const auto& [name, t] : passes) {
    for (const seqpar::timeline_span& x : t.spans()) {
      if (x.to >= shown || x.what == kind::wait) continue;
      const bool arrives = x.what == kind::transfer;
      const double y = top + pitch * x.to + (arrives ? high + 2 : 0);
      s.box(left + (before + x.start) * scale, y, (x.end - x.start) * scale, arrives ? low : high,
            x.what == kind::memory ? "#999999" : colour_of(x.rank).text());
    }
    s.box(left + before * scale, top - 26, 1, bottom - top + 26, "#333");
    s.text(left + before * scale + 5, top - 14, name + ": " + fixed_text(1e3 * t.total(), 3) + " ms", 12, "#111");
    before += t.total();
  }
  // the axis: 5 to 12 ticks at 1, 2 or 5 times a power of ten
  const double power = total > 0 ? std::pow(10, std::floor(std::log10(1e3 * total))) : 1, leading = 1e3 * total / power;
  const double step = power * (leading < 1.2 ? .1 : leading < 2.5 ? .2 : leading < 5 ? .5 : 1);
  const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  s.box(left, bottom, width, 1, "#333");
  for (int i = 0; i * step <= 1e3 * total * (1 + 1e-9); ++i) {
    const double x = left + i * step * 1e-3 * scale;
    s.box(x, bottom, 1, 6, "#333");
    s.text(x + 3, bottom + 18, fixed_text(i * step, digits), 11);
  }
  s.text(margin, bottom + 18, "ms", 11);
  return s.text();
}

}  // namespace demo
