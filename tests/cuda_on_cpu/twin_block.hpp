// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block whose threads are fibers: who is ready, who waits for whom, and what a mistake is called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <seqpar/types.hpp>

#include "tests/cuda_on_cpu/twin_banks.hpp"
#include "tests/cuda_on_cpu/twin_fiber.hpp"
#include "tests/cuda_on_cpu/twin_shadow.hpp"
#include "tests/cuda_on_cpu/twin_tables.hpp"

namespace seqpar::twin {

/// Where in a body a call stands.
struct place {
  const char* file = "";
  int line = 0;
  static constexpr place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  friend bool operator==(place, place) = default;
};

struct memory_range {
  const std::byte* first;
  std::size_t bytes;
};

struct options {
  std::uint64_t seed = 1;              ///< of all orders
  std::vector<memory_range> memory{};  ///< what load, store and copy_async may touch, in order of addresses; none: any
};

/// What a run did.
struct report {
  index_t matrix_products = 0;  ///< mma, counted once per warp
  index_t copied_bytes = 0;     ///< by copy_async
  index_t bank_conflicts = 0;   ///< of load_matrices: wavefronts beyond those that its bytes need
  /// The same of p[i] and copy_async, where between two meetings of a warp all lanes make the same accesses.
  index_t access_conflicts = 0;
  index_t barriers = 0;  ///< sync and sync_some
  report& operator+=(const report&);
};

/// What a body did wrong.
struct mistake : std::runtime_error {
  using runtime_error::runtime_error;
};

class hardware;
class block;

/// Unwinds a thread of a block that has failed.
struct abandoned {};

/// A thread of a block.
struct strand {
  block* in = nullptr;
  fiber* line = nullptr;
  int number = 0;
  enum class state : std::uint8_t { ready, waits, ended } now = state::ready;
  const char* doing = "";  // its last call
  place at{};

  struct copy {
    int to;
    const std::byte* from;
    bool zeros, late;
    int group;
  };
  std::vector<copy> copies{};  // under way
  int groups = 0;              // closed

  int lane() const { return number % 32; }
  access_log accesses{};

  /// Shared memory, once it is known that this access is right.
  std::byte* touch(int offset, int bytes, bool writes);
  void check_shared(int offset, int bytes, bool writes);
  /// Checks an access of global memory, 16 bytes.
  void check_global(const void*, const char* what);
  void begin_copy(int to, const void* from, bool there);
  void finish_copies(int left);
  [[noreturn]] void fail(const std::string& what);
};

class block {
 public:
  using body = void (*)(hardware&, const void* params);
  /// What a warp does together; an argument per lane.
  using action = void (*)(block&, lanes);

  block(int threads, int shared_bytes, const options&, body, const void* params);

  /// Runs the block of this number, or throws what is wrong.
  void run(index_t number, index_t of);

  void gather(strand&, action, void* argument, const char* name, place);
  void barrier(strand&, int id, int threads, const char* name, place);
  [[noreturn]] void fail(const std::string& what);

  std::uint64_t random();
  int threads() const { return static_cast<int>(threads_.size()); }
  /// A lane of the warp whose action is being done.
  strand& lane(int i) { return threads_[static_cast<std::size_t>(acting_ * 32 + i)]; }

  index_t number = 0, of = 1;
  shadow shared;
  report did;
  const options& how;

 private:
  struct warp {
    int arrived = 0;
    action what = nullptr;
    const char* name = "";
    place at{};
    std::array<void*, 32> arguments{};
  };
  struct meeting {
    int expected = 0;
    std::vector<int> arrived;
  };

  static void thread_main(void*);
  void wake(int);
  void wait(strand&);
  void go_on(const strand& left);
  fiber& next();
  void settle_accesses(int warp);
  void give_up(const std::string& what);
  void check_warps(const std::vector<int>& arrived);
  std::string standstill() const;

  body body_;
  const void* params_;
  std::vector<strand> threads_;
  std::vector<warp> warps_;
  std::array<meeting, 16> meetings_;
  std::vector<int> ready_;
  int ended_ = 0, acting_ = 0;
  std::uint64_t dice_;
  std::string mistake_;
  fiber main_;
};

std::string text_of(place);
std::string text_of(const strand&);

}  // namespace seqpar::twin
