// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of an MPI communicator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <seqpar/transport/mpi_world.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace mpi {

/// The messages of one rank that are launched together. MPI cannot take a sent message back: dropping a group that is
/// under way fails the world.
class group {
 public:
  group(group&& other) noexcept
      : world_(other.world_),
        list_(std::move(other.list_)),
        requests_(std::move(other.requests_)),
        indices_(std::move(other.indices_)),
        statuses_(std::move(other.statuses_)),
        state_(std::exchange(other.state_, state::idle)),
        pending_(other.pending_) {}
  group& operator=(group&& other) noexcept {
    if (this == &other) return *this;
    cancel();
    world_ = other.world_;
    list_ = std::move(other.list_);
    requests_ = std::move(other.requests_);
    indices_ = std::move(other.indices_);
    statuses_ = std::move(other.statuses_);
    state_ = std::exchange(other.state_, state::idle);
    pending_ = other.pending_;
    return *this;
  }
  ~group() { cancel(); }

  void reserve(index_t sends, index_t receives) {
    cancel();
    list_.reserve(sends, receives);
    const auto n = static_cast<std::size_t>(sends + receives) + list_.messages().size();
    requests_.reserve(n);
    indices_.resize(std::max(n, indices_.size()));
    statuses_.resize(std::max(n, statuses_.size()));
  }
  void clear() noexcept {
    cancel();
    state_ = state::idle;
    list_.clear();
  }
  void label(const message_label& l) noexcept { list_.label(l); }
  void send(const block& b, int peer) noexcept { list_.send(b, peer); }
  void recv(const block& b, int peer) noexcept { list_.recv(b, peer); }

 private:
  friend class transport;
  enum class state : std::uint8_t { idle, under_way, finished };

  explicit group(world& w) : world_(&w), list_(w.size()) {}

  /// "rank 2 waits for 512 KiB from rank 1 (dK/dV, round 2) and for 3 more"; receives are told first.
  std::string waits() const {
    const message* first = first_pending();
    if (!first) return detail::sentence({"rank ", world_->rank(), " is running"});
    const std::string text = waits_text(world_->rank(), *first);
    return pending_ > 1 ? detail::sentence({text, " and for ", pending_ - 1, " more"}) : text;
  }
  const message* first_pending() const {
    const auto all = list_.messages();
    const message* first = nullptr;
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL && (!first || (first->way != all[i].way && first->way == direction::send)))
        first = &all[i];
    return first;
  }
  /// The caller's blocks may be gone already, so that MPI is not asked to move anything more: no other rank is heard.
  void cancel() noexcept {
    if (state_ != state::under_way || world::finalized()) return;
    const std::string text = detail::sentence({"rank ", world_->rank(), " dropped a group under way: ", waits()});
    if (world_->then_ == after_failure::end_job) {
      std::fprintf(stderr, "[seqpar] %s\n", text.c_str());
      MPI_Abort(world_->comm_, 1);
    }
    abandon();
    static_cast<void>(world_->fail({errc::peer_failed, "mpi: a rank dropped a group under way", world_->rank()},
                                   world::notice::kind::failed, text));
  }
  /// Forgets what is under way. MPI may go on reading what is sent, and writing what it has begun to receive.
  void abandon() noexcept {
    const auto all = list_.messages();
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (all[i].way == direction::receive) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
    state_ = state::idle;
  }

  world* world_;
  message_list<> list_;
  std::vector<MPI_Request> requests_;  ///< of the messages, in their order
  std::vector<int> indices_;           ///< where MPI_Testsome writes
  std::vector<MPI_Status> statuses_;
  state state_ = state::idle;
  index_t pending_ = 0;
};

/// One rank's handle on an mpi::world.
///
///   A dense block of up to 2^30 bytes is sent as it is, every other one by a derived datatype: MPI packs where it
///   must. One message is one MPI message of any size. launch and wait allocate nothing, but MPI may: for messages, and
///   for the datatype of a shape that was not met lately.
///   Fails: timed_out (naming the peer), peer_failed (naming the rank), size_mismatch (naming the peer),
///   ranks_disagree (plans were run in different orders),
///   transport_failed (MPI's own words are in report()), and at once, before anything is posted, invalid_argument and
///   overlapping_buffers. After a failure in wait, or abort(), the job ends, or is to be ended (after_failure): there
///   is no way back, and memory of messages under way is to be kept till then.
class transport {
 public:
  using group_type = mpi::group;
  static constexpr transport_access access = transport_access::strided;

