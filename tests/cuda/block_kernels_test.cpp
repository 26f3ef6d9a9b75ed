// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of the space on the CPU.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include <seqpar/cuda/space.hpp>
#include <tests/cuda/space_laws.hpp>
#include <tests/cuda_on_cpu/fixture.hpp>
#include <tests/cuda_on_cpu/twin.hpp>

using namespace seqpar;
using cuda_on_cpu::machine_of_test;

namespace {

/// Runs a body at once, on fewer blocks than there is work for.
struct at_once {
  static int multiprocessors() { return 3; }
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params& p, cudaStream_t) {
    CHECK(blocks <= p.work());
    const auto few = static_cast<index_t>(1 + launches % 3);
    twin::run<Body>(std::min(blocks, few), p, {.seed = ++launches});
    return cudaSuccess;
  }
  static inline std::uint64_t launches = 0;
};
static_assert(cuda::launcher<at_once> && cuda::launcher<twin::launcher>);
static_assert(executor<cuda::launched_by<twin::launcher>> && executor<cuda::on_stream>);

struct site_of_twin {
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  auto space(int margin) const {
    cuda::launched_by<at_once> exec;
    exec.sm_margin = margin;
    return space_of(exec);
  }
};

template <class Law>
void on_twin(Law law) {
  const machine_of_test machine;
  site_of_twin site;
  test::space_laws laws(site);
  (laws.*law)();
}
using laws = test::space_laws<site_of_twin>;

}  // namespace

TEST_CASE("a number divided by a divider is the quotient, up to 2^63") {
  std::mt19937_64 dice(7);
  const auto check = [](index_t by, index_t n) {
    const cuda::divider d(by);
    CAPTURE(by);
    CAPTURE(n);
    REQUIRE(d.quotient(n) == n / by);
  };
  for (int i = 0; i < 20000; ++i) {
    const auto by = static_cast<index_t>(dice() >> (1 + dice() % 62) | 1),
               n = static_cast<index_t>(dice() >> (1 + dice() % 40));
    check(by, n);
    check(by, n / by * by);
    if (n / by * by > 0) check(by, n / by * by - 1);
  }
  for (index_t by : {index_t{1}, index_t{2}, index_t{3}, index_t{1} << 40, INT64_MAX - 1, INT64_MAX})
    for (index_t n : {index_t{0}, by - 1, by, INT64_MAX - 1, INT64_MAX}) check(by, n);
}

TEST_CASE("a copy moves the k-th byte of any block to the k-th of any other, in the widest words that both allow") {
  on_twin(&laws::copies);
}

TEST_CASE("a fill and a zero write every element of a block and none beside it") {
  on_twin(&laws::fills);
}

TEST_CASE("a store writes or adds every element, rounded once, between any two types") {
  on_twin(&laws::stores);
}

TEST_CASE("row_dots is the sum over a row's products less a number, whatever the widths and alignments") {
  on_twin(&laws::row_dots);
}

TEST_CASE("a merge of states is what was seen by either, wherever their rows lie") {
  on_twin(&laws::merges);
}

namespace {
/// Writes down what it is given.
struct noted {
  static int multiprocessors() { return 10; }
  template <class Body>
  static cudaError_t launch(index_t blocks, const typename Body::params&, cudaStream_t) {
    last = blocks;
    unit = unit_of(static_cast<const Body*>(nullptr));
    return cudaSuccess;
  }
  template <std::size_t Bytes>
  static std::size_t unit_of(const cuda::copy_body<Bytes>*) {
    return Bytes;
  }
  template <class To, class From, std::size_t N>
  static std::size_t unit_of(const cuda::store_body<To, From, N>*) {
    return N;
  }
  static inline index_t last = 0;
  static inline std::size_t unit = 0;
};
}  // namespace

TEST_CASE("a margin leaves as many multiprocessors free, and at least one works") {
  const auto blocks = [](int margin, index_t bytes) {
    cuda::launched_by<noted> exec;
    exec.sm_margin = margin;
    const block wide{nullptr, 2, 2 * bytes, 1, 0, bytes}, narrow{nullptr, 2, 4 * bytes, 1, 0, bytes};
    space_of(exec).copy(wide, narrow);
    return noted::last;
  };
  CHECK(blocks(0, 1 << 20) == 128);  // 2 MiB, 16 KiB a block
  CHECK(blocks(2, 1 << 20) == 8 * 4);
  CHECK(blocks(9, 1 << 20) == 4);
  CHECK(blocks(10, 1 << 20) == 4);
  CHECK(blocks(99, 1 << 20) == 4);
  CHECK(blocks(2, 16) == 1);
  CHECK(blocks(0, index_t{1} << 50) == INT32_MAX);
}

TEST_CASE("copies and stores take the widest words that pointers, strides and widths of both sides allow") {
  const auto space = space_of(cuda::launched_by<noted>{});
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  const block from{at(4096), 3, 192, 1, 0, 96};
  for (const std::size_t unit : {1u, 2u, 4u, 8u, 16u}) {
    const auto n = static_cast<index_t>(unit);
    for (const block& to : {block{at(8192 + unit), 3, 128, 1, 0, 96}, block{at(8192), 3, 112 + n, 1, 0, 96},
                            block{at(8192), 3, 256, 96 / n, 2 * n, n}}) {
      space.copy(to, from);
      CHECK(noted::unit == unit);
    }
  }
  const block elements{at(8192), 3, 256, 1, 0, 48}, floats{at(4096 + 16), 3, 112, 1, 0, 96};
  space.store<bfloat16, float>(elements, floats, seqpar::write::add);
  CHECK(noted::unit == 8);
  space.store<bfloat16, float>({at(8192 + 2), 3, 256, 1, 0, 48}, floats, seqpar::write::add);
  CHECK(noted::unit == 1);
  space.store<float, float>(floats, {at(4096 + 8), 3, 112, 1, 0, 96}, seqpar::write::add);
  CHECK(noted::unit == 1);
  space.store<float, float>(floats, {at(4096), 3, 224, 1, 0, 96}, seqpar::write::add);
  CHECK(noted::unit == 4);
}
