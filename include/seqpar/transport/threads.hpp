// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that are threads of one process.
#pragma once

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <seqpar/transport/threads_world.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace threads {

class device_transport;  // threads_cuda.hpp

/// The messages of one rank that are launched together. Dropping a group that is under way fails the world, after any
/// copy that a peer is making from it: see world::cancel.
class group {
 public:
  group(group&& other) noexcept
      : world_(std::exchange(other.world_, nullptr)),
        rank_(other.rank_),
        list_(std::move(other.list_)),
        state_(std::exchange(other.state_, state::idle)),
        epoch_(other.epoch_) {}
  group& operator=(group&& other) noexcept {
    if (this == &other) return *this;
    cancel();
    world_ = std::exchange(other.world_, nullptr);
    rank_ = other.rank_;
    list_ = std::move(other.list_);
    state_ = std::exchange(other.state_, state::idle);
    epoch_ = other.epoch_;
    return *this;
  }
  ~group() { cancel(); }

  template <class = when_used>
  void reserve(index_t sends, index_t receives) {
    cancel();
    list_.reserve(sends, receives);
  }
  void clear() noexcept {
    cancel();
    state_ = state::idle;
    list_.clear();
  }
  void label(const message_label& l) noexcept { list_.label(l); }
  template <class = when_used>
  void send(const block& b, int peer) noexcept {
    list_.send(b, peer);
  }
  template <class = when_used>
  void recv(const block& b, int peer) noexcept {
    list_.recv(b, peer);
  }

 private:
  friend class transport;
  friend class device_transport;
  enum class state : std::uint8_t { idle, under_way, finished };

  group(world& w, int rank) : world_(&w), rank_(rank), list_(w.size()) {}
  void cancel() noexcept {
    if (state_ != state::under_way) return;
    state_ = state::idle;
    world::guard lock(world_->mutex_);
    world_->cancel(list_, rank_, lock);
  }

  world* world_;
  int rank_;
  message_list<detail::operation> list_;
  state state_ = state::idle;
  std::uint64_t epoch_ = 0;  ///< the world's when launched
};

/// One rank's handle on a threads::world.
///
///   Rendezvous: nothing is buffered. A message is done when the receiving rank has copied it from the sender's block
///   into its own, strides and all. Copies are made in wait(), of whichever group, by the receiver.
///   Memory: launch and wait allocate nothing; a failure writes its report.
///   Fails: peer_failed (naming the rank), timed_out (naming the peer), deadlock, size_mismatch, and at once, before
///   anything is posted, invalid_argument and overlapping_buffers. After a failure of the world every launch and wait
///   of every rank returns it, until all ranks have called recover(). After a failed wait no block of its group is
///   touched any more.
class transport {
 public:
  using group_type = threads::group;
  static constexpr transport_access access = transport_access::peer_memory;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return world_->size(); }
  group_type group() const { return {*world_, rank_}; }

  template <class = when_used>
  status launch(group_type& g, on_host) const noexcept {
    if (g.world_ != world_ || g.rank_ != rank_)
      return {errc::invalid_argument, "threads: the group was made by another transport"};
    if (const status wrong = g.list_.problem(); !wrong.ok()) return wrong;
    world_->delay(rank_);
    world::guard lock(world_->mutex_);
    if (world_->failed_) return world_->failure_for(rank_);
    if (g.state_ == group_type::state::under_way && g.epoch_ == world_->epoch_)
      return {errc::invalid_argument, "threads: the group is under way; wait for it before it is launched again"};
    g.state_ = group_type::state::finished;
    const auto operations = g.list_.messages();
    if (operations.empty()) return {};
    for (detail::operation& o : operations) {
      o.rank = rank_;
      o.at = detail::phase::idle;
      o.lead = operations.data();
    }
    operations.front().pending = static_cast<index_t>(operations.size());
    g.state_ = group_type::state::under_way;
    g.epoch_ = world_->epoch_;
    for (detail::operation& o : operations) {
      world_->post(o);
      if (world_->failed_) return give_up(g, lock);
    }
    if (world_->coin(rank_))
      while (detail::operation* r = world_->failed_ ? nullptr : world_->pick(rank_, operations.data()))
        world_->copy(*r, lock);
    return {};
  }
  template <class = when_used>
  status wait(group_type& g, on_host) const noexcept {
    return wait_until(g, detail::after(world_->deadline_));
  }
  template <class = when_used>
  status wait(group_type& g, on_host, std::chrono::nanoseconds deadline) const noexcept {
    return wait_until(g, detail::after(deadline));
  }
  status check() const noexcept {
    const std::lock_guard lock(world_->mutex_);
    return world_->failure_for(rank_);
  }
  /// Tells every rank that this one gave up; `why`, or else the status's own words, go into the world's report.
  template <class = when_used>
  void abort(const status& s, std::string_view why = {}) const noexcept {
    const std::lock_guard lock(world_->mutex_);
    if (world_->failed_ && s.code() == errc::peer_failed && why.empty()) return;  // it only heard of what is known
    const std::string words = s.words();
    world_->fail(world::gave_up(rank_), rank_,
                 detail::sentence({"rank ", rank_, " gave up: ", why.empty() ? std::string_view(words) : why}));
  }
  /// Collective: when all ranks have come, every message and the failure are forgotten. An error if one has left.
  template <class = when_used>
  status recover() const noexcept {
    return world_->recover(rank_);
  }
  /// This rank will take part in nothing any more; who waits for it is told. run_ranks calls it.
  template <class = when_used>
  void leave() const noexcept {
    world_->leave(rank_);
  }
  /// What has failed, in words; empty when nothing has.
  std::string report() const { return world_->report(); }

 private:
  friend class world;
  friend class device_transport;
  transport(world& w, int rank) : world_(&w), rank_(rank) {}

  /// Not if recover() has taken its messages back.
  bool under_way(const group_type& g) const noexcept {
    const std::lock_guard lock(world_->mutex_);
    return g.state_ == group_type::state::under_way && g.epoch_ == world_->epoch_;
  }
  template <class = when_used>
  status wait_until(group_type& g, detail::instant until) const noexcept {
    const auto operations = g.list_.messages();
    world::guard lock(world_->mutex_);
    world::rank_state& me = world_->ranks_[world::at(rank_)];
    for (;;) {
      if (world_->failed_) return give_up(g, lock);
      if (g.state_ != group_type::state::under_way) break;
      if (g.epoch_ != world_->epoch_) {
        g.state_ = group_type::state::idle;
        return {errc::peer_failed, "threads: recover() took the messages of this group back"};
      }
      if (operations.front().pending == 0) {
        g.state_ = group_type::state::finished;
        lock.unlock();
        world_->delay(rank_);
        return {};
      }
      if (detail::operation* r = world_->pick(rank_, operations.data())) {
        world_->copy(*r, lock);
        continue;
      }
      me.waits_for = operations;
      if (!world_->sleep(rank_, until, lock)) fail_late(operations);
      me.waits_for = {};
    }
    if (g.state_ == group_type::state::finished || operations.empty()) return {};
    return {errc::invalid_argument, "threads: wait for a group that was not launched"};
  }
  template <class = when_used>
  void fail_late(std::span<const detail::operation> operations) const {
    int peer = -1;
    for (const detail::operation& o : operations)
      if (o.at != detail::phase::done && peer < 0) peer = o.peer;
    world_->fail({errc::timed_out, "threads: a peer did not come before the deadline", peer}, rank_,
                 detail::sentence({"timed out: ", world_->waits()}));
  }
  template <class = when_used>
  status give_up(group_type& g, world::guard& lock) const {
    if (g.state_ == group_type::state::under_way) world_->cancel(g.list_, rank_, lock);
    g.state_ = group_type::state::idle;
    return world_->failure_for(rank_);
  }

  world* world_;
  int rank_;
};

