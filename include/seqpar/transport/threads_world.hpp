// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The engine under threads::transport: who has posted what, who waits for whom, and what has failed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <seqpar/space/copy.hpp>
#include <seqpar/transport/deadline.hpp>
#include <seqpar/transport/message.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace threads {

struct options {
  extent ranks;
  /// How long a wait that names no deadline may last; none: for ever, unless all ranks wait for each other.
  std::optional<std::chrono::nanoseconds> deadline{};
  /// A seed: random delays before posting, copying and returning, and copies made as early or as late as is legal.
  std::optional<std::uint64_t> adversary{};
};

class transport;
class group;

namespace detail {
using seqpar::detail::after;
using seqpar::detail::clock;
using seqpar::detail::instant;
using seqpar::detail::passed;
using seqpar::detail::sentence;

/// posted: in the queue of its pair.  matched: its receive is in the receiver's list.  copying: outside the lock.
enum class phase : std::uint8_t { idle, posted, matched, copying, done };

struct operation : message {
  int rank = -1;
  phase at = phase::idle;
  operation *previous = nullptr, *next = nullptr;  ///< in a queue or list
  operation* partner = nullptr;
  status (*move)(operation& to, operation& from) = nullptr;  ///< instead of a copy; called by the receiver
  void* context = nullptr;                                   ///< of move
  operation* lead = nullptr;  ///< the first of its group, whose `pending` counts the group
  index_t pending = 0;
};

/// A list threaded through its members: no storage of its own.
struct operation_list {
  operation *head = nullptr, *tail = nullptr;
  void push_back(operation& o) {
    o.previous = tail;
    o.next = nullptr;
    (tail ? tail->next : head) = &o;
    tail = &o;
  }
  void remove(operation& o) {
    (o.previous ? o.previous->next : head) = o.next;
    (o.next ? o.next->previous : tail) = o.previous;
    o.previous = o.next = nullptr;
  }
};
}  // namespace detail

/// What the ranks of one process share. It must outlive its transports and their groups. One mutex guards all of it;
/// bytes are copied outside the mutex, by the receiving rank, straight from the sender's block into its own.
class world {
 public:
  template <class = when_used>
  explicit world(const options& o)
      : size_(o.ranks > 0 && o.ranks <= 1 << 15 ? static_cast<int>(o.ranks) : 0),
        deadline_(o.deadline),
        adversary_(o.adversary.has_value()),
        ranks_(ranks()),
        pairs_(ranks() * ranks()) {
    if (size_ == 0) raise(seqpar::detail::invalid("threads::world", {"a world has 1 to 32768 ranks, got ", o.ranks}));
    for (int r = 0; r < size_; ++r)
      ranks_[at(r)].random = o.adversary.value_or(0) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(r);
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  int size() const noexcept { return size_; }
  /// The handle of one rank; defined in threads.hpp.
  transport rank(int r);
  /// What has failed, in words; empty when nothing has.
  std::string report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }
  /// The rank that failed first; −1: none, or all at once.
  int failed_rank() const {
    const std::lock_guard lock(mutex_);
    return failed_ ? culprit_ : -1;
  }

 private:
  friend class transport;
  friend class group;
  using operation = detail::operation;
  using phase = detail::phase;
  using guard = std::unique_lock<std::mutex>;

  struct rank_state {
    std::condition_variable wake;
    detail::operation_list ready;          ///< matched receives that this rank has still to copy
    std::span<const operation> waits_for;  ///< while in wait()
    bool idle = false;                     ///< can do nothing until another rank does something
    bool cancelling = false, recovering = false, left = false;
    std::uint64_t random = 0;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  detail::operation_list& pair(int from, int to) { return pairs_[at(from) * ranks() + at(to)]; }
  detail::operation_list& pair_of(const operation& o) {
    return o.way == direction::send ? pair(o.rank, o.peer) : pair(o.peer, o.rank);
  }

  // ---- posting, copying, cancelling -------------------------------------------------------------------------------

