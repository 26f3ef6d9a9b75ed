// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are processes or threads with a GPU each, joined by an NCCL communicator. A plain C++ compiler is enough.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <seqpar/memory.hpp>
#include <seqpar/transport/nccl_world.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace nccl {

namespace detail {
/// A message, and where its bytes travel: in place, or packed.
struct wired : message {
  std::byte* wire = nullptr;
};
}  // namespace detail

/// Messages of one rank that are launched together: one NCCL group.
class group : public message_list<detail::wired> {
 public:
  group() = default;
  explicit group(int ranks) : message_list(ranks) {}
  group(group&& other) noexcept
      : message_list(std::move(other)),
        crossing_(std::move(other.crossing_)),
        packed_(other.packed_),
        bounce_(std::exchange(other.bounce_, {})) {}
  group& operator=(group&& other) noexcept {
    message_list::operator=(std::move(other));
    std::swap(crossing_, other.crossing_);
    packed_ = other.packed_;
    std::swap(bounce_, other.bounce_);
    return *this;
  }
  ~group() {
    if (bounce_.pointer) cudaFree(bounce_.pointer);
  }

  void reserve(index_t sends, index_t receives) { seqpar::check(try_reserve(sends, receives)); }
  /// Device memory in which launch packs blocks that are not one piece; free again after wait.
  void pack_into(void* memory, index_t bytes) noexcept { packed_ = {memory, bytes}; }
  static index_t packed_bytes(const block& b) noexcept { return b.dense() ? 0 : round_up(b.bytes(), pack_alignment); }
  /// ncclAllGather: across nodes it carries each share once, where messages carry it to every rank there.
  void gather_all(const block& mine, const block& all) noexcept {
    put(direction::send, mine, everybody);
    put(direction::receive, all, everybody);
  }

 private:
  friend class transport;
  static constexpr int everybody = -1;
  status try_reserve(index_t sends, index_t receives) {
    message_list::reserve(sends, receives);
    return cuda::status_of(crossing_.create(), "nccl: no event could be made");
  }
  cuda::crossing crossing_;
  region packed_, bounce_;
};

/// A handle on a world.
///
/// On streams: launch puts the group on exec.exchange, behind what exec.compute was given so far; wait lets
/// exec.compute go on behind it and does not wait itself. A wait with a deadline does: it polls, and a group that is
/// not through in time fails the world. After connect() all but that wait and finish() can be captured.
///
/// On the host: blocks in host memory go through device memory that the group allocates; for agreement and small sums.
///
/// Groups of one communicator run one after another, in the order of the launches, which must be one order for all
/// ranks. Blocks that are not one piece are packed into the group's pack_into memory. NCCL carries no empty messages;
/// neither side posts them. It does not compare sizes: prepare compares plans instead.
///
/// Fails: peer_failed, timed_out, transport_failed. The communicator is then aborted; peers find theirs failed, or
/// reach their deadlines.
class transport {
 public:
  using group_type = nccl::group;
  static constexpr transport_access access = transport_access::strided;
  static constexpr bool serial_groups = true;

  explicit transport(world& w) : world_(&w) {}
  int rank() const noexcept { return world_->rank(); }
  int size() const noexcept { return world_->size(); }
  group_type group() const { return group_type(size()); }

  status launch(group_type& g, const cuda::on_stream& exec) const noexcept {
    if (const status wrong = g.problem(); !wrong.ok()) return wrong;
    if (status s = world_->check(); !s.ok() || g.empty()) return s;
    if (status s = place(g, g.packed_, true); !s.ok()) return s;
    g.mark_launched();
    if (const cudaError_t e = g.crossing_.fork(exec); e != cudaSuccess) return failed(e);
    if (status s = run(g, exec); !s.ok()) return s;
    if (status s = pack_all(g, direction::receive, exec); !s.ok()) return s;
    const cudaError_t e = g.crossing_.done(exec);
    return e == cudaSuccess ? status{} : failed(e);
  }
  status wait(group_type& g, const cuda::on_stream& exec) const noexcept {
    if (status s = may_wait(g); !s.ok() || g.empty()) return s;
    if (const cudaError_t e = g.crossing_.join(exec); e != cudaSuccess) return failed(e);
    return world_->check();
  }
  status wait(group_type& g, const cuda::on_stream& exec, std::chrono::nanoseconds deadline) const noexcept {
    if (status s = wait(g, exec); !s.ok() || g.empty()) return s;
    return arrived(g, detail::after(deadline));
  }

