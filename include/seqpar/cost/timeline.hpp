// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// When everything happens: runs on paper, played on a machine.
#pragma once

#include <algorithm>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/cost/machine.hpp>
#include <seqpar/cost/paper.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Something that took time.
struct timeline_span {
  enum class kind : std::uint8_t { compute, memory, wait, transfer };
  kind what;
  int rank, to;  ///< who does it; transfer: who sends and who receives
  double start, end;
  message_label label{};
  index_t bytes = 0;
  int before = -1;  ///< the span that had to end first; −1: none
};

/// An event simulation of what the ranks wrote down (run_on_paper); there is no other model of a schedule.
///
/// A rank does one thing after the other: it computes, copies, launches (which takes no time) and waits. A transfer
/// begins when both sides have launched it and the sender's port out and the receiver's port in, one of each for each
/// class of link, are free; it keeps them for bytes / bandwidth, and is there a latency later. First come, first
/// served. Fails (error): a machine with a speed that is not above 0; runs whose messages do not match.
class timeline {
 public:
  timeline(const std::vector<paper_page>& pages, const machine& m) : pages_(&pages), machine_(m) {
    detail::check_machine("timeline", m, static_cast<index_t>(pages.size()));
    ranks_.resize(pages.size());
    for (int way = 0; way < 2; ++way) ports_[way].resize(2 * pages.size());
    match();
    for (std::size_t r = 0; r < pages.size(); ++r) advance(static_cast<int>(r), 0, -1);
    while (!events_.empty()) {
      const event e = events_.top();
      events_.pop();
      happen(e);
    }
    for (std::size_t r = 0; r < pages.size(); ++r) {
      if (ranks_[r].next < pages[r].operations.size()) raise(mismatch("rank " + std::to_string(r) + " waits for ever"));
      total_ = std::max(total_, ranks_[r].time);
      for (const paper_operation& o : pages[r].operations)
        ideal_ += o.flops / m.flops / static_cast<double>(pages.size());
    }
  }

