// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <seqpar/transport/explain.hpp>
#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {
static_assert(explain_transport<nccl::transport>());
static_assert(explain_transport<threads::device_transport>());
static_assert(explain_transport<traced<nccl::transport>>());
static_assert(packing_group<nccl::group> && packing_group<traced<nccl::transport>::group_type>);
static_assert(executor<cuda::on_stream> && executor<late_host>);

template <class Engine>
std::string broken_law(const Engine& on, int ranks, index_t repetitions) {
  std::vector<const char*> broken(static_cast<std::size_t>(ranks));
  on.run({.ranks = ranks}, [&](typename Engine::transport t) {
    broken[static_cast<std::size_t>(t.rank())] = run_transport_laws(t, {.repetitions = repetitions});
  });
  for (const char* law : broken)
    if (law) return law;
  return "";
}

/// Rows of ints go round the ring once, on streams, with blocks of each stride that a tensor may have.
template <class Engine>
std::string broken_ring(const Engine& on, int ranks) {
  std::vector<std::string> faults(static_cast<std::size_t>(ranks));
  on.run({.ranks = ranks}, [&](typename Engine::transport t) {
    auto site = on.site(t);
    const int right = (t.rank() + 1) % ranks, left = (t.rank() + ranks - 1) % ranks;
    constexpr index_t n = 6, size = sizeof(std::int32_t);
    struct shape {
      index_t rows, row, columns, column, elements;  // strides in elements
    };
    for (const shape& s : {shape{1, 0, 1, 0, n},
                           {n, 1, 1, 0, 1},
                           {n, 5, 1, 0, 2},
                           {3, 8, 2, 4, 3},
                           {2, 4, 3, 8, 4},
                           {n, -3, 1, 0, 3},
                           {0, 1, 1, 0, 1}}) {
      std::pmr::vector<std::int32_t> out(64, site.memory), in(64, -1, site.memory);
      std::pmr::vector<std::byte> packed(1024, site.memory);
      const index_t first = s.row < 0 ? 32 : 0;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1000 * t.rank() + static_cast<std::int32_t>(i);
      const auto at = [&](auto& v) {
        return block{v.data() + first, s.rows, s.row * size, s.columns, s.column * size, s.elements * size};
      };
      auto g = t.group();
      g.reserve(1, 1);
      if constexpr (packing_group<decltype(g)>) g.pack_into(packed.data(), 1024);
      g.send(at(out), right);
      g.recv(at(in), left);
      check(t.launch(g, site.exec));
      check(t.wait(g, site.exec));
      site.settle();
      std::vector<std::int32_t> want(64, -1);
      for (index_t r = 0; r < s.rows; ++r)
        for (index_t c = 0; c < s.columns; ++c)
          for (index_t e = 0; e < s.elements; ++e) {
            const index_t i = first + r * s.row + c * s.column + e;
            want[static_cast<std::size_t>(i)] = 1000 * left + static_cast<std::int32_t>(i);
          }
      if (!std::equal(want.begin(), want.end(), in.begin()))
        faults[static_cast<std::size_t>(t.rank())] = "other values";
    }
  });
  for (const std::string& f : faults)
    if (!f.empty()) return f;
  return "";
}
}  // namespace

TEST_CASE("the laws of a transport hold on NCCL [J1] [J2]") {
  for (int ranks : {1, 2, 3, 5, 8}) {
    if (ranks > devices()) break;
    CAPTURE(ranks);
    CHECK(broken_law(on_nccl{}, ranks, 20) == "");
  }
}

TEST_CASE("the laws of a transport hold on threads with devices, for blocks of the host") {
  for (int ranks : {1, 2, 4}) CHECK(broken_law(on_device_threads{}, ranks, 20) == "");
}

TEST_CASE("strided blocks of device memory arrive on streams as they were sent") {
  for (int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    if (ranks <= devices()) CHECK(broken_ring(on_nccl{}, ranks) == "");
    CHECK(broken_ring(on_device_threads{}, ranks) == "");
    CHECK(broken_ring(on_device_threads{.one_device = false}, ranks) == "");
  }
}

TEST_CASE("an empty group, reserved or not, comes and goes on streams; one that was not launched has no wait") {
  const auto check_on = [](const auto& on, int ranks) {
    on.run({.ranks = ranks}, [](auto t) {
      const stream_site site;
      std::pmr::vector<std::int32_t> x(2, site.memory);
      auto empty = t.group(), reserved = t.group(), forgotten = t.group();
      for (auto* g : {&reserved, &forgotten}) g->reserve(1, 1);
      for (auto* g : {&empty, &reserved}) {
        check(t.launch(*g, site.exec));
        check(t.wait(*g, site.exec));
        check(t.wait(*g, site.exec, std::chrono::seconds(5)));
      }
      forgotten.send(dense_block(&x[0], 4), t.rank());
      forgotten.recv(dense_block(&x[1], 4), t.rank());
      for (const status s : {t.wait(forgotten, site.exec), t.wait(forgotten, site.exec, std::chrono::seconds(5))})
        if (s.code() != errc::invalid_argument || !std::string(s.text()).ends_with("that was not launched"))
          raise(error(errc::invalid_argument, "a wait said " + s.message()));
      check(t.check());
      check(t.launch(forgotten, site.exec));
      check(t.wait(forgotten, site.exec));
      site.settle();
    });
  };
  check_on(on_device_threads{}, 2);
  check_on(on_nccl{}, std::min(2, devices()));
}

TEST_CASE("rows that lie further apart than 2-D copies reach are copied all the same") {
  constexpr index_t far = index_t{1} << 31;
  const auto bytes = static_cast<std::size_t>(2 * far);
  auto* const sparse = static_cast<char*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  REQUIRE(sparse != MAP_FAILED);
  for (int i = 0; i < 4; ++i) sparse[i / 2 * far + i % 2 * 8] = static_cast<char>(1 + i);
  const stream_site site;
  std::pmr::vector<char> near(4, site.memory);
  const block rows{sparse, 2, far, 2, 8, 1}, columns{sparse, 2, 8, 2, far, 1};
  check_cuda(cuda::copy_block(dense_block(near.data(), 4), rows, site.exec.compute));
  site.settle();
  CHECK(std::vector<char>(near.begin(), near.end()) == std::vector<char>{1, 2, 3, 4});
  check_cuda(cuda::copy_block(columns, dense_block(near.data(), 4), site.exec.compute));
  site.settle();
  CHECK((sparse[0] == 1 && sparse[far] == 2 && sparse[8] == 3 && sparse[far + 8] == 4));
  munmap(sparse, bytes);
}

TEST_CASE("memory of one size is registered by all ranks, and none is where a plan asks for none") {
#if NCCL_VERSION_CODE >= 22700
  if (devices() < 2) return;
  run_ranks(2, [](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank()));
    nccl::world world(t);
    region r{nullptr, 8192};
    check(nccl::detail::status_of(ncclMemAlloc(&r.pointer, 8192), "test: no memory"));
    { const nccl::registration exchange(world, r), nothing(world, {}); }
    check(nccl::detail::status_of(ncclMemFree(r.pointer), "test: not its memory"));
  });
#endif
}

}  // namespace seqpar::test
