// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstring>
#include <string>

#include "tests/cuda_on_cpu/twin_block.hpp"

namespace seqpar::twin {

std::string text_of(const strand& t) {
  return "thread " + std::to_string(t.number) + " (warp " + std::to_string(t.number / 32) + ", lane " +
         std::to_string(t.lane()) + ") of block " + std::to_string(t.in->number) + ", at or behind its " + t.doing +
         " of " + text_of(t.at);
}

void strand::check_shared(int offset, int bytes, bool writes) {
  const auto l = static_cast<std::uint32_t>(at.line);
  shadow& s = in->shared;
  if (!(writes ? s.write(number, l, offset, bytes) : s.read(number, l, offset, bytes))) fail(s.why());
}

std::byte* strand::touch(int offset, int bytes, bool writes) {
  shadow& s = in->shared;
  if (offset < 0 || offset + bytes > s.bytes())
    fail("touches bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes - 1) +
         " of shared memory, which has " + std::to_string(s.bytes()));
  if (offset % bytes != 0)
    fail("touches " + std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of shared memory: misaligned");
  check_shared(offset, bytes, writes);
  accesses.add(offset, bytes);
  return s.at(offset);
}

void strand::check_global(const void* p, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) fail(std::string(what) + " of misaligned global memory");
  const auto& memory = in->how.memory;
  if (memory.empty()) return;
  const auto* at_ = static_cast<const std::byte*>(p);
  const auto next = std::upper_bound(memory.begin(), memory.end(), at_,
                                     [](const std::byte* q, const memory_range& r) { return q < r.first; });
  if (next == memory.begin() || at_ + 16 > std::prev(next)->first + std::prev(next)->bytes)
    fail(std::string(what) + " of 16 bytes outside of all global memory");
}

void strand::begin_copy(int to, const void* from, bool there) {
  shadow& s = in->shared;
  if (to < 0 || to + 16 > s.bytes() || to % 16 != 0)
    fail("copies to byte " + std::to_string(to) + " of shared memory, which has " + std::to_string(s.bytes()) +
         "; 16 bytes on 16");
  if (there) check_global(from, "an asynchronous copy");
  if (!s.copy_begins(number, static_cast<std::uint32_t>(at.line), to)) fail(s.why());
  copy c{to, static_cast<const std::byte*>(from), !there, in->random() % 2 == 0, groups};
  // An early one has read its source at once; either way nobody may see it yet.
  if (c.zeros)
    std::memset(s.at(to), 0, 16);
  else if (!c.late)
    std::memcpy(s.at(to), from, 16);
  copies.push_back(c);
  accesses.add(to, 16);
  in->did.copied_bytes += there ? 16 : 0;
}

void strand::finish_copies(int left) {
  std::erase_if(copies, [&](const copy& c) {
    if (c.group >= groups - left) return false;
    if (c.late && !c.zeros) std::memcpy(in->shared.at(c.to), c.from, 16);
    in->shared.copy_ends(number, c.to);
    return true;
  });
}

void strand::fail(const std::string& what) {
  in->fail(text_of(*this) + ": " + what);
}

}  // namespace seqpar::twin
