// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin_shadow.hpp"

#include <algorithm>
#include <cstring>

namespace seqpar::twin {

void meet(std::span<clock> all, std::span<const int> threads) {
  const auto of = [&](int t) -> clock& { return all[static_cast<std::size_t>(t)]; };
  auto seen = std::make_shared<std::vector<std::uint32_t>>(*of(threads.front()).seen);
  const auto* merged = of(threads.front()).seen.get();
  for (const int t : threads) {
    const auto& theirs = *of(t).seen;
    if (&theirs == merged) continue;
    merged = &theirs;
    for (std::size_t u = 0; u < seen->size(); ++u) (*seen)[u] = std::max((*seen)[u], theirs[u]);
  }
  for (const int t : threads) (*seen)[static_cast<std::size_t>(t)] = of(t).now;
  for (const int t : threads) {
    of(t).seen = seen;
    ++of(t).now;
  }
}

shadow::shadow(int bytes, int threads)
    : clocks(static_cast<std::size_t>(threads)),
      data_(static_cast<std::size_t>(bytes)),
      cells_(static_cast<std::size_t>(bytes / cell_bytes)) {}

void shadow::clear() {
  std::fill(data_.begin(), data_.end(), std::byte{0xff});
  std::fill(cells_.begin(), cells_.end(), cell{});
  const auto nothing = std::make_shared<const std::vector<std::uint32_t>>(clocks.size());
  for (clock& c : clocks) c = {nothing, 1};
}

bool shadow::refuse(const cell& c, const cell& first, int offset, const std::string& did, std::uint32_t other,
                    const std::string& what) {
  const auto at = offset + static_cast<int>(&c - &first) * cell_bytes;
  const auto who = static_cast<int>(other >> stretch_bits);
  why_ = did + " byte " + std::to_string(at) + " of shared memory" + what;
  if (other != 0) why_ += std::to_string(who);
  if (other != 0 && other == c.wrote) why_ += " (behind line " + std::to_string(c.line) + ")";
  if (other != 0 && !c.copying) why_ += ", and no barrier is between";
  return false;
}

bool shadow::read(int thread, std::uint32_t, int offset, int bytes) {
  const auto range = cells(offset, bytes);
  const std::uint32_t when = now(thread);
  for (cell& c : range) {
    const auto no = [&](const char* what, std::uint32_t other) {
      return refuse(c, range.front(), offset, "reads", other, what);
    };
    if (c.wrote == 0) return no(", which nobody wrote", 0);
    if (c.copying) return no(", which is still being copied by thread ", c.wrote);
    if (!before(c.wrote, thread)) return no(", written by thread ", c.wrote);
    if (c.read[0] == when || c.read[1] == when) continue;
    // One that happened before says no more than this one; else one of the two is forgotten.
    const bool second = c.read[0] != 0 && !before(c.read[0], thread) &&
                        (c.read[1] == 0 || before(c.read[1], thread) || (when ^ c.read[1]) % 2 == 0);
    c.read[second] = when;
  }
  return true;
}

bool shadow::mark_written(std::span<cell> range, int thread, std::uint32_t line, int offset, bool copying) {
  const std::uint32_t when = now(thread);
  for (cell& c : range) {
    const auto no = [&](const char* what, std::uint32_t other) {
      return refuse(c, range.front(), offset, copying ? "copies to" : "writes", other, what);
    };
    if (c.copying) return no(", to which a copy is under way by thread ", c.wrote);
    if (c.wrote != 0 && !before(c.wrote, thread)) return no(", written by thread ", c.wrote);
    for (const std::uint32_t r : c.read)
      if (r != 0 && !before(r, thread)) return no(", read by thread ", r);
    c = {when, {}, static_cast<std::uint16_t>(line), copying};
  }
  return true;
}

bool shadow::write(int thread, std::uint32_t line, int offset, int bytes) {
  return mark_written(cells(offset, bytes), thread, line, offset, false);
}

bool shadow::copy_begins(int thread, std::uint32_t line, int offset) {
  return mark_written(cells(offset, 16), thread, line, offset, true);
}

void shadow::copy_ends(int thread, int offset) {
  for (cell& c : cells(offset, 16)) {
    c.wrote = now(thread);
    c.copying = false;
  }
}

}  // namespace seqpar::twin