  status launch(group_type& g, on_host) const noexcept {
    if (const status wrong = g.problem(); !wrong.ok()) return wrong;
    if (status s = world_->check(); !s.ok() || g.empty()) return s;
    if (const cudaError_t e = make_bounce(g); e != cudaSuccess) return failed(e);
    if (status s = place(g, g.bounce_, false); !s.ok()) return s;
    g.mark_launched();
    const cuda::on_stream own = bounce_exec();
    if (status s = run(g, own); !s.ok()) return s;
    const cudaError_t e = g.crossing_.done(own);
    return e == cudaSuccess ? status{} : failed(e);
  }
  status wait(group_type& g, on_host) const noexcept { return wait_on_host(g, world_->options_.deadline); }
  status wait(group_type& g, on_host, std::chrono::nanoseconds deadline) const noexcept {
    return wait_on_host(g, deadline);
  }

  /// Sends a byte to each of these ranks and takes one, so that NCCL makes its connections now: the first message of a
  /// pair keeps the host waiting and cannot be captured.
  template <class Exec>
  status connect(std::span<const int> peers, const Exec&) const {
    std::vector<int> once(peers.begin(), peers.end());
    std::sort(once.begin(), once.end());
    once.erase(std::unique(once.begin(), once.end()), once.end());
    std::vector<std::byte> in(once.size()), out(once.size());
    group_type g = group();
    const auto n = static_cast<index_t>(once.size());
    if (status s = g.try_reserve(n, n); !s.ok()) return s;
    g.label({"connect", 0});
    for (std::size_t i = 0; i < once.size(); ++i) {
      g.send(dense_block(&out[i], 1), once[i]);
      g.recv(dense_block(&in[i], 1), once[i]);
    }
    if (status s = launch(g, on_host{}); !s.ok()) return s;
    return wait(g, on_host{});
  }

  /// Keeps the host until both streams are through, the deadline has passed or the communicator failed: how the errors
  /// of runs that were only given to streams come out.
  status finish(const cuda::on_stream& exec, std::chrono::nanoseconds deadline) const noexcept {
    cudaError_t e = cudaSuccess;
    status s;
    const bool in_time = detail::poll(detail::after(deadline), [&] {
      for (cudaStream_t stream : {exec.compute, exec.exchange})
        if (e = cudaStreamQuery(stream); e != cudaSuccess) break;
      if (e == cudaErrorNotReady) s = world_->check();
      return e != cudaErrorNotReady || !s.ok();
    });
    if (!s.ok()) return s;
    if (!in_time) return world_->fail({errc::timed_out, "nccl: the streams were not through before the deadline"});
    return e == cudaSuccess ? world_->check() : failed(e);
  }
  status check() const noexcept { return world_->check(); }
  /// Aborts the communicator: peers that wait for this rank find theirs failed, or reach their deadline.
  void abort(const status& s) const noexcept {
    static_cast<void>(world_->fail(s.ok() ? status{errc::peer_failed, "nccl: this rank gave up", rank()} : s));
  }

 private:
  status failed(cudaError_t e) const {
    return world_->fail(cuda::status_of(e, "nccl: a call of the CUDA runtime failed"));
  }

  /// Where each message's bytes travel. `in_place`: blocks of one piece stay where they are.
  static status place(group_type& g, const region& room, bool in_place) noexcept {
    index_t used = 0;
    for (detail::wired& m : g.messages()) {
      if (in_place && m.data.dense()) {
        m.wire = static_cast<std::byte*>(m.data.pointer);
        continue;
      }
      m.wire = static_cast<std::byte*>(room.pointer) + used;
      used += round_up(m.data.bytes(), pack_alignment);
    }
    if (used > room.bytes)
      return {errc::memory_too_small,
              "nccl: blocks that are not one piece need pack_into memory; give packed_bytes of each",
              {used, room.bytes, " bytes"}};
    return {};
  }
  static cudaError_t pack(const detail::wired& m, const cuda::on_stream& exec) {
    if (m.wire == m.data.pointer) return cudaSuccess;
    const block wire = dense_block(m.wire, m.data.bytes());
    return m.way == direction::send ? exec.pack(wire, m.data, exec.exchange) : exec.pack(m.data, wire, exec.exchange);
  }
  status pack_all(group_type& g, direction way, const cuda::on_stream& exec) const {
    for (const detail::wired& m : g.messages())
      if (m.way == way)
        if (const cudaError_t e = pack(m, exec); e != cudaSuccess) return failed(e);
    return {};
  }

