// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Your own transport: letter boxes between threads. Returns 0 when the transport keeps the laws.
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <seqpar/space/copy.hpp>
#include <seqpar/transport/explain.hpp>
#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/message.hpp>
#include <thread>
#include <vector>

// The engine: one box for each ordered pair of ranks. The letters of a pair are numbered when they are launched, so
// that the order in which groups are waited for does not matter.
struct post_office {
  struct box {
    std::map<seqpar::index_t, std::vector<std::byte>> letters;
    seqpar::index_t sent = 0, awaited = 0;
  };
  explicit post_office(int ranks) : size(ranks), boxes(static_cast<std::size_t>(ranks * ranks)) {}
  box& between(int from, int to) { return boxes[static_cast<std::size_t>(from * size + to)]; }

  int size;
  std::vector<box> boxes;
  std::mutex mutex;
  std::condition_variable changed;
  seqpar::status failure;
};

struct numbered : seqpar::message {
  seqpar::index_t number = 0;
};

// [snippet]
// A handle that is copied freely.
class mailbox {
 public:
  using group_type = seqpar::message_list<numbered>;  // keeps messages and finds wrong ones
  static constexpr auto access = seqpar::transport_access::strided;

  mailbox(post_office& office, int rank) : office_(&office), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return office_->size; }
  group_type group() const { return group_type(size()); }

  seqpar::status launch(group_type& group, seqpar::on_host) const;     // posts all messages; never waits for a peer
  seqpar::status wait(group_type& group, seqpar::on_host exec) const;  // until all are done, or something has failed
  seqpar::status wait(group_type& group, seqpar::on_host, std::chrono::nanoseconds deadline) const;
  seqpar::status check() const;             // has anything failed?
  void abort(const seqpar::status&) const;  // this rank gave up: every wait of every rank returns peer_failed

 private:
  post_office* office_;
  int rank_;
};

static_assert(seqpar::explain_transport<mailbox>());  // names a missing member
// [/snippet]

seqpar::status mailbox::launch(group_type& group, seqpar::on_host) const {
  if (const seqpar::status wrong = group.problem(); !wrong.ok()) return wrong;
  const std::lock_guard lock(office_->mutex);
  for (numbered& m : group.messages()) {
    if (m.way == seqpar::direction::receive) {
      m.number = office_->between(m.peer, rank_).awaited++;
      continue;
    }
    std::vector<std::byte> letter(static_cast<std::size_t>(m.data.bytes()));
    seqpar::copy_block(seqpar::dense_block(letter.data(), m.data.bytes()), m.data);
    post_office::box& box = office_->between(rank_, m.peer);
    box.letters.emplace(box.sent++, std::move(letter));
  }
  office_->changed.notify_all();
  return office_->failure;
}

seqpar::status mailbox::wait(group_type& group, seqpar::on_host exec) const {
  return wait(group, exec, std::chrono::minutes(10));
}

seqpar::status mailbox::wait(group_type& group, seqpar::on_host, std::chrono::nanoseconds deadline) const {
  const auto until = std::chrono::steady_clock::now() + deadline;
  std::unique_lock lock(office_->mutex);
  for (const numbered& m : group.messages()) {
    if (m.way == seqpar::direction::send) continue;  // done when launched: its bytes are in the box
    auto& letters = office_->between(m.peer, rank_).letters;
    const auto ready = [&] { return !office_->failure.ok() || letters.contains(m.number); };
    if (!office_->changed.wait_until(lock, until, ready))
      return {seqpar::errc::timed_out, "mailbox: no letter before the deadline", m.peer};
    if (!office_->failure.ok()) return office_->failure;
    const auto letter = letters.extract(m.number);
    const auto bytes = static_cast<seqpar::index_t>(letter.mapped().size());
    if (bytes != m.data.bytes())
      return {seqpar::errc::size_mismatch, "mailbox: a letter has other bytes than expected", m.peer};
    seqpar::copy_block(m.data, seqpar::dense_block(letter.mapped().data(), bytes));
  }
  return {};
}

seqpar::status mailbox::check() const {
  const std::lock_guard lock(office_->mutex);
  return office_->failure;
}

void mailbox::abort(const seqpar::status&) const {
  const std::lock_guard lock(office_->mutex);
  if (office_->failure.ok()) office_->failure = {seqpar::errc::peer_failed, "mailbox: a rank gave up", rank_};
  office_->changed.notify_all();
}

// Every rank runs the laws; each is told the first one that it saw broken.
const char* broken_law(int ranks) {
  post_office office(ranks);
  std::vector<const char*> broken(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back(
        [&, r] { broken[static_cast<std::size_t>(r)] = seqpar::run_transport_laws(mailbox(office, r)); });
  for (std::thread& t : threads) t.join();
  for (const char* law : broken)
    if (law) return law;
  return nullptr;
}

int main() {
  for (int ranks = 1; ranks <= 5; ++ranks)
    if (const char* law = broken_law(ranks)) {
      std::printf("%d ranks: broken: %s\n", ranks, law);
      return 1;
    }
  std::printf("a mailbox keeps the laws of a transport for 1 to 5 ranks\n");
}
