// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sizes whose products leave 64 bits, and buffers that lie on themselves or on the plan's memory.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/transport/recorder.hpp>
#include <tests/exchange/harness.hpp>

using namespace exchange_test;

namespace {

constexpr index_t power(int of_two) {
  return index_t{1} << of_two;
}
std::string planned(exchange_options o) {
  std::vector<recorded_message> log;
  const auto plan = try_plan_gather(ring(recorder(0, 4, log)), contiguous{.tokens = 64, .ranks = 4}, o);
  if (plan.ok()) return "planned";
  return plan.failure().code() == errc::invalid_argument ? plan.failure().what() : "another code";
}
/// The first number that is aligned to memory_alignment.
float* aligned(std::vector<float>& x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.data()), line = std::uintptr_t{memory_alignment};
  return reinterpret_cast<float*>((address + line - 1) / line * line);
}

}  // namespace

TEST_CASE("sizes whose product does not fit 64 bits are refused while planning") {
  for (const exchange_options& o :
       {exchange_options{.row_bytes = power(60), .batch = 1000}, exchange_options{.row_bytes = power(62)},
        exchange_options{.row_bytes = 4, .batch = power(61)}, exchange_options{.row_bytes = INT64_MAX}}) {
    const std::string said = planned(o);
    CHECK_MESSAGE(said.starts_with("[seqpar] plan_gather: "), said);
    CHECK_MESSAGE(said.find("2^62 bytes") != std::string::npos, said);
  }
  CHECK(planned({.row_bytes = power(20), .batch = 1000}) == "planned");  // large, and fits
}

TEST_CASE("buffers inside of the plan's memory are refused by the name of the overlap [E4]") {
  run_ranks(1, [](threads::transport t) {
    auto plan = plan_gather(ring(t), contiguous{.tokens = 8, .ranks = 1}, {.row_bytes = 8});
    const memory_sizes sizes = plan.memory();
    REQUIRE(sizes.scratch >= 64);
    std::vector<float> arena(static_cast<std::size_t>(sizes.scratch) / sizeof(float) + 64), x(16, 1), y(16);
    float* const inside = aligned(arena);
    seqpar::memory given;
    given.scratch = {inside, sizes.scratch};
    plan.prepare(given, on_host{});
    const auto refused = [&](const char* what, const status& s) {
      CHECK_MESSAGE(s.code() == errc::overlapping_buffers, std::string(what) << ": " << s.message());
      CHECK(t.recover().ok());
    };
    refused("in", plan.forward(inside, y.data(), given, on_host{}));
    refused("out", plan.forward(x.data(), inside, given, on_host{}));
    refused("d_out", plan.adjoint<float>(inside, x.data(), given, on_host{}));
    refused("d_in", plan.adjoint<float>(x.data(), inside, given, on_host{}));
    refused("d_in in the last byte", plan.adjoint<float>(x.data(), inside + sizes.scratch / 4 - 1, given, on_host{}));
    refused("out of inverse", plan.inverse(inside, y.data(), given, on_host{}));
    refused("in of inverse", plan.inverse(x.data(), inside, given, on_host{}));
    CHECK(plan.forward(x.data(), y.data(), given, on_host{}).ok());
    CHECK(plan.adjoint<float>(x.data(), y.data(), given, on_host{}).ok());
  });
}

TEST_CASE("rows of a result may lie backwards or apart") {
  run_ranks(1, [](threads::transport t) {
    auto plan = plan_gather(ring(t), contiguous{.tokens = 8, .ranks = 1}, {.row_bytes = 4});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> x{0, 1, 2, 3, 4, 5, 6, 7}, y(8), apart(24, -1);
    CHECK(plan.forward(x.data(), {y.data() + 7, -4}, memory, on_host{}).ok());
    CHECK(y == std::vector<float>{7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(plan.forward(x.data(), {apart.data(), 12}, memory, on_host{}).ok());
    CHECK(apart[21] == 7);
    CHECK(apart[22] == -1);
  });
}

TEST_CASE("a result whose rows share bytes is refused by the name of the overlap [E4]") {
  run_ranks(1, [](threads::transport t) {
    auto plan = plan_gather(ring(t), contiguous{.tokens = 8, .ranks = 1}, {.row_bytes = 8, .batch = 2});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    std::vector<float> x(32, 1), y(32);
    const auto refused = [&](const char* what, const status& s) {
      CHECK_MESSAGE(s.code() == errc::overlapping_buffers, std::string(what) << ": " << s.message());
      CHECK(t.recover().ok());
    };
    refused("rows of out", plan.forward(x.data(), {y.data(), 4}, memory, on_host{}));
    refused("items of out", plan.forward(x.data(), {y.data(), 8, 32}, memory, on_host{}));
    refused("rows of in, of inverse", plan.inverse(x.data(), {y.data(), 4}, memory, on_host{}));
    refused("rows of d_in", plan.adjoint<float>(x.data(), {y.data(), 4}, memory, on_host{}));
    CHECK(plan.forward({x.data(), 4}, y.data(), memory, on_host{}).ok());
  });
}