  /// Matches `o` with the oldest counterpart of its pair, or leaves it in the queue. A queue holds one direction only.
  template <class = when_used>
  void post(operation& o) {
    detail::operation_list& queue = pair_of(o);
    if (queue.head == nullptr || queue.head->way == o.way) {
      o.at = phase::posted;
      queue.push_back(o);
      return;
    }
    operation& other = *queue.head;
    queue.remove(other);
    operation &r = o.way == direction::receive ? o : other, &s = o.way == direction::receive ? other : o;
    r.partner = &s;
    s.partner = &r;
    r.at = s.at = phase::matched;
    ranks_[at(r.rank)].ready.push_back(r);
    if (of_two_plans(r.label, s.label)) {
      fail({errc::ranks_disagree, other_plan}, -1,
           detail::sentence({"rank ", s.rank, "'s message to rank ", r.rank, " (", label_text(s.label),
                             ") belongs to another plan than the one it meets (", label_text(r.label),
                             label_text(r.label) == label_text(s.label) ? ", of another such plan" : "",
                             "); run plans in the same order on all ranks"}));
    } else if (r.data.bytes() != s.data.bytes()) {
      fail({errc::size_mismatch,
            "threads: a message has other bytes than its receiver expects",
            s.rank,
            "",
            {r.data.bytes(), s.data.bytes(), " bytes"}},
           s.rank,
           detail::sentence({"rank ", s.rank, " sends ", s.data.bytes(), " B to rank ", r.rank, " (",
                             label_text(s.label), "), which expects ", r.data.bytes(), " B (", label_text(r.label),
                             ")"}));
    } else if (r.rank != o.rank) {
      wake(r.rank);
    }
  }

  /// Copies one matched receive of this rank, with the lock released meanwhile.
  template <class = when_used>
  void copy(operation& r, guard& lock) {
    operation& s = *r.partner;
    ranks_[at(r.rank)].ready.remove(r);
    r.at = s.at = phase::copying;
    lock.unlock();
    delay(r.rank);
    status moved;
    if (r.move)
      moved = r.move(r, s);
    else
      copy_block(r.data, s.data);
    delay(r.rank);
    lock.lock();
    if (!moved.ok()) fail(moved, r.rank, detail::sentence({"rank ", r.rank, " could not copy: ", moved.message()}));
    r.at = s.at = phase::done;
    --r.lead->pending;
    --s.lead->pending;
    if (s.lead->pending == 0 || ranks_[at(s.rank)].cancelling) wake(s.rank);
  }

  /// Which matched receive to copy next. The adversary leaves those of other groups for when nothing else is left.
  template <class = when_used>
  operation* pick(int rank, const operation* lead) {
    const detail::operation_list& ready = ranks_[at(rank)].ready;
    if (!coin(rank)) return ready.head;
    for (operation* o = ready.head; o; o = o->next)
      if (o->lead == lead) return o;
    return ready.tail;
  }

  /// Takes back what is not done, after the copies that peers are making from it. A message that its peer may count on
  /// cannot vanish unnoticed (the next one would be taken for it), so the world fails.
  template <class = when_used>
  void cancel(message_list<operation>& list, int rank, guard& lock) {
    operation* first = nullptr;
    for (operation& o : list) {
      if (o.at != phase::posted && o.at != phase::matched) continue;
      if (!first) first = &o;
      if (o.at == phase::posted) {
        pair_of(o).remove(o);
      } else {
        operation& r = o.way == direction::receive ? o : *o.partner;
        ranks_[at(r.rank)].ready.remove(r);
        o.partner->at = phase::idle;
      }
      o.at = phase::idle;
    }
    if (first && !failed_)
      fail(gave_up(rank), rank,
           detail::sentence({"rank ", rank, " dropped a group under way: ", waits_text(rank, *first)}));
    rank_state& me = ranks_[at(rank)];
    me.cancelling = true;
    me.wake.wait(lock, [&] {
      for (const operation& o : list)
        if (o.at == phase::copying) return false;
      return true;
    });
    me.cancelling = false;
  }

  // ---- waiting ----------------------------------------------------------------------------------------------------

  void wake(int rank) {
    rank_state& r = ranks_[at(rank)];
    if (r.idle && !r.left) {
      r.idle = false;
      --idle_;
    }
    r.wake.notify_all();
  }
  void wake_all() {
    for (int r = 0; r < size_; ++r) wake(r);
  }

  /// Sleeps until woken; false when the deadline passed first.
  template <class = when_used>
  bool sleep(int rank, detail::instant until, guard& lock) {
    rank_state& me = ranks_[at(rank)];
    me.idle = true;
    ++idle_;
    find_deadlock();
    const auto woken = [&] { return !me.idle; };
    if (!until)
      me.wake.wait(lock, woken);
    else
      me.wake.wait_until(lock, *until, woken);
    if (woken()) return true;
    me.idle = false;
    --idle_;
    return false;
  }

  /// Nobody can do anything any more, and somebody waits for messages.
  template <class = when_used>
  void find_deadlock() {
    if (failed_ || idle_ < size_) return;
    for (int r = 0; r < size_; ++r)
      if (!ranks_[at(r)].waits_for.empty()) {
        fail({errc::deadlock,
              "threads: all ranks wait for each other or have returned; report() tells who waits for whom"},
             -1, detail::sentence({"deadlock: ", waits()}));
        return;
      }
  }

