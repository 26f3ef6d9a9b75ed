// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of tiles, and which body a call is given.
#include <doctest/doctest.h>

#include <seqpar/cuda/attention.hpp>
#include <tests/cuda/room.hpp>

namespace seqpar::test {
namespace {

template <std::size_t I>
void check_room() {
  constexpr cuda::choice c = cuda::choices[I];
  using widths = cuda::head_class<c.qk, c.v>;
  CAPTURE(c.kind);
  CAPTURE(c.qk);
  CHECK(leaves_room<cuda::attend_forward<bfloat16, bfloat16, widths, by_intervals, c.kind>>(c.kind));
  CHECK(leaves_room<cuda::attend_backward_keys<bfloat16, widths, by_intervals, c.kind>>(c.kind));
  CHECK(leaves_room<cuda::attend_backward_queries<bfloat16, widths, by_intervals, c.kind>>(c.kind));
}

template <class>
inline constexpr int class_of = 0;  // a plain body
template <class T, class Out, class Class, class Mask, int Architecture>
inline constexpr int class_of<cuda::attend_forward<T, Out, Class, Mask, Architecture>> = Class::qk;

/// Writes down what it is given.
struct noting {
  static int& given() {
    static int g = -1;
    return g;
  }
  template <class Body>
  static cudaError_t launch(index_t, const typename Body::params&, cudaStream_t) {
    given() = class_of<Body>;
    return cudaSuccess;
  }
  static int multiprocessors() { return 1; }
};

}  // namespace

TEST_CASE("the blocks of every choice find room on a multiprocessor of their architecture") {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (check_room<I>(), ...);
  }
  (std::make_index_sequence<std::size(cuda::choices)>{});
}

TEST_CASE("a choice is that of the narrowest class that is wide enough, on the latest kind that is there") {
  const auto is = [](cuda::choice c, int kind, int qk, int v) { return c.kind == kind && c.qk == qk && c.v == v; };
  CHECK(is(cuda::choice_of(80, 32, 64), 80, 64, 64));
  CHECK(is(cuda::choice_of(89, 192, 96), 86, 192, 128));
  CHECK(is(cuda::choice_of(90, 128, 160), 90, 256, 256));
  CHECK(is(cuda::choice_of(103, 256, 32), 100, 256, 256));
  CHECK(is(cuda::choice_of(121, 96, 96), 86, 96, 96));
}

TEST_CASE("a call goes to the first class that is wide enough if its rows lie on 16 bytes, as on_tensor_cores says") {
  using kernel = cuda::attention<cuda::head_class<32>, cuda::head_class<64>>;
  alignas(16) bfloat16 memory[256]{};
  const query_tile tile{0, 1};
  const auto given = [&](index_t qk, index_t v, index_t stride, int misaligned) {
    const auto rows = [&](bfloat16* p, index_t dim) {
      return rows_view<bfloat16>{p, {1, 1, 1, dim}, {stride, stride, stride, 1}};
    };
    const kv_segment<bfloat16> keys{rows(memory, qk), rows(memory, v), {}};
    forward_call<bfloat16, bfloat16> call;
    call.q = rows(memory, qk);
    call.queries.tiles = {&tile, 1};
    call.segments = {&keys, 1};
    call.out = rows(memory + misaligned, v);
    noting::given() = -1;
    CHECK(kernel{}.forward(call, by_intervals{}, cuda::launched_by<noting>{}).ok());
    CHECK(kernel::on_tensor_cores(call.q, keys.v, keys.k, call.out) == (noting::given() > 0));
    return noting::given();
  };
  CHECK(given(32, 32, 80, 0) == 32);
  CHECK(given(24, 40, 80, 0) == 64);
  CHECK(given(64, 8, 80, 0) == 64);
  CHECK(given(72, 8, 80, 0) == 0);   // too wide
  CHECK(given(36, 32, 80, 0) == 0);  // no multiple of 8
  CHECK(given(32, 32, 81, 0) == 0);  // rows that are not on 16 bytes
  CHECK(given(32, 32, 80, 4) == 0);
}

}  // namespace seqpar::test
