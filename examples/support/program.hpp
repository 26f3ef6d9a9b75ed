// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the long-video programs share around their work: arguments, errors and exit status.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include <seqpar/seqpar.hpp>

#include "arguments.hpp"
#include "y4m.hpp"

namespace demo {

/// The help text of a program that takes a clip; `what` is "name: what it does".
inline std::string usage_of(const std::string& what, const arguments& defaults) {
  return what +
         "\n\n"
         "  --video FILE   a Y4M video, 8-bit 4:2:0 (default: a small moving scene is made)\n"
         "  --ranks N      how many ranks, as threads: 1 to 64 (default: " +
         std::to_string(defaults.ranks) +
         ")\n"
         "  --frames N     use the first N frames: 1 to 100000 (default: " +
         std::to_string(defaults.frames) +
         ")\n"
         "  --out DIR      where the picture goes (default: the current folder)\n"
         "  --help         this text\n";
}

/// The video that was asked for, or a moving scene of this size.
inline video video_of(const arguments& given, int width, int height) {
  return given.video.empty() ? moving_scene(width, height, given.frames) : read_y4m_file(given.video, given.frames);
}

/// main: run(arguments) gives the exit status; 2 for what the caller can correct, 1 for what failed.
template <class Run>
int program(int argc, char** argv, const std::string& what, const arguments& defaults, Run run) {
  const std::string name = what.substr(0, what.find(':'));
  try {
    const arguments given = parse_arguments(argc, argv, defaults);
    if (given.help) return std::printf("%s", usage_of(what, defaults).c_str()), 0;
    return run(given);
  } catch (const bad_arguments& e) {
    return std::fprintf(stderr, "%s: %s\n\n%s", name.c_str(), e.what(), usage_of(what, defaults).c_str()), 2;
  } catch (const bad_input& e) {
    return std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what()), 2;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what()), 1;
  }
}

/// Prepares a plan on host memory of its own.
template <class Plan>
seqpar::host_memory prepared(Plan& plan) {
  seqpar::host_memory memory(plan.memory());
  plan.prepare(memory, seqpar::on_host{});
  return memory;
}

}  // namespace demo