inline transport world::rank(int r) {
  if (r < 0 || r >= size_)
    raise(seqpar::detail::invalid("threads::world", {"rank ", r, " is not one of ", size_, " ranks"}));
  return {*this, r};
}

}  // namespace threads

/// Calls f(threads::transport) on each of options.ranks threads and returns when all have. What a rank throws wakes
/// the others with peer_failed; then the first cause is thrown here as seqpar::error "rank 2: …", or, where ranks
/// waited in vain or messages did not fit, who waited for what.
template <class F>
void run_ranks(const threads::options& options, F&& f) {
  struct fault {
    int rank;
    errc code;
    std::string text;
    bool consequence;  ///< only tells that another rank failed
  };
  threads::world world(options);
  std::mutex mutex;
  std::vector<fault> faults;  // in order of time

  const auto run = [&](int rank) {
    const threads::transport t = world.rank(rank);
    const auto failed = [&](errc code, std::string_view what, bool consequence) {
      if (what.starts_with("[seqpar] ")) what.remove_prefix(9);
      {
        const std::lock_guard lock(mutex);
        faults.push_back({rank, code, std::string(what), consequence});
      }
      const errc known = t.check().code();  // of waits and messages between ranks the world tells more than an error
      if (known == errc::ok || known == errc::peer_failed) t.abort({code, "a rank threw"}, what);
    };
    const auto body = [&] { f(t); };
    const auto own = [&](const error& e) { failed(e.code(), e.what(), e.code() == errc::peer_failed); };
    const auto other = [&](const char* what) { failed(errc::peer_failed, what, false); };
    detail::on_any_throw([&] { detail::on_throw<error>(body, own); }, other);
    t.leave();
  };
  {
    // Joins whatever was started, even when a thread could not be.
    struct crew {
      threads::world& world;
      std::vector<std::thread> threads{};
      ~crew() {
        for (int r = static_cast<int>(threads.size()); r < world.size(); ++r) {
          world.rank(r).abort({errc::transport_failed, "its thread could not be started"});
          world.rank(r).leave();
        }
        for (std::thread& t : threads) t.join();
      }
    } crew{world};
    crew.threads.reserve(static_cast<std::size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) crew.threads.emplace_back(run, r);
  }
  if (faults.empty()) return;
  const fault* cause = nullptr;
  for (const fault& x : faults)
    if (!x.consequence && (!cause || (x.rank == world.failed_rank() && cause->rank != x.rank))) cause = &x;
  if (!cause) cause = &faults.front();
  // What the world found by itself it tells better than one rank.
  const bool told =
      cause->consequence || (cause->code != errc::peer_failed && cause->code == world.rank(cause->rank).check().code());
  const std::string report = world.report(), gave_up = detail::sentence({"rank ", cause->rank, " gave up: "});
  std::string_view text = cause->text;
  if (report.starts_with(detail::sentence({gave_up, text})))  // of a kernel that threw in a run the world was told more
    text = std::string_view(report).substr(gave_up.size());
  raise(error(cause->code, told ? report : detail::sentence({"rank ", cause->rank, ": ", text})));
}

template <class F>
void run_ranks(int ranks, F&& f) {
  run_ranks(threads::options{.ranks = ranks}, f);
}

}  // namespace v0_1
}  // namespace seqpar
