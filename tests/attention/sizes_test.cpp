// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sizes beyond 2^31: planned and counted, not allocated.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

constexpr index_t giga = 1'000'000'000;

template <class Make>
index_t bytes_sent(int rank, int ranks, Make&& make) {
  std::vector<recorded_message> log;
  return make(mesh<recorder>(recorder(rank, ranks, log), {.ring = 1, .all_to_all = ranks})).bytes_sent();
}

}  // namespace

TEST_CASE("offsets of elements pass 2^31 without a turn [D1]") {
  static_assert(sizeof(index_t) == 8 && sizeof(decltype(memory_sizes::exchange)) == 8);
  constexpr rows_view<float> v = dense_view<float>(nullptr, {1, index_t{1} << 22, 8, 128});
  static_assert(v.offset(0, 2097151, 7) + 127 == 2147483647);
  static_assert(v.offset(0, 2097152, 0) == 2147483648);
  static_assert(v.elements() == index_t{1} << 32);
  constexpr heads_view<float> lse = dense_heads<float>(nullptr, {1, 4096, index_t{1} << 22});
  static_assert(lse.stride[0] == index_t{1} << 34);
  constexpr block rows{nullptr, index_t{1} << 21, 8192, 8, 1024, 1024};
  static_assert(rows.bytes() == index_t{1} << 34);
}

TEST_CASE("a shard of 2^22 tokens over two ranks, K and V in fp32, is 2^34 bytes, sent and held [D1]") {
  const index_t tokens = index_t{1} << 22;
  CHECK(bytes_sent(0, 2, [&](const auto& team) {
          return plan_gather(team, contiguous{.tokens = tokens, .ranks = 2}, {.row_bytes = 2 * 8 * 128 * 4});
        }) == index_t{1} << 34);
  // a ring member holds the other half of K and V: 2^16 rows of 256 heads of 256 numbers
  std::vector<recorded_message> log;
  const auto plan = plan_attention<float>(ring(recorder(0, 2, log)), contiguous{.tokens = 1 << 17, .ranks = 2}, full{},
                                          {.heads = 256, .kv_heads = 256, .head_dim = 128});
  CHECK(plan.memory().exchange == index_t{1} << 34);
  CHECK(plan.setup().rounds.rounds.front().kv.entries_received() == index_t{1} << 24);
}

TEST_CASE(
    "a batch of 8 with 28 heads of 4096 x 4096 scores is never indexed as one matrix: its last is 3758096383 [D2]") {
  constexpr heads_view<float> scores = dense_heads<float>(nullptr, {8, 28, 4096 * 4096});
  static_assert(7 * scores.stride[0] + 27 * scores.stride[1] + 4096 * 4096 - 1 == 3758096383);
  // tables are per row: 46341 tokens need no 46341² entries
  std::vector<recorded_message> log;
  const auto plan = plan_attention<float>(ring(recorder(1, 2, log)), zigzag{.tokens = 46341, .ranks = 2}, causal{},
                                          {.heads = 1, .kv_heads = 1, .head_dim = 8});
  CHECK(plan.memory().tables < 46341 * 32);
}

TEST_CASE("totals of messages beyond 2^31 bytes are exact [D3]") {
  const index_t odd = (index_t{1} << 31) + 5;
  CHECK(bytes_sent(0, 2, [&](const auto& team) {
          return plan_gather(team, contiguous{.tokens = 2 * odd, .ranks = 2}, {.row_bytes = 1});
        }) == odd);
  // 3 peers × 1.2e9 bytes each
  CHECK(bytes_sent(2, 4, [&](const auto& team) {
          return plan_reshard(team, contiguous{.tokens = 64, .ranks = 4}, striped{.tokens = 64, .ranks = 4},
                              {.row_bytes = 3 * giga / 10});
        }) == 3 * (12 * giga / 10));
  // gathered: 5e9 bytes in all, each rank's fifth goes to four others
  CHECK(bytes_sent(3, 5, [&](const auto& team) {
          return plan_gather(team, contiguous{.tokens = 5000, .ranks = 5}, {.row_bytes = giga / 1000});
        }) == 4 * giga);
}

TEST_CASE("positions beyond the kernels' 32-bit tables are one clear error while planning [D1]") {
  std::vector<recorded_message> log;
  const auto refused =
      try_plan_attention<float>(ring(recorder(0, 2, log)), contiguous{.tokens = index_t{1} << 31, .ranks = 2}, full{},
                                {.heads = 1, .kv_heads = 1, .head_dim = 8});
  REQUIRE(!refused.ok());
  CHECK(refused.failure().code() == errc::invalid_argument);
  CHECK(std::string(refused.failure().what()) ==
        "[seqpar] plan_attention: more than 2^31 - 1 tokens (2147483648) do not fit the kernels' tables; split the "
        "sequence");
}

TEST_CASE("what does not fit is refused before layouts of many runs are written down, which would fill memory") {
  std::vector<recorded_message> log;
  const attention_shape shape{.heads = 1, .kv_heads = 1, .head_dim = 8, .joint_q = 1, .joint_kv = 7};
  const auto said = [&](const auto& q, const auto& kv, const attention_options& options) {
    const auto plan = try_plan_attention<float>(ring(recorder(0, 2, log)), q, kv, causal{}, shape, options);
    return plan.ok() ? std::string("planned") : std::string(plan.failure().what());
  };
  const auto in_fours = [](int bits) { return striped{.tokens = index_t{1} << bits, .ranks = 2, .granule = 4}; };
  CHECK(said(in_fours(40), in_fours(40), {}).find("more than 2^31 - 1 tokens (1099511627776)") != std::string::npos);
  CHECK(said(in_fours(33), in_fours(35), {}).find("more than 2^31 - 1 tokens (34359738368)") != std::string::npos);
  const contiguous widest{.tokens = 2147483647, .ranks = 2};
  CHECK(said(widest, widest, {}).find("more than 2^31 - 1 tokens (2147483654)") != std::string::npos);
  CHECK(said(in_fours(30), in_fours(30), {.scale = 1.f / 0.f}).find("the scale must be finite") != std::string::npos);
  CHECK(said(in_fours(30), in_fours(30), {.capacity = {.tokens_per_rank = 4}}).find("rank 0 holds 536870912 tokens") !=
        std::string::npos);
}

}  // namespace seqpar::test