  explicit transport(world& w) : world_(&w) {}

  int rank() const noexcept { return world_->rank(); }
  int size() const noexcept { return world_->size(); }
  group_type group() const { return group_type(*world_); }

  status launch(group_type& g, on_host) const noexcept {
    if (g.world_ != world_) return {errc::invalid_argument, "mpi: the group was made by another transport"};
    if (const status wrong = g.list_.problem(); !wrong.ok()) return wrong;
    if (!world_->failure_.ok()) return world_->failure_;
    if (!world_->callable())
      return {errc::invalid_argument,
              "mpi: MPI allows calls from the thread that initialised it only; ask MPI_Init_thread for "
              "MPI_THREAD_SERIALIZED"};
    if (g.state_ == group_type::state::under_way)
      return {errc::invalid_argument, "mpi: the group is under way; wait for it before it is launched again"};
    const auto all = g.list_.messages();
    g.requests_.assign(all.size(), MPI_REQUEST_NULL);
    g.pending_ = static_cast<index_t>(all.size());
    g.state_ = group_type::state::under_way;
    if (!all.empty()) world_->last_ = all.back().label;
    // Receives first, so that what comes at once finds its place. Each pair's order is kept either way.
    for (const direction way : {direction::receive, direction::send})
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].way == way)
          if (const int code = post(all[i], g.requests_[i]); code != MPI_SUCCESS) return engine_failed(g, code);
    return {};
  }
  status wait(group_type& g, on_host) const noexcept { return wait_until(g, detail::after(world_->deadline_)); }
  status wait(group_type& g, on_host, std::chrono::nanoseconds deadline) const noexcept {
    return wait_until(g, detail::after(deadline));
  }
  status check() const noexcept {
    return world_->hear([&] { return detail::sentence({"rank ", rank(), " is running"}); });
  }
  /// This rank gives up; `why`, or else the status's own words, go into the report.
  void abort(const status& s, std::string_view why = {}) const noexcept {
    const std::string last =
        world_->last_ ? detail::sentence({" (its last messages: ", label_text(*world_->last_), ")"}) : "";
    const std::string words = s.words();
    static_cast<void>(world_->fail(
        {errc::peer_failed, "mpi: a rank gave up", rank()}, world::notice::kind::failed,
        detail::sentence({"rank ", rank(), " gave up", last, ": ", why.empty() ? std::string_view(words) : why})));
  }
  /// What has failed, in words; empty when nothing has.
  const std::string& report() const noexcept { return world_->report(); }

 private:
  int post(const message& m, MPI_Request& request) const noexcept {
    const index_t bytes = m.data.bytes();
    MPI_Datatype type = MPI_BYTE;
    int count = static_cast<int>(bytes), error = MPI_SUCCESS;
    if (bytes > 0 && !(m.data.dense() && bytes <= index_t{1} << 30)) {
      type = world_->types_.of(m.data, error);
      count = 1;
      if (type == MPI_DATATYPE_NULL) return error;
    }
    if (m.way == direction::receive)
      return MPI_Irecv(m.data.pointer, count, type, m.peer, world::tag_of(m.label), world_->comm_, &request);
    return MPI_Isend(m.data.pointer, count, type, m.peer, world::tag_of(m.label), world_->comm_, &request);
  }

  status wait_until(group_type& g, detail::instant until) const noexcept {
    index_t bytes = 0;
    for (const message& m : g.list_.messages()) bytes += m.data.bytes();
    detail::patience patience(world_->spin_, bytes);
    while (g.state_ == group_type::state::under_way) {
      const index_t before = g.pending_;
      if (const status wrong = take_finished(g); !wrong.ok()) return wrong;
      if (g.pending_ == 0) {
        g.state_ = group_type::state::finished;
      } else if (g.pending_ < before) {
        patience.reset();
      } else {
        const bool late = detail::passed(until);
        if (!patience.pause() && !late) continue;
        if (const status s = world_->hear([&] { return g.waits(); }); !s.ok()) return give_up(g, s);
        doubt(g);
        if (late) return too_late(g);
      }
    }
    if (!world_->failure_.ok()) return world_->failure_;
    if (g.state_ == group_type::state::finished || g.list_.empty()) return {};
    return {errc::invalid_argument, "mpi: wait for a group that was not launched"};
  }

  /// Counts what MPI has finished, and compares the bytes that came with those expected.
  status take_finished(group_type& g) const noexcept {
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(g.requests_.size()), g.requests_.data(), &count, g.indices_.data(),
                                  g.statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return engine_failed(g, code);
    if (count == MPI_UNDEFINED) count = static_cast<int>(g.pending_ = 0);
    g.pending_ -= count;
    for (int i = 0; i < count; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const message& m = g.list_.messages()[static_cast<std::size_t>(g.indices_[k])];
      int wrong = MPI_SUCCESS;
      if (code == MPI_ERR_IN_STATUS && g.statuses_[k].MPI_ERROR != MPI_SUCCESS)
        MPI_Error_class(g.statuses_[k].MPI_ERROR, &wrong);
      if (wrong != MPI_SUCCESS && wrong != MPI_ERR_TRUNCATE) return engine_failed(g, g.statuses_[k].MPI_ERROR);
      if (m.way == direction::send) continue;
      int unmet = 0;
      MPI_Test_cancelled(&g.statuses_[k], &unmet);
      if (unmet) return other_plan(g, m);
      MPI_Count got = 0;
      MPI_Get_elements_x(&g.statuses_[k], MPI_BYTE, &got);
      if (wrong == MPI_ERR_TRUNCATE || got != m.data.bytes()) return other_size(g, m, wrong == MPI_SUCCESS, got);
    }
    return {};
  }

  /// Has the peer of the first message that is awaited sent one of another plan first? Then the receive is taken back,
  /// which MPI refuses where the right message has met it already.
  void doubt(group_type& g) const noexcept {
    const message* m = g.first_pending();
    int found = 0;
    MPI_Status s;
    if (!m || m->way != direction::receive) return;
    if (MPI_Iprobe(m->peer, MPI_ANY_TAG, world_->comm_, &found, &s) != MPI_SUCCESS || !found) return;
    if (s.MPI_TAG != world::notice_tag && s.MPI_TAG != world::tag_of(m->label))
      MPI_Cancel(&g.requests_[static_cast<std::size_t>(m - g.list_.messages().data())]);
  }
  status other_plan(group_type& g, const message& m) const noexcept {
    return give_up(
        g, world_->fail({errc::ranks_disagree, world::other_plan}, world::notice::kind::astray,
                        detail::sentence({waits_text(rank(), m), ", which has sent what belongs to another plan"})));
  }
  status other_size(group_type& g, const message& m, bool shorter, index_t got) const noexcept {
    const std::string text =
        detail::sentence({"rank ", m.peer, " sends ", shorter ? detail::sentence({got, " B"}) : "more", " to rank ",
                          rank(), ", which expects ", m.data.bytes(), " B (", label_text(m.label), ")"});
    return give_up(g, world_->fail({errc::size_mismatch,
                                    "mpi: a message has other bytes than its receiver expects",
                                    m.peer,
                                    "",
                                    {m.data.bytes(), shorter ? index_t{got} : no_number, " bytes"}},
                                   world::notice::kind::failed, text));
  }
  status engine_failed(group_type& g, int code) const noexcept {
    return give_up(
        g, world_->fail({errc::transport_failed, "mpi: MPI reports an error; report() has its words", rank()},
                        world::notice::kind::failed,
                        detail::sentence(
                            {"rank ", rank(), ": ", detail::error_text(code), " (", label_text(*world_->last_), ")"})));
  }
  status too_late(group_type& g) const noexcept {
    const message* m = g.first_pending();
    return give_up(g, world_->fail({errc::timed_out, "mpi: a peer did not come before the deadline", m ? m->peer : -1},
                                   world::notice::kind::late, g.waits()));
  }
  static status give_up(group_type& g, const status& s) noexcept {
    g.abandon();
    return s;
  }

  world* world_;
};

}  // namespace mpi
}  // namespace v0_1
}  // namespace seqpar
