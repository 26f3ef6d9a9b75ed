// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The engine under mpi::transport: a communicator of its own, and how a failure is told to all ranks.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <seqpar/transport/deadline.hpp>
#include <seqpar/transport/message.hpp>
#include <seqpar/transport/mpi_types.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace mpi {

/// What becomes of a job whose first rank has failed.
enum class after_failure {
  end_job,  ///< one rank prints the report, and MPI_Abort ends all
  report    ///< every launch and wait returns the failure; report() has the words. The caller ends the job
};

struct options {
  /// How long a wait that names no deadline may last; none: for ever.
  std::optional<std::chrono::nanoseconds> deadline{};
  after_failure then = after_failure::end_job;
  /// A wait asks MPI again and again for so long, and as long for each 4 MiB of its group (MPI moves a large message
  /// while it is asked), then every 50 µs. Longer pays where every rank has a core of its own.
  std::chrono::nanoseconds spin = std::chrono::milliseconds(10);
};

class group;
class transport;

namespace detail {
using seqpar::detail::after;
using seqpar::detail::clock;
using seqpar::detail::instant;
using seqpar::detail::passed;
using seqpar::detail::sentence;

/// How a rank that must ask again and again leaves its core to others.
class patience {
 public:
  /// bytes: that are awaited. MPI moves a large message while it is asked: the more there is, the longer.
  explicit patience(std::chrono::nanoseconds spin, index_t bytes = 0)
      : spin_(spin * (1 + bytes / (index_t{4} << 20))), looks_(64 + bytes / 4096) {}
  void reset() { since_ = clock::now(); }
  /// Returns whether there is time to look at other things.
  bool pause() {
    if (++turns_ < looks_) return false;  // much comes at once, and to yield takes longer than to look
    if (clock::now() - since_ < spin_) {
      std::this_thread::yield();
      return turns_ % 256 == 0;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return true;
  }

 private:
  std::chrono::nanoseconds spin_;
  clock::time_point since_ = clock::now();
  index_t looks_, turns_ = 0;
};

/// What a rank tells all others when something has failed.
struct notice {
  /// waits: joined in when another told.  late: its own deadline passed.  astray: it, or who told it, met a message of
  /// another plan.
  enum class kind : std::int32_t { none, waits, late, astray, failed };
  kind what = kind::none;
  int cause = -1;  ///< the rank that failed or was late; another one, when this rank only joins in
  char text[248] = {};
};

inline std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return {text, static_cast<std::size_t>(length)};
}
}  // namespace detail

