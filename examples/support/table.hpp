// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables for a terminal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace demo {

/// 1234567 as "1 234 567".
inline std::string count_text(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ' ');
  return digits;
}

/// 1 frame, 2 frames.
inline std::string count_text(std::int64_t n, const char* noun) {
  return count_text(n) + " " + noun + (n == 1 ? "" : "s");
}

/// A number with so many digits after the point.
inline std::string fixed_text(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

/// A small number such as 3.1e-07.
inline std::string tiny_text(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

/// Bytes with their unit: 640 B, 12.5 KiB, 3.4 MiB.
inline std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  double x = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; x >= 1000 && unit < 3; ++unit) x /= 1024;
  return fixed_text(x, 1) + " " + units[unit];
}

/// Rows of text under headings; the first column is set to the left, the others to the right.
class table {
 public:
  explicit table(std::vector<std::string> headings) : rows_{std::move(headings)} {}
  /// As many cells as there are headings; missing ones are empty.
  void add(std::vector<std::string> cells) {
    cells.resize(rows_[0].size());
    rows_.push_back(std::move(cells));
  }
  std::string text() const {
    std::vector<std::size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown(row[c]));
    std::string out;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      std::string line, rule;
      for (std::size_t c = 0; c < widths.size(); ++c) {
        const std::string& cell = rows_[r][c];
        const std::string space(widths[c] - shown(cell), ' ');
        line += c == 0 ? cell + space : "  " + space + cell;
        rule += std::string(widths[c] + (c == 0 ? 0 : 2), '-');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
      if (r == 0) out += rule + "\n";
    }
    return out;
  }
  void print(std::FILE* file = stdout) const { std::fputs(text().c_str(), file); }

 private:
  /// Characters on the screen: bytes of UTF-8 that do not continue another.
  static std::size_t shown(const std::string& s) {
    return static_cast<std::size_t>(
        std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace demo
