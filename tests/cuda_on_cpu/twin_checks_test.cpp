// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each mistake is found by every seed, and is not found without it.
#include <set>
#include <vector>

#include "tests/cuda_on_cpu/twin_support.hpp"

namespace seqpar::twin {
namespace {

enum class done { right, wrong };

TEST_CASE("A collective that a lane leaves out, or answers with another, is a mistake") {
  must_be_content([](auto& hw, void*) { hw.shuffle(hw.lane(), 3); });
  must_find("threads 3, 32-63 are ended; threads 0-2, 4-31 are in shuffle of ", [](auto& hw, void*) {
    if (hw.thread() != 3) hw.shuffle(hw.lane(), 3);
  });
  must_find("the warp diverges", [](auto& hw, void*) {
    if (hw.lane() == 3)
      hw.any(true);
    else
      hw.shuffle(hw.lane(), 3);
  });
  must_find("the warp diverges", [](auto& hw, void*) {  // others of one place
    hw.lane() == 3 ? hw.any(true) : hw.shuffle(1, 2) == 1;
  });
  must_find("the warp diverges", [](auto& hw, void*) {  // the same, from two places
    if (hw.lane() < 7)
      hw.shuffle(1, 3);
    else
      hw.shuffle(2, 3);
  });
  must_find("stands still", [](auto& hw, void*) {  // each side waits for the other
    if (hw.lane() < 16)
      hw.sync();
    else
      hw.sync_warp();
  });
}

TEST_CASE("The message names thread, block and place") {
  const int line = __LINE__ + 2;
  const std::string text = found([](auto& hw, void*) {
    hw.sync_warp();
    if (hw.thread() == 37) hw.template shared<float>(0)[5] = hw.template shared<float>(0)[6];
  });
  CHECK(text.find("thread 37 (warp 1, lane 5) of block 0, at or behind its sync_warp of ") == 0);
  CHECK(text.find("twin_checks_test.cpp:" + std::to_string(line) + ": reads byte 24 of shared memory") !=
        std::string::npos);
}

TEST_CASE("A barrier that threads leave out, or take for another, is a mistake") {
  must_be_content([](auto& hw, void*) {
    hw.sync();
    hw.sync_some(1 + hw.warp(), 32);
    hw.sync_some(3, 64);
    if (hw.warp() == 0)  // two warps may meet from two places
      hw.sync();
    else
      hw.sync();
  });
  must_find("threads 32-63 are ended", [](auto& hw, void*) {
    if (hw.warp() == 0) hw.sync();
  });
  must_find("stands still", [](auto& hw, void*) { hw.sync_some(1 + hw.warp(), 64); });
  must_find("waits there for", [](auto& hw, void*) { hw.sync_some(1, 32 + hw.warp() * 32); });
  must_find("no such barrier", [](auto& hw, void*) { hw.sync_some(16, 64); });
  must_find("no such barrier", [](auto& hw, void*) { hw.sync_some(1, 48); });
  must_find("barrier 0", [](auto& hw, void*) { hw.sync_some(0, 64); });
  must_find("diverge", [](auto& hw, void*) {
    if (hw.lane() % 2 == 0)
      hw.sync();
    else
      hw.sync();
  });
  must_find("diverge", [](auto& hw, void*) {  // half of each warp makes up a whole one
    if (hw.lane() < 16) hw.sync_some(1, 32);
    hw.sync();
  });
}

TEST_CASE("What nobody wrote may not be read") {
  must_find("reads byte 40 of shared memory, which nobody wrote", [](auto& hw, void*) {
    const float x = hw.template shared<float>(0)[10];
    static_cast<void>(x);
  });
  must_find("which nobody wrote", [](auto& hw, void*) {  // half of it
    auto p = hw.template shared<std::uint16_t>(0);
    if (hw.thread() == 0) p[0] = 1;
    hw.sync();
    const std::uint32_t x = p.template cast<std::uint32_t>()[0];
    static_cast<void>(x);
  });
  must_find("which nobody wrote", [](auto& hw, void*) {
    std::uint32_t r[4];
    hw.load_matrices(r, hw.template shared<bfloat16>(0));
  });
  CHECK(found(
            [](auto& hw, void*) {  // a block does not see the memory of another
              auto p = hw.template shared<int>(0);
              if (hw.block() == 0 && hw.thread() == 0) p[0] = 1;
              if (hw.block() == 1 && hw.thread() == 0) p[1] = p[0];
            },
            {}, nullptr, 2)
            .find("which nobody wrote") != std::string::npos);
}

// Thread t writes word t and reads that of t ^ Partner behind what `Order` does.
template <int Partner, class Order>
struct pass {
  template <class Hw>
  void operator()(Hw& hw, void*) const {
    auto p = hw.template shared<int>(0);
    p[hw.thread()] = 1;
    Order{}(hw);
    const int x = p[hw.thread() ^ Partner];
    static_cast<void>(x);
  }
};
template <int Partner, class Order>
pass<Partner, Order> passed(Order) {
  return {};
}

TEST_CASE("Barriers order shared memory among those who meet, and nothing else does") {
  const auto nothing = [](auto&) {};
  const auto block = [](auto& hw) { hw.sync(); };
  const auto warp = [](auto& hw) { hw.sync_warp(); };
  const auto some = [](auto& hw) { hw.sync_some(1, 64); };
  const auto own = [](auto& hw) { hw.sync_some(1 + hw.warp(), 32); };
  const auto vote = [](auto& hw) { hw.any(true); };
  const char* race = "and no barrier is between";
  must_be_content(passed<0>(nothing));
  must_be_content(passed<1>(block));
  must_be_content(passed<32>(block));
  must_be_content(passed<1>(warp));
  must_be_content(passed<32>(some));
  must_be_content(passed<1>(own));
  must_find(race, passed<32>(warp));
  must_find(race, passed<32>(own));
  must_find(race, passed<1>(vote));
}

// Warp 0 writes, meets warp 1, and that meets warp 2, which writes.
template <bool Second>
struct hand_on {
  template <class Hw>
  void operator()(Hw& hw, void*) const {
    auto p = hw.template shared<int>(0);
    if (hw.thread() == 5) p[0] = 1;
    if (hw.warp() < 2) hw.sync_some(1, 64);
    if (hw.warp() > 0 && Second) hw.sync_some(2, 64);
    if (hw.thread() == 70) p[0] = 2;
  }
};

TEST_CASE("Order is passed on, from barrier to barrier") {
  must_be_content<96>(hand_on<true>{});
  must_find<96>("and no barrier is between", hand_on<false>{});
}

TEST_CASE("Writing what others read or write, without a barrier between, is a mistake") {
  const char* race = "and no barrier is between";
  must_find(race, [](auto& hw, void*) { hw.template shared<int>(0)[0] = hw.thread(); });
  must_find(race, [](auto& hw, void*) {  // the barrier behind the reads is missing
    auto p = hw.template shared<int>(0);
    for (int k = 0; k < 3; ++k) {
      p[hw.thread()] = k;
      hw.sync();
      const int x = p[63 - hw.thread()];
      static_cast<void>(x);
    }
  });
  must_be_content([](auto& hw, void*) {
    auto p = hw.template shared<int>(0);
    for (int k = 0; k < 3; ++k) {
      p[hw.thread()] = k;
      hw.sync();
      const int x = p[63 - hw.thread()];
      static_cast<void>(x);
      hw.sync();
    }
  });
  must_find(race, [](auto& hw, void*) {  // lane 4r gets of row r what lane 31 wrote
    auto p = hw.template shared<bfloat16>(0);
    if (hw.thread() == 31)
      for (int i = 0; i < 256; ++i) p[i] = bfloat16(1.0f);
    std::uint32_t r[4];
    if (hw.warp() == 0) hw.load_matrices(r, p + 8 * hw.lane());
  });
  must_be_content([](auto& hw, void*) {
    auto p = hw.template shared<bfloat16>(0);
    if (hw.thread() == 31)
      for (int i = 0; i < 256; ++i) p[i] = bfloat16(1.0f);
    hw.sync_warp();
    std::uint32_t r[4];
    if (hw.warp() == 0) hw.load_matrices(r, p + 8 * hw.lane());
  });
}

// Each thread copies 16 bytes, and reads those of t ^ Partner behind what `Order` does.
template <int Partner, class Order>
struct copy {
  template <class Hw>
  void operator()(Hw& hw, void* from) const {
    auto p = hw.template shared<cuda::quad>(0);
    hw.copy_async(p + hw.thread(), static_cast<const cuda::quad*>(from) + hw.thread(), hw.thread() % 8 != 0);
    hw.commit_copies();
    hw.commit_copies();  // an empty group counts
    Order{}(hw);
    const cuda::quad x = p[hw.thread() ^ Partner];
    const auto t = static_cast<std::uint32_t>(hw.thread() ^ Partner);
    if (x.word[2] != (t % 8 == 0 ? 0 : t)) throw mistake("wrong value");
  }
};
template <int Partner, class Order>
copy<Partner, Order> copied(Order) {
  return {};
}

TEST_CASE("An asynchronous copy is there for its thread behind the wait, for others behind a barrier as well") {
  alignas(16) cuda::quad from[64];
  for (std::uint32_t t = 0; t < 64; ++t) from[t] = {{1, 2, t, 3}};
  must_be_content(copied<0>([](auto& hw) { hw.template wait_copies<0>(); }), {}, from);
  must_be_content(copied<0>([](auto& hw) { hw.template wait_copies<1>(); }), {}, from);
  must_be_content(copied<1>([](auto& hw) {
                    hw.template wait_copies<0>();
                    hw.sync();
                  }),
                  {}, from);
  must_find("which is still being copied by thread ", copied<0>([](auto&) {}), {}, from);
  must_find("which is still being copied by thread ", copied<0>([](auto& hw) { hw.template wait_copies<2>(); }), {},
            from);
  must_find("which is still being copied by thread ", copied<1>([](auto& hw) { hw.sync(); }), {}, from);
  must_find("and no barrier is between", copied<1>([](auto& hw) {
              hw.sync();
              hw.template wait_copies<0>();
              hw.any(true);  // by now both have waited
            }),
            {}, from);
  must_find("a copy is under way", [](auto& hw, void* p) {
    auto to = hw.template shared<cuda::quad>(0) + hw.thread();
    hw.copy_async(to, p, false);
    *to = cuda::quad{};
  });
  must_find("copies to byte 0 of shared memory, read by thread ", [](auto& hw, void* p) {
    auto to = hw.template shared<cuda::quad>(0);
    if (hw.warp() == 0) *(to + hw.thread()) = cuda::quad{};
    hw.sync();
    const cuda::quad x = to[hw.thread() / 2];
    static_cast<void>(x);
    hw.sync_some(1 + hw.warp(), 32);
    if (hw.thread() == 32) hw.copy_async(to, p, false);
  });
}

TEST_CASE("An asynchronous copy reads its source at its issue or at its wait, and one that is not there never") {
  struct {
    cuda::quad from[64];
    std::set<std::uint32_t> seen;
  } memory;
  using type = decltype(memory);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto code = [](auto& hw, void* p) {
      auto& [from, seen] = *static_cast<type*>(p);
      auto to = hw.template shared<cuda::quad>(0) + hw.thread();
      from[hw.thread()].word[0] = 1;
      hw.copy_async(to, from + hw.thread(), true);
      hw.commit_copies();
      from[hw.thread()].word[0] = 2;
      hw.template wait_copies<0>();
      const cuda::quad x = *to;
      seen.insert(x.word[0]);
    };
    CHECK(found(code, {.seed = seed}, &memory) == "");
  }
  CHECK(memory.seen == std::set<std::uint32_t>{1, 2});
  must_be_content(
      [](auto& hw, void*) { hw.copy_async(hw.template shared<cuda::quad>(0) + hw.thread(), nullptr, false); });
}

TEST_CASE("Shared memory has an end, a beginning, and places for each size") {
  must_be_content([](auto& hw, void*) {
    if (hw.thread() == 0) hw.template shared<float>(0)[1023] = 1;
  });
  must_find("touches bytes 4096 to 4099 of shared memory, which has 4096", [](auto& hw, void*) {
    if (hw.thread() == 0) hw.template shared<float>(0)[1024] = 1;
  });
  must_find("touches bytes -4 to -1", [](auto& hw, void*) { hw.template shared<float>(0)[-1] = 1; });
  must_find("misaligned", [](auto& hw, void*) { hw.template shared<float>(2)[0] = 1; });
  must_find("misaligned", [](auto& hw, void*) { hw.template shared<cuda::quad>(8)[0] = cuda::quad{}; });
  must_find("as a row; 16 bytes on 16", [](auto& hw, void*) {
    std::uint32_t r[4];
    hw.load_matrices(r, hw.template shared<bfloat16>(8));
  });
  must_find("as a row; 16 bytes on 16", [](auto& hw, void*) {
    std::uint32_t r[4];
    hw.load_matrices_transposed(r, hw.template shared<bfloat16>(4096));
  });
  must_find("16 bytes on 16", [](auto& hw, void* p) { hw.copy_async(hw.template shared<bfloat16>(4088), p, false); });
}

TEST_CASE("Global memory is touched where it is, 16 bytes on 16") {
  alignas(16) std::byte memory[64] = {};
  const options there{.memory = {{memory, 40}, {memory + 48, 16}}};
  must_be_content(
      [](auto& hw, void* p) {
        auto* at = static_cast<std::byte*>(p);
        if (hw.thread() == 0) hw.store(at + 48, hw.load(at + 16));
      },
      there, memory);
  const char* outside = "of 16 bytes outside of all global memory";
  must_find(
      outside, [](auto& hw, void* p) { hw.load(static_cast<std::byte*>(p) + 32); }, there, memory);
  must_find(
      outside, [](auto& hw, void* p) { hw.load(static_cast<std::byte*>(p) + 64); }, there, memory);
  must_find(
      outside, [](auto& hw, void* p) { hw.load(static_cast<std::byte*>(p) - 16); }, there, memory);
  must_find(
      outside, [](auto& hw, void* p) { hw.store(static_cast<std::byte*>(p) + 32, {}); }, there, memory);
  must_find(
      outside,
      [](auto& hw, void* p) {
        hw.copy_async(hw.template shared<float>(0) + 4 * hw.thread(), static_cast<std::byte*>(p) + 32, true);
      },
      there, memory);
  must_find(
      "misaligned global memory", [](auto& hw, void* p) { hw.load(static_cast<std::byte*>(p) + 8); }, there, memory);
}

TEST_CASE("Threads and blocks run in every order") {
  std::set<std::string> orders;
  const auto code = [](auto& hw, void* p) {
    if (hw.lane() == 0) *static_cast<std::string*>(p) += static_cast<char>('a' + 2 * hw.block() + hw.warp());
  };
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::string order;
    CHECK(found(code, {.seed = seed}, &order, 2) == "");
    CHECK(order.size() == 4);
    orders.insert(order);
  }
  CHECK(orders.size() == 8);
}

TEST_CASE("After a mistake the next block is as good as new") {
  for (int i = 0; i < 3; ++i) {
    CHECK(found([](auto& hw, void*) {
            if (hw.lane() != 3) hw.sync();
          }) != "");
    CHECK(found([](auto& hw, void*) {
            hw.template shared<int>(0)[hw.thread()] = 1;
            hw.sync();
          }) == "");
  }
}

TEST_CASE("A run counts its products, its copied bytes and its barriers") {
  cuda::quad from{};
  const auto code = [](auto& hw, void* p) {
    float d[4] = {};
    hw.template mma<float16>(d, {}, {});
    hw.copy_async(hw.template shared<cuda::quad>(0) + hw.thread(), p, hw.lane() < 3);
    hw.sync();
  };
  const report r = run<body_of<decltype(code)>>(5, {&from});
  CHECK(r.matrix_products == 2 * 5);
  CHECK(r.copied_bytes == 2 * 3 * 16 * 5);
  CHECK(r.barriers == 5);
}

}  // namespace
}  // namespace seqpar::twin
