// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The demo's command line.
#pragma once

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>

namespace demo {

/// A command line that cannot be obeyed; the text says why.
struct bad_arguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct arguments {
  std::string video;      ///< empty: a moving scene is made
  std::string out = ".";  ///< where pictures go
  int ranks = 8;
  int frames = 0;  ///< 0: not given
  bool help = false;
};

inline constexpr const char* usage =
    "demo: sequence-parallel attention over a video, checked against one rank\n"
    "\n"
    "  --video FILE   a Y4M video, 8-bit 4:2:0 (default: a small moving scene is made)\n"
    "  --ranks N      how many ranks, as threads: 1 to 64 (default: 8)\n"
    "  --frames N     use the first N frames: 1 to 100000\n"
    "  --out DIR      where the pictures go (default: the current folder)\n"
    "  --help         this text\n";

/// Reads `--name value` and `--name=value`; `a` has the defaults. Throws bad_arguments.
inline arguments parse_arguments(int argc, const char* const* argv, arguments a = {}) {
  const auto number = [](std::string_view name, std::string_view text, int most) {
    int n = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (failed != std::errc{} || end != text.data() + text.size() || n < 1 || n > most)
      throw bad_arguments(std::string(name) + " takes a number from 1 to " + std::to_string(most) + ", not `" +
                          std::string(text) + "`");
    return n;
  };
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i], value;
    if (name == "--help" || name == "-h") {
      a.help = true;
      continue;
    }
    const std::size_t equals = name.find('=');
    const bool known = [&, bare = name.substr(0, equals)] {
      return bare == "--video" || bare == "--ranks" || bare == "--frames" || bare == "--out";
    }();
    if (!known) throw bad_arguments("unknown argument `" + std::string(name) + "`");
    if (equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    } else if (++i < argc) {
      value = argv[i];
    }
    if (value.empty()) throw bad_arguments(std::string(name) + " needs a value");
    if (name == "--video") a.video = value;
    if (name == "--out") a.out = value;
    if (name == "--ranks") a.ranks = number(name, value, 64);
    if (name == "--frames") a.frames = number(name, value, 100000);
  }
  return a;
}

}  // namespace demo