  /// Who waits for whom: one clause a rank.
  template <class = when_used>
  std::string waits() const {
    std::string text;
    for (int r = 0; r < size_; ++r) {
      const rank_state& state = ranks_[at(r)];
      if (r > 0) text += "; ";
      const char* doing = state.recovering ? " is in recover()" : state.left ? " has returned" : " is running";
      std::string clause = detail::sentence({"rank ", r, doing});
      index_t more = -1;
      for (const operation& o : state.waits_for)
        if (o.at != phase::done && ++more == 0) clause = waits_text(r, o);
      text += clause;
      if (more > 0) text += detail::sentence({" and for ", more, " more"});
    }
    return text;
  }

  // ---- failing and recovering -------------------------------------------------------------------------------------

  static constexpr const char* other_plan =
      "threads: a message belongs to another plan; run plans in the same order on all ranks";
  static status gave_up(int rank) { return {errc::peer_failed, "threads: a rank gave up", rank}; }

  /// The first failure is kept and told to every rank: `own` to the culprit (to all when there is none, or when all
  /// are told the same), peer_failed to the others.
  template <class = when_used>
  void fail(const status& own, int culprit, std::string_view text) {
    if (failed_) {
      if (culprit_ != culprit || culprit < 0 || report_.find(text) != std::string::npos) return;
      if (text.starts_with(report_))
        report_ = text;
      else
        report_.append("; ").append(text);
      return;
    }
    failed_ = true;
    failure_ = own;
    culprit_ = culprit;
    report_ = text;
    wake_all();
  }
  status failure_for(int rank) const {
    if (!failed_) return {};
    if (failure_.code() == errc::timed_out && rank != culprit_)
      return {errc::peer_failed, "threads: a rank waited past its deadline", culprit_};
    return failure_;
  }

  /// All ranks have come: forget every message and the failure.
  template <class = when_used>
  void forget() {
    for (std::size_t p = 0; p < ranks() * ranks(); ++p) release(pairs_[p]);
    for (std::size_t r = 0; r < ranks(); ++r) {
      release(ranks_[r].ready);
      ranks_[r].recovering = false;
    }
    recovering_ = 0;
    ++epoch_;
    failed_ = false;
    report_.clear();
    wake_all();
  }
  static void release(detail::operation_list& list) {
    while (operation* o = list.head) {
      list.remove(*o);
      if (o->at == phase::matched) o->partner->at = phase::idle;
      o->at = phase::idle;
    }
  }

  template <class = when_used>
  status recover(int rank) noexcept {
    guard lock(mutex_);
    rank_state& me = ranks_[at(rank)];
    const detail::instant until = detail::after(deadline_);
    const std::uint64_t epoch = epoch_;
    me.recovering = true;
    if (++recovering_ == size_) forget();
    bool in_time = true;
    while (epoch == epoch_) {
      const int gone = left_rank();
      if (gone < 0 && in_time) {
        in_time = sleep(rank, until, lock);
        continue;
      }
      me.recovering = false;
      --recovering_;
      if (gone >= 0) return {errc::peer_failed, "threads: recover() needs all ranks, and one has returned", gone};
      return {errc::timed_out, "threads: recover() needs all ranks, and not all came in time"};
    }
    return {};
  }
  int left_rank() const {
    for (int r = 0; r < size_; ++r)
      if (ranks_[at(r)].left) return r;
    return -1;
  }

  template <class = when_used>
  void leave(int rank) noexcept {
    const guard lock(mutex_);
    rank_state& me = ranks_[at(rank)];
    if (me.left) return;
    me.left = me.idle = true;
    ++idle_;
    if (recovering_ > 0) wake_all();
    find_deadlock();
  }

  // ---- the adversary ----------------------------------------------------------------------------------------------

  std::uint64_t draw(int rank) {
    std::uint64_t z = ranks_[at(rank)].random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  bool coin(int rank) { return adversary_ && draw(rank) % 2 == 0; }
  template <class = when_used>
  void delay(int rank) {
    if (!adversary_) return;
    const std::uint64_t luck = draw(rank) % 16;
    if (luck < 4) std::this_thread::yield();
    if (luck == 4) std::this_thread::sleep_for(std::chrono::microseconds(draw(rank) % 200));
  }

  const int size_;
  const std::optional<std::chrono::nanoseconds> deadline_;
  const bool adversary_;
  mutable std::mutex mutex_;
  std::vector<rank_state> ranks_;
  std::vector<detail::operation_list> pairs_;  ///< [from][to]
  int idle_ = 0, recovering_ = 0, culprit_ = -1;
  std::uint64_t epoch_ = 0;  ///< counts recoveries, so that older groups are known
  bool failed_ = false;
  status failure_{};
  std::string report_;
};

}  // namespace threads
}  // namespace v0_1
}  // namespace seqpar