  status run(group_type& g, const cuda::on_stream& exec) const {
    if (status s = pack_all(g, direction::send, exec); !s.ok()) return s;
    const cudaStream_t stream = exec.exchange;
    ncclResult_t r = ncclGroupStart();
    const detail::wired* mine = nullptr;  // of an all-gather
    for (const detail::wired& m : g.messages()) {
      const auto bytes = static_cast<std::size_t>(m.data.bytes());
      if (r != ncclSuccess || bytes == 0) continue;
      if (m.peer != group_type::everybody)
        r = m.way == direction::send ? ncclSend(m.wire, bytes, ncclUint8, m.peer, world_->comm_, stream)
                                     : ncclRecv(m.wire, bytes, ncclUint8, m.peer, world_->comm_, stream);
      else if (m.way == direction::send)
        mine = &m;
      else
        r = ncclAllGather(mine->wire, m.wire, static_cast<std::size_t>(mine->data.bytes()), ncclUint8, world_->comm_,
                          stream);
      if (r == ncclInProgress) r = ncclSuccess;
    }
    const ncclResult_t end = ncclGroupEnd();
    if (r == ncclSuccess) r = end;
    // The stream may be given more only when the communicator has taken the group.
    if (r == ncclInProgress) r = world_->settled(detail::after(world_->options_.deadline));
    if (r == ncclInProgress) return world_->fail({errc::timed_out, "nccl: a peer did not connect before the deadline"});
    if (r != ncclSuccess) return world_->fail(detail::status_of(r, "nccl: a group was refused"));
    return {};
  }

  status may_wait(const group_type& g) const noexcept {
    if (!world_->failure_.ok() || g.launched()) return world_->failure_;
    return {errc::invalid_argument, "nccl: wait for a group that was not launched"};
  }
  /// Waits on the host until the group has gone through.
  status arrived(group_type& g, const detail::instant& until) const {
    cudaError_t e = cudaErrorNotReady;
    status s;
    const bool in_time = detail::poll(until, [&] {
      e = g.crossing_.query();
      if (e == cudaErrorNotReady) s = world_->check();
      return e != cudaErrorNotReady || !s.ok();
    });
    if (!s.ok()) return s;
    if (!in_time)
      return world_->fail({errc::timed_out, "nccl: a peer did not come before the deadline", first_peer(g)});
    return e == cudaSuccess ? status{} : failed(e);
  }
  static int first_peer(group_type& g) { return g.empty() ? -1 : g.messages().front().peer; }

  cudaError_t make_bounce(group_type& g) const {
    index_t bytes = 0;
    for (const detail::wired& m : g.messages()) bytes += round_up(m.data.bytes(), pack_alignment);
    if (!world_->bounce_stream_)
      if (const cudaError_t e = cudaStreamCreateWithFlags(&world_->bounce_stream_, cudaStreamNonBlocking);
          e != cudaSuccess)
        return e;
    if (bytes <= g.bounce_.bytes) return cudaSuccess;
    if (g.bounce_.pointer) cudaFree(g.bounce_.pointer);
    g.bounce_ = {};
    const cudaError_t e = cudaMalloc(&g.bounce_.pointer, static_cast<std::size_t>(bytes));
    if (e == cudaSuccess) g.bounce_.bytes = bytes;
    return e;
  }
  status wait_on_host(group_type& g, std::optional<std::chrono::nanoseconds> deadline) const {
    if (status s = may_wait(g); !s.ok() || g.empty()) return s;
    if (status s = arrived(g, detail::after(deadline)); !s.ok()) return s;
    // Only now: a copy to pageable memory keeps the host until it is done.
    if (status s = pack_all(g, direction::receive, bounce_exec()); !s.ok()) return s;
    const cudaError_t e = cudaStreamSynchronize(world_->bounce_stream_);
    return e == cudaSuccess ? status{} : failed(e);
  }
  cuda::on_stream bounce_exec() const { return {world_->bounce_stream_, world_->bounce_stream_}; }

  world* world_;
};

/// A plan's `exchange` memory registered with the communicator, so that NCCL may move it without copies of its own.
/// Collective: every rank registers memory of the same size (exchange memory is), in the same order, from ncclMemAlloc.
/// A library that cannot register does nothing. Ends before the world and the memory. Throws error; ranks that do not
/// come before the world's deadline fail the world.
class registration {
 public:
  registration(world& w, const region& memory) : world_(&w) {
    if (memory.bytes == 0) return;
#if NCCL_VERSION_CODE >= 22700
    ncclResult_t r = ncclCommWindowRegister(w.communicator(), memory.pointer, static_cast<std::size_t>(memory.bytes),
                                            &window_, NCCL_WIN_DEFAULT);
    if (r == ncclInProgress) r = w.settled(detail::after(w.options_.deadline));
    if (r == ncclInProgress)  // NCCL would still write to window_
      seqpar::check(w.fail({errc::timed_out, "nccl: not all ranks registered memory before the deadline"}));
    seqpar::check(detail::status_of(r, "nccl: the memory was not registered; allocate it with ncclMemAlloc"));
#endif
  }
  registration(const registration&) = delete;
  registration& operator=(const registration&) = delete;
  ~registration() {
#if NCCL_VERSION_CODE >= 22700
    if (window_ && world_->communicator()) ncclCommWindowDeregister(world_->communicator(), window_);
#endif
  }

 private:
  world* world_;
#if NCCL_VERSION_CODE >= 22700
  ncclWindow_t window_ = nullptr;
#endif
};

}  // namespace nccl
}  // namespace v0_1
}  // namespace seqpar