  /// In the order in which they began on each rank; transfers among them.
  const std::vector<timeline_span>& spans() const& { return spans_; }
  std::vector<timeline_span> spans() && { return std::move(spans_); }
  double total() const { return total_; }
  double ideal() const { return ideal_; }  ///< all ranks computing all the time
  double efficiency() const { return total_ > 0 ? ideal_ / total_ : 1; }
  double ends(int rank) const { return ranks_[static_cast<std::size_t>(rank)].time; }
  /// What a rank spends in this way; waiting is communication that nothing hides.
  double spent(int rank, timeline_span::kind what) const {
    double sum = 0;
    for (const timeline_span& s : spans_)
      if (s.what == what && s.rank == rank) sum += s.end - s.start;
    return sum;
  }
  /// Spans of which each had to end before the next one could go on, up to the last end; waits are left out.
  std::vector<timeline_span> critical_path() const {
    std::vector<timeline_span> path;
    int at = -1;
    for (const rank_state& r : ranks_)
      if (r.time == total_ && r.last >= 0) at = r.last;
    for (; at >= 0; at = spans_[static_cast<std::size_t>(at)].before)
      if (const timeline_span& s = spans_[static_cast<std::size_t>(at)]; s.what != timeline_span::kind::wait)
        path.push_back(s);
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  struct rank_state {
    double time = 0;
    int last = -1;                            ///< span
    std::size_t next = 0;                     ///< operation
    int waits_for = -1;                       ///< launch
    std::vector<std::vector<int>> transfers;  ///< of each launch
    std::vector<int> open;                    ///< how many of them are not there
  };
  struct transfer {
    int from, to;
    index_t bytes;
    message_label label;
    int launches[2];  ///< of the sender and the receiver
    int posted = 0;
    double ready = 0;
    int cause = -1, span = -1;
    bool started = false;
  };
  struct port {
    bool busy = false;
    std::vector<int> queue;
  };
  struct event {
    double time;
    enum class kind : std::uint8_t { ready, sent, there } what;
    int transfer;
  };
  struct later {
    bool operator()(const event& a, const event& b) const {
      return a.time != b.time ? a.time > b.time : a.transfer > b.transfer;
    }
  };

  static error mismatch(const std::string& what) {
    return detail::invalid("timeline", what + "; give the pages of all ranks of one run");
  }
  rank_state& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  transfer& at(int i) { return transfers_[static_cast<std::size_t>(i)]; }
  port& port_of(const transfer& t, int way) {
    const int rank = way == 0 ? t.from : t.to;
    return ports_[way][static_cast<std::size_t>(2 * rank + (machine_.one_node(t.from, t.to) ? 0 : 1))];
  }

  /// The k-th send from one rank to another is the k-th receive there; messages of one launch go together.
  void match() {
    struct half {
      int from, to, launch;
      index_t bytes;
      message_label label;
    };
    std::vector<half> halves[2];
    for (std::size_t r = 0; r < pages_->size(); ++r) {
      const paper_page& page = (*pages_)[r];
      ranks_[r].transfers.resize(static_cast<std::size_t>(page.launches));
      ranks_[r].open.resize(static_cast<std::size_t>(page.launches));
      std::size_t begins[2] = {halves[0].size(), halves[1].size()};
      int launch = -1;
      for (std::size_t i = 0; i < page.messages.size(); ++i) {
        const recorded_message& m = page.messages[i];
        if (page.launch_of[i] != launch) {
          launch = page.launch_of[i];
          for (int way = 0; way < 2; ++way) begins[way] = halves[way].size();
        }
        const std::size_t way = m.way == direction::send ? 0 : 1;
        auto same = halves[way].begin() + static_cast<std::ptrdiff_t>(begins[way]);
        while (same != halves[way].end() && (same->from != m.from || same->to != m.to)) ++same;
        if (same == halves[way].end())
          halves[way].push_back({m.from, m.to, launch, m.bytes, m.label});
        else
          same->bytes += m.bytes;
      }
    }
    for (auto& list : halves)
      std::stable_sort(list.begin(), list.end(),
                       [](const half& a, const half& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
    if (halves[0].size() != halves[1].size()) raise(mismatch("more messages are sent than received, or fewer"));
    for (std::size_t i = 0; i < halves[0].size(); ++i) {
      const half &s = halves[0][i], &r = halves[1][i];
      if (s.from != r.from || s.to != r.to || s.bytes != r.bytes || static_cast<std::size_t>(s.to) >= ranks_.size())
        raise(mismatch("rank " + std::to_string(s.from) + " sends what rank " + std::to_string(s.to) +
                       " does not receive"));
      const int id = static_cast<int>(transfers_.size());
      transfers_.push_back({s.from, s.to, s.bytes, s.label, {s.launch, r.launch}});
      for (int way = 0; way < 2; ++way) {
        rank_state& rank = of(way == 0 ? s.from : s.to);
        const auto launch = static_cast<std::size_t>(transfers_.back().launches[way]);
        rank.transfers[launch].push_back(id);
        ++rank.open[launch];
      }
    }
  }

  void add_span(timeline_span::kind what, int rank, double start, double end, int before) {
    rank_state& r = of(rank);
    r.time = end;
    if (end <= start) return;
    spans_.push_back({.what = what, .rank = rank, .to = rank, .start = start, .end = end, .before = before});
    r.last = static_cast<int>(spans_.size()) - 1;
  }
  /// Goes on from `time`, until something is waited for that is not there; `cause` ended the wait.
  void advance(int rank, double time, int cause) {
    using kind = paper_operation::kind;
    rank_state& r = of(rank);
    const std::vector<paper_operation>& operations = (*pages_)[static_cast<std::size_t>(rank)].operations;
    if (r.waits_for >= 0) {
      add_span(timeline_span::kind::wait, rank, r.time, std::max(r.time, time), time > r.time ? cause : r.last);
      r.waits_for = -1;
    }
    for (; r.next < operations.size(); ++r.next) {
      const paper_operation& o = operations[r.next];
      if (o.what == kind::compute)
        add_span(timeline_span::kind::compute, rank, r.time, r.time + o.flops / machine_.flops, r.last);
      if (o.what == kind::memory)
        add_span(timeline_span::kind::memory, rank, r.time,
                 r.time + static_cast<double>(o.bytes) / machine_.memory_bandwidth, r.last);
      if (o.what == kind::launch)
        for (int t : r.transfers[static_cast<std::size_t>(o.launched)]) post(t, r);
      if (o.what == kind::wait && r.open[static_cast<std::size_t>(o.launched)] > 0) {
        r.waits_for = o.launched;
        ++r.next;
        return;
      }
    }
  }
  void post(int id, const rank_state& by) {
    transfer& t = at(id);
    if (t.posted == 0 || by.time >= t.ready) t.cause = by.last;
    t.ready = std::max(t.ready, by.time);
    if (++t.posted == 2) events_.push({t.ready, event::kind::ready, id});
  }

  void happen(const event& e) {
    transfer& t = at(e.transfer);
    if (e.what == event::kind::ready) {
      for (int way = 0; way < 2; ++way) port_of(t, way).queue.push_back(e.transfer);
      try_start(e.transfer, e.time, t.cause);
    } else if (e.what == event::kind::sent) {
      for (int way = 0; way < 2; ++way) port_of(t, way).busy = false;
      for (int way = 0; way < 2; ++way)
        for (std::size_t i = 0; i < port_of(t, way).queue.size() && !port_of(t, way).busy; ++i)
          try_start(port_of(t, way).queue[i], e.time, t.span);
    } else {
      for (int way = 0; way < 2; ++way) {
        const int rank = way == 0 ? t.from : t.to;
        rank_state& r = of(rank);
        if (--r.open[static_cast<std::size_t>(t.launches[way])] == 0 && r.waits_for == t.launches[way])
          advance(rank, e.time, t.span);
      }
    }
  }
  void try_start(int id, double now, int cause) {
    transfer& t = at(id);
    if (port_of(t, 0).busy || port_of(t, 1).busy) return;
    for (int way = 0; way < 2; ++way) {
      port& p = port_of(t, way);
      p.busy = true;
      p.queue.erase(std::find(p.queue.begin(), p.queue.end(), id));
    }
    const link_speed& l = machine_.between(t.from, t.to);
    const double sent = now + static_cast<double>(t.bytes) / l.bandwidth;
    t.span = static_cast<int>(spans_.size());
    spans_.push_back({timeline_span::kind::transfer, t.from, t.to, now, sent + l.latency, t.label, t.bytes, cause});
    events_.push({sent, event::kind::sent, id});
    events_.push({sent + l.latency, event::kind::there, id});
  }

  const std::vector<paper_page>* pages_;
  machine machine_;
  std::vector<rank_state> ranks_;
  std::vector<transfer> transfers_;
  std::vector<port> ports_[2];
  std::priority_queue<event, std::vector<event>, later> events_;
  std::vector<timeline_span> spans_;
  double total_ = 0, ideal_ = 0;
};

/// Bytes by kind over all ranks: the fullest of each.
inline memory_sizes memory_of(const std::vector<paper_page>& pages) {
  memory_sizes most;
  for (const paper_page& p : pages)
    most = {std::max(most.tables, p.memory.tables), std::max(most.scratch, p.memory.scratch),
            std::max(most.exchange, p.memory.exchange), std::max(most.saved, p.memory.saved)};
  return most;
}

}  // namespace v0_1
}  // namespace seqpar
