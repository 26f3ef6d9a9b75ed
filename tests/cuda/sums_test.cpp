// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums over ranks, labels and the mean of a loss by the kernels of CUDA devices, on the CPU.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include <seqpar/cuda/loss_kernels.hpp>
#include <seqpar/cuda/space.hpp>
#include <seqpar/exchange/labels.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/mask/documents.hpp>
#include <tests/cuda_on_cpu/control.hpp>
#include <tests/cuda_on_cpu/twin.hpp>
#include <tests/streams/engine.hpp>

using namespace seqpar;

namespace {

using on_twin = test::device_threads<cuda::launched_by<twin::launcher>>;

template <class T>
T part_of(int rank, index_t e) {
  if constexpr (std::same_as<T, index_t>)
    return (index_t{1} << 54) + rank * 1000 + e;  // no double would do
  else
    return T(static_cast<float>((rank * 31 + e * 7) % 19) / 16 - 0.4f);
}

/// all_reduce on an engine: what every rank has, in place and apart.
template <class T, class Engine>
std::vector<std::vector<T>> sums_on(const Engine& on, int ranks, index_t n) {
  std::vector<std::vector<T>> got(static_cast<std::size_t>(ranks));
  on.run({.ranks = ranks}, [&](typename Engine::transport t) {
    auto plan = plan_all_reduce<T>(ring(t), n, {.convention = gradient::replicated});
    auto&& site = on.site(t);
    test::guarded_memory memory(plan.memory(), site.memory);
    plan.prepare(memory, site.exec);
    std::pmr::vector<T> in(site.memory), out(static_cast<std::size_t>(n), T(3), site.memory);
    for (index_t e = 0; e < n; ++e) in.push_back(part_of<T>(t.rank(), e));
    std::pmr::vector<T> back(out, site.memory);
    check(plan.forward(in, std::span(out), memory, site.exec));
    check(plan.adjoint(out, std::span(back), memory, site.exec));
    check(plan.forward(in, std::span(in), memory, site.exec));
    site.settle();
    for (std::size_t e = 0; e < out.size(); ++e)
      if (back[e] != out[e] || in[e] != out[e]) raise(error(errc::invalid_argument, "the ways differ"));
    auto& mine = got[static_cast<std::size_t>(t.rank())];
    for (const auto* x : {&out, &back, &in}) mine.insert(mine.end(), x->begin(), x->end());
    if (!memory.intact()) raise(error(errc::invalid_argument, "memory beside the plan's was written"));
  });
  return got;
}

template <class T>
void check_sums() {
  for (const int ranks : {2, 3})
    for (const index_t n : {0, 1, 37}) {
      const auto here = sums_on<T>(test::on_threads{}, ranks, n), there = sums_on<T>(on_twin{}, ranks, n);
      for (std::size_t r = 0; r < here.size(); ++r) {
        CHECK(here[r].size() == static_cast<std::size_t>(3 * n));
        const bool same = here[r].size() == there[r].size() &&
                          (n == 0 || std::memcmp(here[r].data(), there[r].data(), here[r].size() * sizeof(T)) == 0);
        CHECK(same);
      }
    }
  CHECK(cuda_on_cpu::report() == "");
}

template <class Engine>
std::vector<std::vector<index_t>> labels_on(const Engine& on, int ranks) {
  std::vector<std::vector<index_t>> got(static_cast<std::size_t>(ranks));
  const std::vector<index_t> documents = pack({5, 1, 7});
  on.run({.ranks = ranks}, [&](typename Engine::transport t) {
    const striped layout{.tokens = 13, .ranks = ranks};
    auto plan = plan_successors(ring(t), layout, {.row_bytes = 2 * sizeof(index_t), .columns = 2}, documents);
    auto&& site = on.site(t);
    test::guarded_memory memory(plan.memory(), site.memory);
    plan.prepare(memory, site.exec);
    std::pmr::vector<index_t> in(site.memory), out(static_cast<std::size_t>(2 * plan.rows()), 77, site.memory);
    for (index_t i = 0; i < plan.rows(); ++i)
      for (index_t c = 0; c < 2; ++c) in.push_back(100 * layout.global_of(t.rank(), i) + c);
    check(plan.forward(in.data(), out.data(), index_t{-100}, memory, site.exec));
    site.settle();
    got[static_cast<std::size_t>(t.rank())].assign(out.begin(), out.end());
  });
  return got;
}

struct odd {
  SEQPAR_HD bool operator()(index_t i) const { return i % 2 == 1; }
};

}  // namespace

TEST_CASE("sums over ranks have the same bits by kernels as on the host, in every element type") {
  check_sums<float>();
  check_sums<bfloat16>();
  check_sums<float16>();
  check_sums<double>();
  check_sums<index_t>();
}

TEST_CASE("a sum into host memory is refused by name before anything is posted, and the peers hear of it") {
  cuda_on_cpu::reset();
  std::vector<status> said(2);
  on_twin{}.run({.ranks = 2}, [&](on_twin::transport t) {
    auto plan = plan_all_reduce<float>(ring(t), 3, {.convention = gradient::replicated});
    auto&& site = on_twin{}.site(t);
    test::guarded_memory memory(plan.memory(), site.memory);
    plan.prepare(memory, site.exec);
    const std::pmr::vector<float> in(3, 1.f, site.memory);
    std::pmr::vector<float> there(3, 7.f, site.memory);
    std::vector<float> here(3, 7.f);
    const status s = plan.forward(in, t.rank() == 0 ? std::span(here) : std::span<float>(there), memory, site.exec);
    said[static_cast<std::size_t>(t.rank())] = s;
    site.settle();
    CHECK(here == std::vector<float>(3, 7.f));
  });
  CHECK(said[0].message() == "[seqpar] cuda: a buffer is host memory; give memory of the device: out (d_in)");
  CHECK(said[1].code() == errc::peer_failed);
  cuda_on_cpu::reset();
}

TEST_CASE("labels of the next token come by kernels as on the host, and are ignored at the end of a document") {
  for (const int ranks : {1, 3}) {
    const auto here = labels_on(test::on_threads{}, ranks), there = labels_on(on_twin{}, ranks);
    CHECK(here == there);
    int ignored = 0;
    for (const auto& rank : there)
      for (const index_t x : rank) ignored += x == -100;
    CHECK(ignored == 2 * 3);
  }
  CHECK(cuda_on_cpu::report() == "");
}

TEST_CASE("the mean of two sums and its gradient are those of the host's token_mean, 0 without tokens") {
  for (const double tokens : {0., 1., 3.}) {
    const cuda::loss_sums sums{2.5, tokens};
    mean got{-1, -1};
    twin::run<cuda::mean_body>(2, {&sums, &got});
    CHECK(got.count == static_cast<index_t>(tokens));
    CHECK(got.value == (tokens > 0 ? 2.5 / tokens : 0));

    std::vector<bfloat16> gradient(1100, bfloat16(7));
    const cuda::mean_adjoint_body<bfloat16, odd>::params p{&got, gradient.data(), 1099, 0.5, {}};
    CHECK(p.work() == 2);
    twin::run<cuda::mean_adjoint_body<bfloat16, odd>>(1, p);
    const bfloat16 each(static_cast<float>(0.5 * got.weight()));
    for (std::size_t i = 0; i < 1099; ++i) REQUIRE(gradient[i].bits == (i % 2 == 1 ? each : bfloat16(0)).bits);
    CHECK(gradient[1099].bits == bfloat16(7).bits);
  }
}
