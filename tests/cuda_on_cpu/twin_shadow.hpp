// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The shared memory of a block, and behind it who wrote and read what, when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace seqpar::twin {

/// What a thread knows of the others: seen[u] = n, that all of u up to its nth stretch happened before. A stretch ends
/// at each barrier. Threads that left the same barrier share what they know.
struct clock {
  std::shared_ptr<const std::vector<std::uint32_t>> seen;
  std::uint32_t now = 1;
};
/// A barrier among these threads.
void meet(std::span<clock> all, std::span<const int> threads);

class shadow {
 public:
  shadow(int bytes, int threads);

  /// A new block: nothing is written.
  void clear();

  int bytes() const { return static_cast<int>(data_.size()); }
  std::byte* at(int offset) { return data_.data() + offset; }

  /// Notes an access of [offset, offset + bytes), both multiples of 2 and inside; false: it is a mistake, see `why`.
  bool read(int thread, std::uint32_t line, int offset, int bytes);
  bool write(int thread, std::uint32_t line, int offset, int bytes);
  /// An asynchronous copy of 16 bytes by `thread`: from issue to end nobody may touch them; from then on it is a write.
  bool copy_begins(int thread, std::uint32_t line, int offset);
  void copy_ends(int thread, int offset);

  const std::string& why() const { return why_; }

  std::vector<clock> clocks;

 private:
  // When: thread << 22 | stretch. 0: never.
  struct cell {
    std::uint32_t wrote = 0;
    std::array<std::uint32_t, 2> read{};  // two of those who read it since, that are not known to each other
    std::uint16_t line = 0;               // where the writer was
    bool copying = false;
  };
  static constexpr int cell_bytes = 2;
  static constexpr int stretch_bits = 22;

  std::span<cell> cells(int offset, int bytes) {
    return std::span(cells_).subspan(static_cast<std::size_t>(offset / cell_bytes),
                                     static_cast<std::size_t>(bytes / cell_bytes));
  }
  std::uint32_t now(int thread) const {
    return static_cast<std::uint32_t>(thread) << stretch_bits | clocks[static_cast<std::size_t>(thread)].now;
  }
  bool before(std::uint32_t when, int thread) const {
    const std::uint32_t who = when >> stretch_bits;
    return who == static_cast<std::uint32_t>(thread) ||
           (*clocks[static_cast<std::size_t>(thread)].seen)[who] >= (when & ((1u << stretch_bits) - 1));
  }
  bool mark_written(std::span<cell>, int thread, std::uint32_t line, int offset, bool copying);
  bool refuse(const cell&, const cell& first, int offset, const std::string& did, std::uint32_t other,
              const std::string& what);

  std::vector<std::byte> data_;
  std::vector<cell> cells_;
  std::string why_;
};

}  // namespace seqpar::twin
