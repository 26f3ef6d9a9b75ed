// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan's memory in exactly the sizes that it asks for, watched on all sides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <seqpar/memory.hpp>

namespace seqpar::test {

/// Memory of exactly the sizes asked for, with canaries before and behind every region.
class guarded_memory {
 public:
  explicit guarded_memory(const memory_sizes& n, std::pmr::memory_resource* where = std::pmr::new_delete_resource())
      : sizes_{n.tables, n.scratch, n.exchange, n.saved} {
    for (std::size_t i = 0; i < 4; ++i) {
      data_.emplace_back(where);
      const auto bytes = static_cast<std::size_t>(sizes_[i]);
      data_[i].assign(bytes + 3 * line, std::byte{0xA5});
      auto address = reinterpret_cast<std::uintptr_t>(data_[i].data()) + line;
      address = (address + line - 1) / line * line;
      start_[i] = reinterpret_cast<std::byte*>(address);
      std::fill_n(start_[i], bytes, std::byte{0xFF});  // NaN in every element type
    }
  }
  operator seqpar::memory() const { return {at(0), at(1), at(2), at(3)}; }
  bool intact() const {
    for (std::size_t i = 0; i < 4; ++i) {
      for (const std::byte* p = data_[i].data(); p < start_[i]; ++p)
        if (*p != std::byte{0xA5}) return false;
      for (const std::byte* p = start_[i] + sizes_[i]; p < data_[i].data() + data_[i].size(); ++p)
        if (*p != std::byte{0xA5}) return false;
    }
    return true;
  }
  /// How many lines of each kind are as they were.
  memory_sizes unused() const {
    const auto count = [&](std::size_t i) {
      index_t lines = 0;
      for (index_t at = 0; at < sizes_[i]; at += index_t{line})
        lines += std::all_of(start_[i] + at, start_[i] + std::min(at + index_t{line}, sizes_[i]),
                             [](std::byte b) { return b == std::byte{0xFF}; });
      return lines;
    };
    return {count(0), count(1), count(2), count(3)};
  }

 private:
  static constexpr std::size_t line = 64;
  region at(std::size_t i) const { return {sizes_[i] ? start_[i] : nullptr, sizes_[i]}; }
  std::array<index_t, 4> sizes_;
  std::vector<std::pmr::vector<std::byte>> data_;
  std::array<std::byte*, 4> start_;
};

}  // namespace seqpar::test