/// One rank's part of a communicator of seqpar's own: a duplicate, so that its messages never meet the caller's. It
/// outlives its transports and their groups, and is used by one thread at a time: the one that initialised MPI unless
/// MPI provides MPI_THREAD_SERIALIZED. Two worlds in two threads at once need MPI_THREAD_MULTIPLE.
///
///   Collective over `comm`: every rank makes its worlds in the same order. Any subset and order of ranks is a `comm`.
///   Fails (constructor, error): MPI not initialised or already finalised, a thread that may not call MPI, a
///   communicator that is null or joins two groups, ranks that do not come before the deadline: then no rank has a
///   world, and `comm` can make no other.
class world {
 public:
  explicit world(MPI_Comm comm, const options& o = {})
      : deadline_(o.deadline), then_(o.then), spin_(o.spin), own_(std::make_unique<detail::notice>()) {
    refuse_unless_callable();
    int between_groups = 0;
    if (comm == MPI_COMM_NULL) refuse("the communicator is null on this rank; only its members make a world");
    must(MPI_Comm_test_inter(comm, &between_groups));
    if (between_groups) refuse("the communicator joins two groups; give one of a single group");
    join(comm);
    must(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    must(MPI_Comm_rank(comm_, &rank_));
    must(MPI_Comm_size(comm_, &size_));
    heard_.resize(static_cast<std::size_t>(size_));
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  /// Waits for the others, a second longer than its deadline, and hears of the failure of one that waits for this rank
  /// in vain. A world that ends because an exception passes waits a moment only, for the others to leave by the same
  /// one, and then tells them itself. After a failure MPI may still hold what
  /// this world gave it, and freeing is left out, like after MPI_Finalize.
  ~world() {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    const bool all_left = failure_.ok() && !finalized() && part(unwinding);
    if (unwinding && !all_left && failure_.ok() && !finalized())
      static_cast<void>(fail({errc::peer_failed, "mpi: a rank left by an exception", rank_}, notice::kind::failed,
                             detail::sentence({"rank ", rank_, " left its world by an exception"})));
    if (!failure_.ok()) static_cast<void>(own_.release());
    if (finalized())
      types_.forget();
    else if (all_left)
      MPI_Comm_free(&comm_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// What has failed, in words; empty when nothing has.
  const std::string& report() const noexcept { return report_; }

 private:
  friend class transport;
  friend class group;
  using notice = detail::notice;
  static constexpr int notice_tag = 1;
  static constexpr const char* other_plan =
      "mpi: a message belongs to another plan; run plans in the same order on all ranks";
  /// Of messages: one for each plan, nearly, so that they do not meet. MPI has tags up to 2^15 − 1 at least.
  static int tag_of(const message_label& l) {
    return l.plan == 0 ? 0 : static_cast<int>((l.plan >> 1) % ((index_t{1} << 15) - 2)) + 2;
  }

  [[noreturn]] static void refuse(seqpar::detail::word what) { raise(seqpar::detail::invalid("mpi::world", what)); }
  static void must(int code) {
    if (code != MPI_SUCCESS)
      raise(error(errc::transport_failed, detail::sentence({"mpi::world: ", detail::error_text(code)})));
  }
  static bool finalized() {
    int flag = 0;
    MPI_Finalized(&flag);
    return flag != 0;
  }
  /// comm_ is made a duplicate, by the deadline: on all ranks or, when one gave up, on none.
  void join(MPI_Comm comm) {
    auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    const detail::instant until = detail::after(deadline_);
    detail::patience patience(spin_);
    const auto finish = [&] {
      for (int done = 0;; patience.pause()) {
        must(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return;
        if (!detail::passed(until)) continue;
        static_cast<void>(made.release());  // MPI may still write there
        raise(error(errc::timed_out,
                    "mpi::world: not all ranks of the communicator came before the deadline; every rank of it makes "
                    "its worlds in the same order"));
      }
    };
    must(MPI_Comm_idup(comm, made.get(), &request));
    finish();
    must(MPI_Ibarrier(*made, &request));
    finish();
    comm_ = *made;
  }
  /// Has every rank left?
  bool part(bool unwinding) {
    MPI_Request request = MPI_REQUEST_NULL;
    int all = 0;
    if (MPI_Ibarrier(comm_, &request) != MPI_SUCCESS) return false;
    // Those who wait for this rank may have begun a little later than it.
    // Others wait for one that unwinds until their deadline: it speaks before them.
    const std::chrono::nanoseconds moment = 5 * grace;
    const detail::instant until = unwinding   ? detail::after(deadline_ ? std::min(moment, *deadline_ / 2) : moment)
                                  : deadline_ ? detail::after(*deadline_ + moment)
                                              : detail::instant{};
    const auto leaving = [&] { return detail::sentence({"rank ", rank_, " has left"}); };
    const auto failed = [&] { return unwinding ? take_notices() >= 0 : !hear(leaving).ok(); };
    detail::patience patience(spin_);
    while (MPI_Test(&request, &all, MPI_STATUS_IGNORE) == MPI_SUCCESS && !all && !detail::passed(until))
      if (patience.pause() && failed()) return false;
    return all != 0;
  }
  void refuse_unless_callable() {
    int initialized = 0, level = 0;
    MPI_Initialized(&initialized);
    if (!initialized) refuse("MPI is not initialised; call MPI_Init first");
    if (finalized()) refuse("MPI is already finalised");
    MPI_Query_thread(&level);
    one_thread_ = level < MPI_THREAD_SERIALIZED;
    if (!callable())
      refuse(
          "MPI allows calls from the thread that initialised it only; ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
  }
  /// From this thread?
  bool callable() const {
    int main_thread = 1;
    if (one_thread_) MPI_Is_thread_main(&main_thread);
    return main_thread != 0;
  }

  // ---- failing ----------------------------------------------------------------------------------------------------

  static constexpr std::chrono::milliseconds grace{200};

  /// Keeps this rank's first failure and tells it to all. Those who wait answer with whom they wait for; one rank of
  /// those who know speaks for all. Returns the failure; does not return if it ends the job.
  status fail(const status& own, notice::kind what, std::string_view text) {
    if (!failure_.ok()) return failure_;
    failure_ = own;
    own_->what = what;
    own_->cause = what == notice::kind::waits ? own.rank() : rank_;
    own_->text[text.copy(own_->text, sizeof own_->text - 1)] = 0;
    heard_[at(rank_)] = *own_;
    for (int r = 0; r < size_; ++r) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (r == rank_) continue;
      if (MPI_Isend(own_.get(), sizeof *own_, MPI_BYTE, r, notice_tag, comm_, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
    if (then_ == after_failure::end_job || !anyone(notice::kind::failed)) listen(grace);
    report_ = words();
    if (then_ == after_failure::report) return failure_;
    if (speaker() == rank_)
      std::fprintf(stderr, "[seqpar] %s\n", report_.c_str());
    else
      std::this_thread::sleep_for(2 * grace);  // for the speaker to be heard, who ends the job meanwhile
    MPI_Abort(comm_, 1);
    return failure_;
  }

  /// Has another rank failed? Then this one joins in, saying what it does.
  template <class Doing>
  status hear(Doing&& doing) {
    if (!failure_.ok()) return failure_;
    const int source = take_notices();
    if (source < 0) return {};
    const notice& heard = heard_[at(source)];
    if (heard.what == notice::kind::astray)
      return fail({errc::ranks_disagree, other_plan}, notice::kind::astray, doing());
    return fail({errc::peer_failed, "mpi: another rank has failed; report() tells how", heard.cause},
                notice::kind::waits, doing());
  }

  /// Receives what has come; the last rank that it came from, or −1.
  int take_notices() {
    int source = -1;
    MPI_Status s;
    // A probe that finds nothing may be what brings a message in.
    for (int found = 0, empty = 0; empty < 2; empty = found ? 0 : empty + 1) {
      if (MPI_Iprobe(MPI_ANY_SOURCE, notice_tag, comm_, &found, &s) != MPI_SUCCESS) break;
      if (!found) continue;
      notice n;
      if (MPI_Recv(&n, sizeof n, MPI_BYTE, s.MPI_SOURCE, notice_tag, comm_, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      n.text[sizeof n.text - 1] = 0;
      heard_[at(source = s.MPI_SOURCE)] = n;
    }
    return source;
  }
  void listen(std::chrono::nanoseconds how_long) {
    const detail::instant until = detail::after(how_long);
    const auto silent = [](const notice& n) { return n.what == notice::kind::none; };
    while (std::any_of(heard_.begin(), heard_.end(), silent) && detail::clock::now() < *until) {
      take_notices();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  bool anyone(notice::kind what) const {
    return std::any_of(heard_.begin(), heard_.end(), [&](const notice& n) { return n.what == what; });
  }
  /// What the others answer.
  notice::kind worst() const {
    return anyone(notice::kind::failed)   ? notice::kind::failed
           : anyone(notice::kind::astray) ? notice::kind::astray
                                          : notice::kind::late;
  }
  /// The lowest of those who failed, or else of those who were late: never one that was stopped and goes on now.
  int speaker() const {
    const notice::kind what = worst();
    const auto first = std::find_if(heard_.begin(), heard_.end(), [&](const notice& n) { return n.what == what; });
    return static_cast<int>(first - heard_.begin());
  }
  /// What failed; or, when ranks only wait, one clause for each rank.
  std::string words() const {
    const bool only_failed = anyone(notice::kind::failed);
    std::string text;
    for (int r = 0; r < size_; ++r) {
      const notice& n = heard_[at(r)];
      if (only_failed && n.what != notice::kind::failed) continue;
      if (!text.empty()) text += "; ";
      text += n.what == notice::kind::none ? detail::sentence({"rank ", r, " does not answer"}) : n.text;
    }
    if (only_failed) return text;
    return worst() == notice::kind::late ? detail::sentence({"timed out: ", text})
                                         : detail::sentence({text, "; run plans in the same order on all ranks"});
  }

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1, size_ = 0;
  std::optional<std::chrono::nanoseconds> deadline_;
  after_failure then_;
  std::chrono::nanoseconds spin_;
  int exceptions_ = std::uncaught_exceptions();  ///< that were passing when this was made
  bool one_thread_ = true;                       ///< MPI serves the one that initialised it
  detail::type_cache types_;
  status failure_{};
  std::string report_;
  std::optional<message_label> last_;  ///< what was launched last
  std::unique_ptr<notice> own_;        ///< what was told: MPI may read it for as long as it likes
  std::vector<notice> heard_;          ///< from each rank
};

}  // namespace mpi
}  // namespace v0_1
}  // namespace seqpar
