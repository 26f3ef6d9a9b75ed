// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory that a plan works in, by kind, given by the caller in exactly the size asked for.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include <seqpar/error.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Every kind of memory must be aligned to this, and every size asked for is a multiple of it.
inline constexpr index_t memory_alignment = 64;

/// Bytes by kind, as a plan asks for them. Zero is legal.
struct memory_sizes {
  index_t tables = 0;    ///< written once by prepare, read by every run
  index_t scratch = 0;   ///< undefined between calls; plans that run one after another may share it
  index_t exchange = 0;  ///< what peers read or write; equal on all ranks
  index_t saved = 0;     ///< what forward keeps for backward; must survive between the two
  friend constexpr bool operator==(const memory_sizes&, const memory_sizes&) = default;
};

/// One region of caller's memory.
struct region {
  void* pointer = nullptr;
  index_t bytes = 0;
};

struct memory {
  region tables, scratch, exchange, saved;
};

/// Is every region as large as asked for and aligned?
template <class = when_used>
status check_memory(const memory& given, const memory_sizes& asked) {
  struct kind {
    region r;
    index_t bytes;
    const char* name;
  };
  const kind kinds[] = {{given.tables, asked.tables, "tables"},
                        {given.scratch, asked.scratch, "scratch"},
                        {given.exchange, asked.exchange, "exchange"},
                        {given.saved, asked.saved, "saved"}};
  for (const auto& [r, bytes, name] : kinds) {
    if (bytes == 0) continue;
    if (r.pointer == nullptr || r.bytes < bytes)
      return {errc::memory_too_small,
              "memory: a region is smaller than the plan asked for; give plan.memory() bytes",
              -1,
              name,
              {bytes, r.pointer ? r.bytes : 0, " bytes"}};
    if (reinterpret_cast<std::uintptr_t>(r.pointer) % static_cast<std::uintptr_t>(memory_alignment) != 0)
      return {errc::memory_misaligned, "memory: a region is not aligned; align it to seqpar::memory_alignment", -1,
              name};
  }
  return {};
}

/// Host memory of exactly the sizes asked for, owned; converts to `memory`. A convenience for hosts without an arena.
class host_memory {
 public:
  host_memory() = default;
  explicit host_memory(const memory_sizes& sizes) {
    const index_t bytes[] = {sizes.tables, sizes.scratch, sizes.exchange, sizes.saved};
    region* regions[] = {&view_.tables, &view_.scratch, &view_.exchange, &view_.saved};
    for (int i = 0; i < 4; ++i)
      if (bytes[i] > 0)
        *regions[i] = {::operator new (static_cast<std::size_t>(bytes[i]), std::align_val_t{memory_alignment}),
                       bytes[i]};
  }
  host_memory(host_memory&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  host_memory& operator=(host_memory&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~host_memory() {
    for (region r : {view_.tables, view_.scratch, view_.exchange, view_.saved})
      if (r.pointer) ::operator delete (r.pointer, std::align_val_t{memory_alignment});
  }
  operator memory() const { return view_; }  ///< a view: it must not outlive this

 private:
  memory view_;
};

/// Walks a region in order, handing out aligned arrays; with no region it only counts. One walk serves both.
class carver {
 public:
  carver() = default;
  explicit carver(region r) : base_(static_cast<std::byte*>(r.pointer)) {}
  template <class T>
  T* take(index_t count) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    const index_t bytes = count * static_cast<index_t>(sizeof(T));
    used_ += round_up(bytes, memory_alignment);
    return p;
  }
  index_t bytes() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  index_t used_ = 0;
};

}  // namespace v0_1
}  // namespace seqpar
