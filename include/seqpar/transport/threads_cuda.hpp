// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are threads of one process, each with streams of a device: several devices, or one shared by all.
#pragma once

#include <memory>
#include <vector>

#include <seqpar/space/cuda.hpp>
#include <seqpar/transport/threads.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace threads {

/// A threads::transport for blocks in device memory; on the host it is that transport.
///
/// The threads hand over marks, the streams the bytes. launch marks where the sender's exchange stream stands; the
/// receiving thread, in its wait, gives its own exchange stream the copy behind that mark and marks its end; and the
/// sender's wait returns when it has that mark, behind which its compute stream goes on. So wait keeps the host until
/// the peers have given their work to their streams, never until the work is done; a wait with a deadline does both.
/// Copies between devices go the way that the runtime knows. Not for captured streams.
/// Fails: as threads::transport; after a failed wait no block of the group is touched any more.
class device_transport {
  struct hand_over {
    cuda::on_stream exec{};
    const cuda::event* ready = nullptr;                                     ///< of the sending group
    std::shared_ptr<cuda::event> copied = std::make_shared<cuda::event>();  ///< of the receiving message
    std::shared_ptr<const cuda::event> taken{};  ///< the receiver's `copied`, which may be through with it before I am
  };

 public:
  class group_type {
   public:
    void reserve(index_t sends, index_t receives) {
      inner_.reserve(sends, receives);
      messages_.resize(static_cast<std::size_t>(sends + receives));
      for (hand_over& m : messages_) seqpar::check(cuda::status_of(m.copied->create(), no_event));
      seqpar::check(cuda::status_of(ready_.create(), no_event));
      seqpar::check(cuda::status_of(crossing_.create(), no_event));
    }
    void clear() noexcept { inner_.clear(); }
    void label(const message_label& l) noexcept { inner_.label(l); }
    void send(const block& b, int peer) noexcept { inner_.send(b, peer); }
    void recv(const block& b, int peer) noexcept { inner_.recv(b, peer); }

   private:
    friend class device_transport;
    static constexpr const char* no_event = "threads: no event could be made";
    explicit group_type(group inner) : inner_(std::move(inner)) {}

    std::vector<hand_over> messages_;
    cuda::crossing crossing_;
    cuda::event ready_;
    group inner_;  // last: it is cancelled before what its peers look at goes
  };
  static constexpr transport_access access = transport_access::peer_memory;

  explicit device_transport(const transport& t) : transport_(t) {}
  int rank() const noexcept { return transport_.rank(); }
  int size() const noexcept { return transport_.size(); }
  group_type group() const { return group_type(transport_.group()); }

  status launch(group_type& g, on_host exec) const noexcept {
    for (detail::operation& o : g.inner_.list_.messages()) o.move = nullptr;
    return transport_.launch(g.inner_, exec);
  }
  status wait(group_type& g, on_host exec) const noexcept { return transport_.wait(g.inner_, exec); }
  status wait(group_type& g, on_host exec, std::chrono::nanoseconds deadline) const noexcept {
    return transport_.wait(g.inner_, exec, deadline);
  }

  status launch(group_type& g, const cuda::on_stream& exec) const noexcept {
    if (g.inner_.state_ == group::state::under_way) return transport_.launch(g.inner_, on_host{});  // which refuses it
    cudaError_t e = g.crossing_.fork(exec);
    if (e == cudaSuccess) e = g.ready_.record(exec.exchange);
    if (e != cudaSuccess) return failed(e);
    for (hand_over& m : g.messages_) m.taken = nullptr;
    std::size_t i = 0;
    for (detail::operation& o : g.inner_.list_.messages()) {
      hand_over& m = g.messages_[i++];
      m.exec = exec;
      m.ready = &g.ready_;
      o.move = &move;
      o.context = &m;
    }
    return transport_.launch(g.inner_, on_host{});
  }
  status wait(group_type& g, const cuda::on_stream& exec) const noexcept {
    return handed_over(g, exec, transport_.wait(g.inner_, on_host{}));
  }
  status wait(group_type& g, const cuda::on_stream& exec, std::chrono::nanoseconds deadline) const noexcept {
    const detail::instant until = detail::after(deadline);
    if (status s = handed_over(g, exec, transport_.wait(g.inner_, on_host{}, deadline)); !s.ok()) return s;
    cudaError_t e;
    while ((e = g.crossing_.query()) == cudaErrorNotReady) {
      if (detail::passed(until))
        return fail({errc::timed_out, "threads: the streams were not through before the deadline", rank()});
      std::this_thread::yield();
    }
    return e == cudaSuccess ? status{} : failed(e);
  }
  status check() const noexcept { return transport_.check(); }
  void abort(const status& s) const noexcept { transport_.abort(s); }
  status recover() const noexcept { return transport_.recover(); }
  void leave() const noexcept { transport_.leave(); }
  std::string report() const { return transport_.report(); }

 private:
  /// On the receiver's thread: its exchange stream copies behind the sender's mark.
  static status move(detail::operation& to, detail::operation& from) {
    if (from.move != &move)
      return {errc::invalid_argument, "threads: one side of a message runs on streams, the other on the host",
              from.rank};
    hand_over &t = *static_cast<hand_over*>(to.context), &f = *static_cast<hand_over*>(from.context);
    cudaError_t e = f.ready->hold(t.exec.exchange);
    if (e == cudaSuccess) e = cuda::copy_block(to.data, from.data, t.exec.exchange);
    if (e == cudaSuccess) e = t.copied->record(t.exec.exchange);
    f.taken = t.copied;
    return cuda::status_of(e, "threads: a block could not be copied between devices");
  }
  status handed_over(group_type& g, const cuda::on_stream& exec, const status& s) const {
    cudaError_t e = cudaSuccess;
    for (const hand_over& m : g.messages_)
      if (m.taken && e == cudaSuccess) e = s.ok() ? m.taken->hold(exec.exchange) : m.taken->finish();
    if (!s.ok()) {
      cudaStreamSynchronize(exec.exchange);
      return s;
    }
    if (e == cudaSuccess) e = g.crossing_.done(exec);
    if (e == cudaSuccess) e = g.crossing_.join(exec);
    return e == cudaSuccess ? s : failed(e);
  }
  status fail(const status& s) const {
    transport_.abort(s);
    return s;
  }
  status failed(cudaError_t e) const { return fail(cuda::status_of(e, "threads: a call of the CUDA runtime failed")); }

  transport transport_;
};

}  // namespace threads
}  // namespace v0_1
}  // namespace seqpar
