// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts allocations by replacing operator new for a whole program: include it in one file of a program only. Not under
// clang's TSan, whose runtime brings an operator new that cannot be replaced.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};  // set while allocations are to be counted
std::atomic<long> allocations{0};   // counted so far
std::atomic<long> alive{0};         // not yet given back, counted or not

void* counted(void* p) {
  if (!p) throw std::bad_alloc();
  ++alive;
  if (counting) ++allocations;
  return p;
}
void released(void* p) {
  if (p) --alive;
  std::free(p);
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes > 0 ? bytes : 1));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto line = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(line, (bytes + line) / line * line));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  void* p = std::malloc(bytes > 0 ? bytes : 1);
  return p ? counted(p) : p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  released(p);
}
