// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What fails under runs that were only given to streams comes out of finish(), on every rank that waits.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include <seqpar/exchange/reshard.hpp>
#include <tests/cuda_on_cpu/control.hpp>
#include <tests/streams/engine.hpp>
#include <tests/support/random_faults.hpp>

/// Every rank believes itself on a machine of its own, as those in containers do.
extern "C" int gethostname(char* name, std::size_t bytes) noexcept {
  static std::atomic<int> machines = 0;
  return std::snprintf(name, bytes, "node%d", machines++) < 0;
}

namespace seqpar::test {
namespace {
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
bool told_by_nccl(const status& s) {
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
      CHECK(told_by_nccl(s));
    }
  }
  cuda_on_cpu::reset();
}

TEST_CASE(
    "140 random faults of threads with devices: whoever waits is told in time, no stream touches memory that is gone, "
    "and the ranks are right again afterwards [J5] [J6]") {
  for (std::uint64_t seed = 1; seed <= 140; seed += 10) {
    cuda_on_cpu::reset({.seed = seed, .delay = 100us});
    CHECK(fault_among<late_kernel, stream_site>(seed, seed + 10, [](const threads::transport& t) {
            check_cuda(cudaSetDevice(0));
            return threads::device_transport(t);
          }) == "");
    CHECK(cuda_on_cpu::report() == "");
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

TEST_CASE("host memory given to streams is refused by name before anything is posted, here and in the peers' calls") {
  cuda_on_cpu::reset();
  const std::string text = "[seqpar] cuda: a buffer is host memory; give memory of the device: ";
  static_cast<void>(outcomes(2, 10s, [&](nccl::transport t) {
    const stream_site site;
    const contiguous blocks{.tokens = 8, .ranks = 2};
    auto move = plan_reshard(ring(t), blocks, striped{.tokens = 8, .ranks = 2}, {.row_bytes = 4});
    const guarded_memory memory(move.memory(), site.memory);
    move.prepare(memory, site.exec);
    std::pmr::vector<float> in(4, site.memory);
    std::vector<float> out(4);
    const status s = move.forward(in.data(), out.data(), memory, site.exec);
    CHECK(s.message() == text + "out (d_out)");
    return s;
  }));
  static_cast<void>(outcomes(2, 10s, [&](nccl::transport t) {
    stream_rank<nccl::transport> rank(t, {2, 1});
    std::vector<float> elsewhere(rank.k.begin(), rank.k.end());
    const std::array<index_t, 4> qs{1, rank.plan.q_rows(), 4, 8}, ks{1, rank.plan.kv_rows(), 2, 8};
    const status s = rank.plan.forward({.q = dense_view<const float>(rank.q.data(), qs),
                                        .k = dense_view<const float>(elsewhere.data(), ks),
                                        .v = dense_view<const float>(rank.v.data(), ks),
                                        .out = dense_view(rank.out.data(), qs),
                                        .lse = dense_heads(rank.lse.data(), {1, 4, rank.plan.q_rows()})},
                                       rank.memory, rank.site.exec);
    CHECK(s.message() == text + "k");
    return s;
  }));
  cuda_on_cpu::reset();
}

#if CUDART_VERSION >= 12080
TEST_CASE("streams of another device than the current one are refused before anything is posted") {
  cuda_on_cpu::reset();
  const std::string text =
      "[seqpar] cuda: a stream belongs to another device than the current one; call cudaSetDevice before: ";
  const auto got = outcomes(2, 10s, [&](nccl::transport t) {
    stream_rank<nccl::transport> rank(t, {2, 1});
    check_cuda(cudaSetDevice(1 - t.rank()));
    const status s = rank.run();
    CHECK(s.message() == text + "q");
    check_cuda(cudaSetDevice(t.rank()));
    return s;
  });
  for (const status& s : got) CHECK(s.code() == errc::invalid_argument);
  cuda_on_cpu::reset();
}
#endif

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

TEST_CASE("a rank that leaves by an exception waits for nobody, and its peers reach their deadline") {
  cuda_on_cpu::reset();
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH_AS(run_ranks(2,
                                 [&](threads::transport t) {
                                   check_cuda(cudaSetDevice(t.rank()));
                                   nccl::world world(id, t.rank(), 2);
                                   stream_rank<nccl::transport> rank(nccl::transport(world), {2, 1});
                                   if (t.rank() == 0) throw std::runtime_error("planted");
                                   check(rank.run());
                                   check(nccl::transport(world).finish(rank.site.exec, 300ms));
                                 }),
                       doctest::Contains("planted"), error);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  CHECK(cuda_on_cpu::report() == "");
  CHECK(cuda_on_cpu::leaks() == "");
}

TEST_CASE("memory that not all ranks register in time fails the world, and nobody writes to what is gone") {
#if NCCL_VERSION_CODE >= 22700
  cuda_on_cpu::reset();
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::atomic<bool> gone = false;
  status first;
  run_ranks(2, [&](threads::transport t) {
    check_cuda(cudaSetDevice(t.rank()));
    nccl::world world(id, t.rank(), 2, {.deadline = 200ms});
    region r{nullptr, 8192};
    ncclMemAlloc(&r.pointer, 8192);
    if (t.rank() == 1) gone.wait(false);
    try {
      const auto exchange = std::make_unique<nccl::registration>(world, r);
    } catch (const error& e) {
      if (e.code() != errc::timed_out) throw;
    }
    gone = true;
    gone.notify_all();
    std::this_thread::sleep_for(100ms);
    if (t.rank() == 0) first = nccl::transport(world).check();
    ncclMemFree(r.pointer);
  });
  CHECK(first.code() == errc::timed_out);
  CHECK(cuda_on_cpu::report() == "");
  cuda_on_cpu::reset();
#endif
}

TEST_CASE("without a device each rank is told so in CUDA's own words, however its world is made") {
  cuda_on_cpu::reset({.devices = 0});
  std::vector<std::string> texts(3);
  run_ranks(2, [&](threads::transport t) {
    try {
      nccl::world world(t, {.deadline = 5s});
    } catch (const error& e) {
      texts[static_cast<std::size_t>(t.rank())] = e.what();
    }
  });
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  try {
    nccl::world world(id, 0, 1, {.deadline = 5s});
  } catch (const error& e) {
    texts[2] = e.what();
  }
  CHECK(texts[0].find("no CUDA-capable device is detected") != std::string::npos);
  CHECK(texts[2].find("no CUDA-capable device is detected") != std::string::npos);
  CHECK(!texts[1].empty());  // its own words, or that rank 0 gave up
  cuda_on_cpu::reset();
}

TEST_CASE("a library older than its headers is refused with its version") {
  cuda_on_cpu::reset({.nccl_version = 21703});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  CHECK_THROWS_WITH_AS(nccl::world(id, 0, 1), doctest::Contains("version code 21703, older than 21800"), error);
  cuda_on_cpu::reset();
}

TEST_CASE("a caller's communicator that is still being made is waited for, until the deadline") {
  cuda_on_cpu::reset();
  for (const bool all_come : {true, false}) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    run_ranks(all_come ? 2 : 1, [&](threads::transport t) {
      check_cuda(cudaSetDevice(t.rank()));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      if (t.rank() == 1) std::this_thread::sleep_for(20ms);
      static_cast<void>(ncclCommInitRankConfig(&comm, 2, id, t.rank(), &config));
      try {
        const nccl::world world(comm, {.deadline = all_come ? 10s : 100ms});
        if (!all_come || world.rank() != t.rank() || world.size() != 2)
          raise(error(errc::invalid_argument, "another rank or size"));
      } catch (const error& e) {
        if (all_come || e.code() != errc::timed_out) throw;
      }
      ncclCommAbort(comm);
    });
  }
  CHECK(cuda_on_cpu::report() == "");
  cuda_on_cpu::reset();
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
