// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans are moved: to where they run as before, and from where nothing runs any more.
#include <tests/attention/cases.hpp>

namespace seqpar::test {

TEST_CASE("plans move and are not copied: their masks view tables of their own") {
  using plan = attention_plan<float, seqpar::within<causal>, recorder>;
  static_assert(std::movable<plan> && !std::copyable<plan>);
  using decode = decode_plan<float, seqpar::within<causal>, recorder>;
  static_assert(std::movable<decode> && !std::copyable<decode>);
}

TEST_CASE("a plan that was moved from says so in every call, and runs where it went") {
  const auto gone = [](const status& s, const char* what) {
    return s.code() == errc::not_prepared &&
           s.message() == std::string("[seqpar] ") + what + ": this plan was moved from; use where it went";
  };
  const auto refused = [](const failure& f, const char* what) {
    return f && f->code() == errc::not_prepared && std::string(f->what()).find(what) != std::string::npos;
  };
  const contiguous layout{.tokens = 4, .ranks = 1};
  std::vector<float> x(4 * 8), y(4 * 8), lse(4);
  const auto rows = dense_view(x.data(), {1, 4, 1, 8}), out = dense_view(y.data(), {1, 4, 1, 8});

  auto a = plan_attention<float>(ring(self{}), layout, causal{}, {.heads = 1, .kv_heads = 1, .head_dim = 8},
                                 {.passes = forward_backward, .capacity = {.tokens_per_rank = 4}});
  const host_memory memory(a.memory());
  a.prepare(memory, on_host{});
  auto b = std::move(a);
  CHECK(gone(a.forward({}, memory, on_host{}), "attention"));
  CHECK(gone(a.backward({}, memory, on_host{}), "attention"));
  CHECK(refused(a.try_prepare(memory, on_host{}), "moved from"));
  CHECK(refused(a.try_update(layout, layout, causal{}, memory), "moved from"));
  CHECK(b.forward({.q = rows, .k = rows, .v = rows, .out = out, .lse = dense_heads(lse.data(), {1, 1, 4})}, memory,
                  on_host{})
            .ok());
  a = std::move(b);
  CHECK(refused(b.try_prepare(memory, on_host{}), "moved from"));
  CHECK(a.try_update(layout, layout, causal{}, memory) == std::nullopt);

  auto moves = plan_gather(ring(self{}), layout, {.row_bytes = 4});
  const host_memory none(moves.memory());
  moves.prepare(none, on_host{});
  auto moved = std::move(moves);
  CHECK(gone(moves.forward(x.data(), y.data(), none, on_host{}), "exchange"));
  CHECK(gone(moves.adjoint<float>(y.data(), x.data(), none, on_host{}), "exchange"));
  CHECK(refused(moves.try_prepare(none, on_host{}), "moved from"));
  CHECK(moved.forward(x.data(), y.data(), none, on_host{}).ok());

  auto decode =
      plan_decode<float>(ring(self{}), {.heads = 1, .kv_heads = 1, .head_dim = 8, .queries = 1, .cache_rows = 4});
  const host_memory tables(decode.memory());
  decode.prepare(tables, on_host{});
  auto decodes = std::move(decode);
  CHECK(gone(decode.advance(layout, 1, tables), "decode"));
  CHECK(gone(decode.forward({}, tables, on_host{}), "decode"));
  CHECK(refused(decode.try_prepare(tables, on_host{}), "moved from"));
  CHECK(decodes.advance(layout, 1, tables).ok());
}

}  // namespace seqpar::test
