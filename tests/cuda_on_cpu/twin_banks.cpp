// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin_banks.hpp"

#include <algorithm>

namespace seqpar::twin {

int bank_conflicts(std::span<const int> offsets, int bytes) {
  constexpr int banks = 32, word_bytes = 4;
  const auto lanes = static_cast<std::size_t>(bytes <= word_bytes ? banks : banks * word_bytes / bytes);
  int conflicts = 0;
  for (std::size_t first = 0; first < offsets.size(); first += lanes) {
    std::array<std::array<int, banks>, banks> words;  // of each bank, those wanted
    std::array<int, banks> wanted{};
    for (const int offset : offsets.subspan(first, std::min(lanes, offsets.size() - first)))
      for (int word = offset / word_bytes; word * word_bytes < offset + bytes; ++word) {
        const auto b = static_cast<std::size_t>(word % banks);
        const auto end = words[b].begin() + wanted[b];
        if (std::find(words[b].begin(), end, word) == end) words[b][static_cast<std::size_t>(wanted[b]++)] = word;
      }
    conflicts += std::max(*std::max_element(wanted.begin(), wanted.end()) - 1, 0);
  }
  return conflicts;
}

int access_log::settle(std::span<access_log* const, 32> lanes) {
  const auto& first = lanes[0]->entries_;
  const bool same = std::all_of(lanes.begin(), lanes.end(), [&](const access_log* l) {
    return std::equal(first.begin(), first.end(), l->entries_.begin(), l->entries_.end(),
                      [](const entry& a, const entry& b) { return a.bytes == b.bytes; });
  });
  int conflicts = 0;
  for (std::size_t n = 0; same && n < first.size(); ++n) {
    std::array<int, 32> offsets;
    for (std::size_t i = 0; i < 32; ++i) offsets[i] = lanes[i]->entries_[n].offset;
    conflicts += bank_conflicts(offsets, first[n].bytes);
  }
  for (access_log* l : lanes) l->entries_.clear();
  return conflicts;
}

}  // namespace seqpar::twin
