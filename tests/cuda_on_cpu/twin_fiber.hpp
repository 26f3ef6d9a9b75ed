// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fibers: stacks that one thread switches between in a few nanoseconds, known to ASan.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace seqpar::twin {

/// A line of control. The one that is running is left by switch_to, and goes on behind it when switched to again.
class fiber {
 public:
  using entry = void (*)(void*);

  /// The thread's own stack, while it runs fibers.
  fiber();
  /// A stack of `bytes`. It calls run(argument) when switched to; run must switch away at its end, and when it is
  /// switched to after that, run is called again with the argument of that time.
  fiber(std::size_t bytes, entry run);
  fiber(const fiber&) = delete;
  ~fiber();

  void* argument = nullptr;

  static void switch_to(fiber& from, fiber& to);
  /// Did the stack never run over?
  bool whole() const;

 private:
  static void start();
  void arrive();
  void leave(void** fake_stack, const fiber& to) const;

  entry run_ = nullptr;
  void* sp_ = nullptr;     // of a fiber that is left; elsewhere than on x86-64 its ucontext_t
  fiber* from_ = nullptr;  // who switched to it
  bool ending_ = false;
  // Of ASan.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

/// `count` fibers at rest, this thread's own, and the same at every call.
std::vector<std::unique_ptr<fiber>>& resting_fibers(std::size_t count, fiber::entry);

}  // namespace seqpar::twin
