// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels where there is a GPU: the laws of the space, the token mean, and, compiled by nvcc, the tests beside this
// file that name on_kernels. Without a GPU it says so and has nothing to complain of.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include <seqpar/cuda.cuh>
#include <seqpar/cuda/reduce.cuh>
#include <tests/cuda/space_laws.hpp>

namespace {

void check_cuda(cudaError_t e) {
  seqpar::check(seqpar::cuda::status_of(e, "test: a call of the runtime failed"));
}

/// Memory that the host and the device touch.
class managed_memory : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* p = nullptr;
    check_cuda(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal));
    return p;
  }
  void do_deallocate(void* p, std::size_t, std::size_t) override { cudaFree(p); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

struct site_of_gpu {
  managed_memory resource;
  std::pmr::memory_resource* memory = &resource;
  auto space(int margin) const {
    check_cuda(cudaDeviceSynchronize());  // the host wrote into managed memory
    seqpar::cuda::on_device exec;
    exec.sm_margin = margin;
    return space_of(exec);
  }
};
using laws = seqpar::test::space_laws<site_of_gpu>;

void check_law(void (laws::*law)()) {
  site_of_gpu site;
  laws all(site);
  (all.*law)();
}

struct not_ignored {
  const int* labels;
  SEQPAR_HD bool operator()(seqpar::index_t i) const { return labels[i] != -100; }
};

}  // namespace

TEST_CASE("on a GPU bodies are loaded before they are launched") {
  using namespace seqpar::cuda;
  check_cuda((gpu::load<copy_body<16>,
                        attend_forward<seqpar::bfloat16, seqpar::bfloat16, head_class<64>, seqpar::by_intervals>>()));
  CHECK(gpu::multiprocessors() > 0);
}
TEST_CASE("on a GPU copies move the k-th byte to the k-th") {
  check_law(&laws::copies);
}
TEST_CASE("on a GPU fills and zeros write every element and none beside") {
  check_law(&laws::fills);
}
TEST_CASE("on a GPU stores write or add every element, rounded once") {
  check_law(&laws::stores);
}
TEST_CASE("on a GPU row_dots is the sum over a row's products less a number") {
  check_law(&laws::row_dots);
}
TEST_CASE("on a GPU a merge of states is what was seen by either") {
  check_law(&laws::merges);
}

TEST_CASE("on a GPU the token mean and its gradient are those of the host, in every run the same bits") {
  constexpr int tokens = 100003;
  managed_memory resource;
  std::pmr::vector<float> losses(tokens, &resource), gradient(tokens, 7.f, &resource);
  std::pmr::vector<int> labels(tokens, &resource);
  double sum = 0;
  seqpar::index_t count = 0;
  for (int i = 0; i < tokens; ++i) {
    const auto at = static_cast<std::size_t>(i);
    losses[at] = static_cast<float>((i * 37) % 97) / 64;
    labels[at] = i % 3 ? i : -100;
    if (i % 3) sum += static_cast<double>(losses[at]), ++count;
  }
  seqpar::run_ranks({.ranks = 1}, [&](seqpar::threads::transport t) {
    const auto team = seqpar::ring(seqpar::threads::device_transport(t));
    auto plan = seqpar::cuda::plan_token_mean<float, not_ignored>(team, tokens);
    std::pmr::vector<seqpar::cuda::quad> scratch(static_cast<std::size_t>(plan.memory().scratch / 16), &resource);
    const seqpar::memory memory{.scratch = {scratch.data(), plan.memory().scratch}};
    const seqpar::cuda::on_device exec;
    plan.prepare(memory, exec);
    std::pmr::vector<seqpar::mean> mean(2, &resource);
    for (auto& m : mean) seqpar::check(plan.forward(losses, {labels.data()}, &m, memory, exec));
    seqpar::check(plan.adjoint(2, &mean[0], {labels.data()}, gradient, exec));
    check_cuda(cudaDeviceSynchronize());
    CHECK(mean[0].count == count);
    CHECK(mean[0].value == doctest::Approx(sum / static_cast<double>(count)).epsilon(1e-12));
    CHECK(mean[0].value == mean[1].value);
    const auto each = static_cast<float>(2 * mean[0].weight());
    for (std::size_t i = 0; i < gradient.size(); ++i) REQUIRE(gradient[i] == (labels[i] == -100 ? 0 : each));
  });
}

int main(int count, char** words) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU here; nothing was checked");
    return 0;
  }
  return doctest::Context(count, words).run();
}
