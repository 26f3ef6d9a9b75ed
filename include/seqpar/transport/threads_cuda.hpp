// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are threads of one process, each with streams of a device: several devices, or one shared by all.
#pragma once

#include <memory>
#include <utility>
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
/// Fails: as threads::transport. What was already given to streams cannot be taken back, so a failed wait puts the
/// rank's streams behind it, as a good one does: let them come to their end before memory goes. Dropping or clearing a
/// group that was not waited for keeps the host until its peers' streams are through with it.
class device_transport {
  struct hand_over {
    cuda::on_stream exec{};
    const cuda::event* ready = nullptr;                                     ///< of the sending group
    std::shared_ptr<cuda::event> copied = std::make_shared<cuda::event>();  ///< of the receiving message
    /// The receiver's `copied`, until this rank's streams are behind it; the receiver may be gone before that.
    std::shared_ptr<const cuda::event> taken{};
  };

 public:
  class group_type {
   public:
    group_type(group_type&&) noexcept = default;
    group_type& operator=(group_type&& other) noexcept {
      if (this == &other) return *this;
      take_back();
      inner_ = std::move(other.inner_);
      messages_ = std::move(other.messages_);
      crossing_ = std::move(other.crossing_);
      ready_ = std::move(other.ready_);
      return *this;
    }
    ~group_type() { take_back(); }

    void reserve(index_t sends, index_t receives) {
      take_back();
      inner_.reserve(sends, receives);
      // It may hold more messages than that, and keeps them.
      messages_.resize(static_cast<std::size_t>(sends + receives) + inner_.list_.messages().size());
      for (hand_over& m : messages_) made(m.copied->create());
      if (!ready_) ready_ = std::make_unique<cuda::event>();
      made(ready_->create());
      made(crossing_.create());
    }
    void clear() noexcept {
      take_back();
      inner_.clear();
    }
    void label(const message_label& l) noexcept { inner_.label(l); }
    void send(const block& b, int peer) noexcept { inner_.send(b, peer); }
    void recv(const block& b, int peer) noexcept { inner_.recv(b, peer); }

   private:
    friend class device_transport;
    explicit group_type(group inner) : inner_(std::move(inner)) {}
    static void made(cudaError_t e) { seqpar::check(cuda::status_of(e, "threads: no event could be made")); }
    /// No peer begins a copy any more, and those that have begun end.
    void take_back() noexcept {
      inner_.cancel();
      for (hand_over& m : messages_)
        if (const auto taken = std::exchange(m.taken, nullptr)) taken->finish();
    }

    group inner_;
    std::vector<hand_over> messages_;
    cuda::crossing crossing_;
    std::unique_ptr<cuda::event> ready_;  ///< stays where it is when the group moves: peers look at it
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
    const auto operations = g.inner_.list_.messages();
    if (operations.empty() || transport_.under_way(g.inner_)) return transport_.launch(g.inner_, on_host{});
    cudaError_t e = behind_taken(g, exec);  // of a group that recover() took back
    if (e == cudaSuccess) e = g.crossing_.fork(exec);
    if (e == cudaSuccess) e = g.ready_->record(exec.exchange);
    if (e != cudaSuccess) return failed(e);
    std::size_t i = 0;
    for (detail::operation& o : operations) {
      hand_over& m = g.messages_[i++];
      m.exec = exec;
      m.ready = g.ready_.get();
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
    if (g.inner_.list_.empty()) return {};
    cudaError_t e;
    while ((e = g.crossing_.query()) == cudaErrorNotReady) {
      if (detail::passed(until))
        return fail({errc::timed_out, "threads: the streams were not through before the deadline", rank()});
      std::this_thread::yield();
    }
    return e == cudaSuccess ? status{} : failed(e);
  }
  status check() const noexcept { return transport_.check(); }
  void abort(const status& s, std::string_view why = {}) const noexcept { transport_.abort(s, why); }
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
  /// Puts exec.exchange behind the copies that peers' streams make from this group.
  static cudaError_t behind_taken(group_type& g, const cuda::on_stream& exec) noexcept {
    cudaError_t e = cudaSuccess;
    for (hand_over& m : g.messages_) {
      if (!m.taken) continue;
      const cudaError_t held = m.taken->hold(exec.exchange);
      if (held == cudaSuccess)
        m.taken = nullptr;
      else if (e == cudaSuccess)
        e = held;
    }
    return e;
  }
  /// Whatever became of the messages, compute goes on behind what streams were given of them.
  status handed_over(group_type& g, const cuda::on_stream& exec, const status& s) const {
    if (g.inner_.list_.empty()) return s;
    cudaError_t e = behind_taken(g, exec);
    if (e == cudaSuccess) e = g.crossing_.done(exec);
    if (e == cudaSuccess) e = g.crossing_.join(exec);
    return e == cudaSuccess || !s.ok() ? s : failed(e);
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
