// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What fails under runs that were only given to streams comes out of finish(), on every rank that waits.
#include <doctest/doctest.h>

#include <tests/cuda_on_cpu/control.hpp>
#include <tests/streams/engine.hpp>

namespace seqpar::test {
namespace {
using namespace std::chrono_literals;

/// Ranks with an NCCL communicator each, whose failures are looked at one by one: f(transport) → what the rank got.
template <class F>
std::vector<status> outcomes(int ranks, std::chrono::nanoseconds deadline, F&& f) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<status> got(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank()));
    nccl::world world(id, t.rank(), ranks, {.deadline = deadline});
    got[static_cast<std::size_t>(t.rank())] = f(nccl::transport(world));
  });
  return got;
}
bool told(const status& s) {
  return s.code() == errc::peer_failed || s.code() == errc::timed_out || s.code() == errc::transport_failed;
}
}  // namespace

TEST_CASE(
    "a rank that dies in forward or backward leaves nobody waiting: the others' finish() tells within its deadline") {
  constexpr int ranks = 4;
  constexpr auto deadline = 150ms;
  std::uint64_t draw = 1;
  const auto next = [&] { return draw = draw * 6364136223846793005u + 1442695040888963407u, draw >> 33; };
  for (int point = 0; point < 60; ++point) {
    CAPTURE(point);
    const int culprit = static_cast<int>(next() % ranks), step = static_cast<int>(next() % 6);
    const auto how = next() % 2 ? cuda_on_cpu::fault::death : cuda_on_cpu::fault::error;
    const mesh_shape shape = next() % 2 ? mesh_shape{4, 1} : mesh_shape{2, 2};
    const auto options =
        attention_options{.passes = forward_backward, .schedule = next() % 2 ? schedule::direct : schedule::pass_along};
    cuda_on_cpu::reset({.seed = next(), .delay = 10us});
    std::mutex gate;
    int ready = 0;
    const auto got = outcomes(ranks, 10s, [&](nccl::transport t) {
      stream_rank<nccl::transport> rank(t, shape, options);
      {
        const std::lock_guard lock(gate);
        if (++ready == ranks) cuda_on_cpu::inject(how, culprit, step);
      }
      while (true) {
        const std::lock_guard lock(gate);
        if (ready == ranks) break;
      }
      const auto begin = std::chrono::steady_clock::now();
      status s;
      for (int run = 0; run < 3 && s.ok(); ++run) {
        s = rank.run();
        if (s.ok()) s = t.finish(rank.site.exec, deadline);
      }
      if (std::chrono::steady_clock::now() - begin > deadline * 3 + 1s)
        return status{errc::deadlock, "test: later than the deadline and a second"};
      if (s.ok()) return s;
      // Every later call tells it too.
      return rank.run().ok() ? status{errc::deadlock, "test: a later call knew nothing"} : s;
    });
    for (const status& s : got) {
      CAPTURE(s.message());
      CHECK(told(s));
    }
  }
  cuda_on_cpu::reset();
}

TEST_CASE("plans that differ on one rank are one error on all of them, before a stream was given anything [J6]") {
  cuda_on_cpu::reset();
  std::vector<std::string> texts(3);
  static_cast<void>(outcomes(3, 10s, [&](nccl::transport t) {
    const stream_site site;
    auto plan = plan_attention<float>(ring(t), contiguous{.tokens = 12, .ranks = 3}, causal{},
                                      {.heads = t.rank() == 1 ? 4 : 2, .kv_heads = 2, .head_dim = 8});
    const guarded_memory memory(plan.memory(), site.memory);
    const failure f = plan.try_prepare(memory, site.exec);
    texts[static_cast<std::size_t>(t.rank())] = f ? f->what() : "prepared";
    return status{};
  }));
  for (const std::string& text : texts)
    CHECK(text ==
          "[seqpar] plan_attention: ranks disagree on heads: expected 2 (ranks 0,2 of 3), got 4 (rank 1); give every "
          "rank the same");
  CHECK(cuda_on_cpu::report() == "");
  cuda_on_cpu::reset();
}

TEST_CASE("two plans that two ranks run in different order are found, and nobody waits [J5]") {
  cuda_on_cpu::reset({.delay = 10us, .patience = 20s});
  const auto got = outcomes(2, 10s, [&](nccl::transport t) {
    stream_rank<nccl::transport> a(t, {2, 1}), b(t, {1, 2});
    auto& first = t.rank() == 0 ? a : b;
    auto& second = t.rank() == 0 ? b : a;
    status s = first.run();
    if (s.ok()) s = second.run();
    return s.ok() ? t.finish(first.site.exec, 500ms) : s;
  });
  CHECK(cuda_on_cpu::report().find("receives") != std::string::npos);
  for (const status& s : got) CHECK(!s.ok());
  cuda_on_cpu::reset();
}

TEST_CASE("two ranks on one device are refused before there is a communicator, and told which [J8]") {
  cuda_on_cpu::reset();
  std::vector<std::string> texts(3);
  run_ranks(3, [&](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank() == 2 ? 0 : t.rank()));
    try {
      nccl::world world(t);
    } catch (const error& e) {
      texts[static_cast<std::size_t>(t.rank())] = e.what();
    }
  });
  for (const std::string& text : texts) {
    CHECK(text.find("ranks 0 and 2 use one device") != std::string::npos);
    CHECK(text == texts[0]);
  }
  CHECK(cuda_on_cpu::calls("ncclCommInitRankConfig") == 0);
}

TEST_CASE("two ranks on one device that only share a unique id are refused by NCCL, with the reason") {
  cuda_on_cpu::reset();
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::string> texts(2);
  run_ranks(2, [&](threads::transport t) {
    check_cuda(cudaSetDevice(0));
    try {
      nccl::world world(id, t.rank(), 2, {.deadline = 5s});
    } catch (const error& e) {
      texts[static_cast<std::size_t>(t.rank())] = e.what();
    }
  });
  for (const std::string& text : texts) CHECK(text.find("each rank needs a device of its own") != std::string::npos);
}

TEST_CASE("a world that a rank does not join times out") {
  cuda_on_cpu::reset();
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  CHECK_THROWS_WITH_AS(nccl::world(id, 0, 2, {.deadline = 100ms}),
                       doctest::Contains("did not come before the deadline"), error);
  cuda_on_cpu::reset();
}

TEST_CASE("a world made over a host transport joins the ranks that have a device each") {
  run_ranks(3, [&](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank()));
    nccl::world world(t);
    if (world.rank() != t.rank() || world.size() != 3) raise(error(errc::invalid_argument, "another rank or size"));
    stream_rank<nccl::transport> rank(nccl::transport(world), {3, 1});
    check(rank.run());
    check(nccl::transport(world).finish(rank.site.exec, 10s));
  });
  CHECK(cuda_on_cpu::report() == "");
}

TEST_CASE("a caller's communicator is used and left to the caller") {
  cuda_on_cpu::reset();
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  run_ranks(2, [&](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank()));
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 2, id, t.rank()) != ncclSuccess)
      raise(error(errc::transport_failed, "no communicator"));
    {
      nccl::world world(comm);
      stream_rank<nccl::transport> rank(nccl::transport(world), {1, 2});
      check(rank.run());
      rank.site.settle();
    }
    if (ncclCommDestroy(comm) != ncclSuccess) raise(error(errc::transport_failed, "it was gone"));
  });
  CHECK(cuda_on_cpu::report() == "");
  CHECK(cuda_on_cpu::leaks() == "");
}

}  // namespace seqpar::test
