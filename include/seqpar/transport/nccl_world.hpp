// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An NCCL communicator, its making and its end. A plain C++ compiler is enough.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <seqpar/space/cuda.hpp>
#include <seqpar/transport/deadline.hpp>
#include <seqpar/transport/message.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace nccl {

/// Communicators that need not block came with 2.14, aborting them while groups are under way with 2.18.
inline constexpr int oldest_version = 21800;
static_assert(NCCL_VERSION_CODE >= oldest_version, "[seqpar] NCCL is older than 2.18; build with a newer one");

struct options {
  /// How long launch, connect and a wait that names no deadline may keep the host waiting for peers; none: for ever.
  std::optional<std::chrono::nanoseconds> deadline{};
};

class transport;

namespace detail {
/// What the ranks tell each other before there is a communicator.
struct greeting {
  std::array<char, 64> host{};
  std::array<char, 32> device{};  ///< its place on the bus, for reports
  cudaUUID_t uuid{};              ///< the device itself, whatever machine or container calls itself `host`
  ncclUniqueId id{};              ///< rank 0's
};

using seqpar::detail::after;
using seqpar::detail::instant;

/// Asks until `ready` says no more "in progress", with a pause that grows to 100 µs.
template <class Ready>
bool poll(const instant& until, Ready&& ready) {
  for (int pause = 0; !ready(); ++pause) {
    if (seqpar::detail::passed(until)) return false;
    if (pause < 64)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

inline status status_of(ncclResult_t r, const char* what) {
  if (r == ncclSuccess || r == ncclInProgress) return {};
  const errc code = r == ncclRemoteError                                ? errc::peer_failed
                    : r == ncclInvalidArgument || r == ncclInvalidUsage ? errc::invalid_argument
                                                                        : errc::transport_failed;
  return {code, what, -1, ncclGetErrorString(r)};
}

}  // namespace detail

/// One rank's end of an NCCL communicator: made from a unique id, or a caller's. Not shared between ranks; it outlives
/// its transports and their groups. One thread at a time uses it.
///
///   After a failure the communicator is aborted (NCCL knows no way back) and every call returns the first failure. A
///   caller's communicator that failed has then been freed: do not destroy it. A world of its own that ends because an
///   exception passes is aborted too: its rank will not do what peers wait for.
class world {
 public:
  /// Collective. `id` comes from ncclGetUniqueId on one rank, by a channel of the caller's; the rank uses the current
  /// device. Throws error: a device used twice, a peer that does not come before the deadline.
  world(const ncclUniqueId& id, int rank, int size, const options& o = {}) : options_(o), owned_(true) {
    int device = 0;
    seqpar::check(cuda::status_of(cudaGetDevice(&device), "nccl::world: no device"));
    check_version();
    if (size < 1 || rank < 0 || rank >= size)
      raise(seqpar::detail::invalid("nccl::world", {"rank ", rank, " is not one of ", size, " ranks"}));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const detail::instant until = detail::after(o.deadline);
    ncclResult_t r = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
    if (r == ncclInProgress || r == ncclSuccess) r = settled(until);
    if (r != ncclSuccess) {
      const bool late = r == ncclInProgress;
      if (comm_) ncclCommAbort(comm_);
      comm_ = nullptr;
      if (late)
        raise(error(errc::timed_out,
                    "nccl::world: a rank did not come before the deadline; give all ranks the same "
                    "unique id and size"));
      raise(error(errc::transport_failed,
                  seqpar::detail::sentence({"nccl::world: ", ncclGetErrorString(r),
                                            (r == ncclInvalidUsage ? "; each rank needs a device of its own" : "")})));
    }
    read();
  }
  /// Collective. The ranks of `host`, a transport for host memory (MPI, threads), tell each other their devices and the
  /// unique id. Throws error, alike on all: a device used twice, ranks that do not come before the deadline.
  template <seqpar::transport Host>
  explicit world(const Host& host, const options& o = {}) : world(meet(host, o), host.rank(), host.size(), o) {}
  /// A communicator of the caller's, who destroys it after this world. Deadlines bound the calls of one that does not
  /// block (ncclConfig_t, blocking = 0), as the others here; one that blocks waits for a peer's connection in NCCL
  /// itself, for as long as it takes. Throws error: one that is not made before the deadline.
  explicit world(ncclComm_t comm, const options& o = {}) : options_(o), comm_(comm) {
    check_version();
    if (!comm) raise(seqpar::detail::invalid("nccl::world", "the communicator is null"));
    const ncclResult_t r = settled(detail::after(o.deadline));
    if (r == ncclInProgress)
      raise(error(errc::timed_out, "nccl::world: the communicator was still being made at the deadline"));
    seqpar::check(detail::status_of(r, "nccl::world: the communicator has failed"));
    read();
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world() {
    if (bounce_stream_) cudaStreamDestroy(bounce_stream_);
    if (!comm_ || !owned_) return;
    const bool thrown = std::uncaught_exceptions() > exceptions_;
    if (!thrown) ncclCommFinalize(comm_);
    if (!thrown && settled(detail::after(options_.deadline)) == ncclSuccess)
      ncclCommDestroy(comm_);
    else
      ncclCommAbort(comm_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int device() const noexcept { return device_; }
  /// Null after a failure.
  ncclComm_t communicator() const noexcept { return comm_; }

 private:
  friend class transport;
  friend class group;
  friend class registration;

  template <class Host>
  static ncclUniqueId meet(const Host& host, const options& o) {
    const auto ranks = static_cast<std::size_t>(host.size()), me = static_cast<std::size_t>(host.rank());
    std::vector<detail::greeting> all(ranks);
    detail::greeting& mine = all[me];
    int device = 0;
    gethostname(mine.host.data(), mine.host.size() - 1);
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetPCIBusId(mine.device.data(), static_cast<int>(mine.device.size()), device);
    cudaDeviceProp about{};
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&about, device);
    mine.uuid = about.uuid;
    status s = cuda::status_of(e, "nccl::world: no device");
    if (s.ok() && me == 0) s = detail::status_of(ncclGetUniqueId(&mine.id), "nccl::world: NCCL makes no unique id");
    if (!s.ok()) {
      host.abort(s);
      seqpar::check(s);
    }
    auto g = host.group();
    g.reserve(host.size(), host.size());
    g.label({"meeting for NCCL", 0});
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == me) continue;
      g.send(dense_block(&mine, sizeof mine), static_cast<int>(r));
      g.recv(dense_block(&all[r], sizeof mine), static_cast<int>(r));
    }
    s = host.launch(g, on_host{});
    if (s.ok()) s = o.deadline ? host.wait(g, on_host{}, *o.deadline) : host.wait(g, on_host{});
    seqpar::check(s);
    for (std::size_t a = 0; a < ranks; ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (std::memcmp(&all[a].uuid, &all[b].uuid, sizeof(cudaUUID_t)) == 0)
          raise(seqpar::detail::invalid(
              "nccl::world",
              {"ranks ", b, " and ", a, " use one device, ", all[a].device.data(), " of ", all[a].host.data(),
               "; give each rank its own (cudaSetDevice), or take threads::device_transport"}));
    return all[0].id;
  }
  static void check_version() {
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < oldest_version)
      raise(error(errc::transport_failed,
                  seqpar::detail::sentence({"nccl::world: the NCCL library has version code ", version, ", older than ",
                                            oldest_version, "; install a newer one"})));
  }
  void read() {
    ncclCommUserRank(comm_, &rank_);
    ncclCommCount(comm_, &size_);
    ncclCommCuDevice(comm_, &device_);
  }
  /// What the communicator is at once it is not busy any more; ncclInProgress when the deadline passed first.
  ncclResult_t settled(const detail::instant& until) const {
    ncclResult_t state = ncclSuccess;
    detail::poll(until, [&] {
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      if (asked != ncclSuccess) state = asked;
      return state != ncclInProgress;
    });
    return state;
  }
  /// The first failure is kept; the communicator is aborted, which frees streams that wait in it.
  status fail(const status& s) {
    if (!failure_.ok()) return failure_;
    failure_ = s;
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
    return failure_;
  }
  status check() {
    if (!failure_.ok()) return failure_;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    const status s = detail::status_of(asked != ncclSuccess ? asked : state, "nccl: the communicator has failed");
    return s.ok() ? s : fail(s);
  }

  options options_;
  ncclComm_t comm_ = nullptr;
  bool owned_ = false;
  int exceptions_ = std::uncaught_exceptions();  ///< that were passing when this was made
  int rank_ = -1, size_ = 0, device_ = -1;
  status failure_{};
  cudaStream_t bounce_stream_ = nullptr;  ///< of messages in host memory
};

}  // namespace nccl
}  // namespace v0_1
}  // namespace seqpar
