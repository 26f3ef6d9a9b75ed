// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin_block.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "tests/cuda_on_cpu/twin_hardware.hpp"

namespace seqpar::twin {

report& report::operator+=(const report& r) {
  matrix_products += r.matrix_products;
  copied_bytes += r.copied_bytes;
  bank_conflicts += r.bank_conflicts;
  access_conflicts += r.access_conflicts;
  barriers += r.barriers;
  return *this;
}

std::string text_of(place p) {
  return p.line == 0 ? p.file : std::string(p.file) + ':' + std::to_string(p.line);
}

block::block(int threads, int shared_bytes, const options& o, body b, const void* params)
    : shared(shared_bytes, threads),
      how(o),
      body_(b),
      params_(params),
      threads_(static_cast<std::size_t>(threads)),
      warps_(static_cast<std::size_t>(threads / 32)),
      dice_(o.seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {
  auto& fibers = resting_fibers(threads_.size(), &block::thread_main);
  for (int i = 0; i < threads; ++i) {
    strand& t = threads_[static_cast<std::size_t>(i)];
    t.in = this;
    t.number = i;
    t.line = fibers[static_cast<std::size_t>(i)].get();
  }
}

std::uint64_t block::random() {
  dice_ ^= dice_ << 13;
  dice_ ^= dice_ >> 7;
  dice_ ^= dice_ << 17;
  return dice_ * 0x2545f4914f6cdd1du >> 16;
}

void block::run(index_t number_, index_t of_) {
  number = number_;
  of = of_;
  shared.clear();
  for (warp& w : warps_) w = {};
  for (meeting& m : meetings_) m = {};
  ended_ = 0;
  ready_.clear();
  for (strand& t : threads_) {
    t.line->argument = &t;
    t.doing = "start";
    t.at = {"the body", 0};
    t.copies.clear();
    t.accesses = {};
    t.groups = 0;
    wake(t.number);
  }
  fiber::switch_to(main_, next());
  for (const strand& t : threads_)
    if (!t.line->whole()) {  // what it ran over is anybody's
      std::fputs("[twin] a thread of a block ran over its stack\n", stderr);
      std::abort();
    }
  if (!mistake_.empty()) throw mistake(std::exchange(mistake_, {}) + " [seed " + std::to_string(how.seed) + "]");
}

void block::thread_main(void* argument) {
  strand& t = *static_cast<strand*>(argument);
  block& b = *t.in;
  try {
    if (b.mistake_.empty()) {
      hardware hw(t);
      b.body_(hw, b.params_);
    }
  } catch (const abandoned&) {
  } catch (const std::exception& e) {
    b.give_up(text_of(t) + ": throws " + e.what());
  }
  t.now = strand::state::ended;
  ++b.ended_;
  fiber::switch_to(*t.line, b.next());
}

void block::wake(int t) {
  threads_[static_cast<std::size_t>(t)].now = strand::state::ready;
  ready_.push_back(t);
}

fiber& block::next() {
  if (ready_.empty() && ended_ < threads()) give_up(standstill());
  if (ready_.empty()) return main_;
  auto& chosen = ready_[static_cast<std::size_t>(random() % ready_.size())];
  const auto t = static_cast<std::size_t>(std::exchange(chosen, ready_.back()));
  ready_.pop_back();
  return *threads_[t].line;
}

void block::wait(strand& t) {
  t.now = strand::state::waits;
  go_on(t);
}

void block::go_on(const strand& t) {
  fiber::switch_to(*t.line, next());
  if (!mistake_.empty()) throw abandoned{};
}

void block::give_up(const std::string& what) {
  if (mistake_.empty()) mistake_ = what;
  for (const strand& t : threads_)
    if (t.now == strand::state::waits) wake(t.number);
}

void block::fail(const std::string& what) {
  give_up(what);
  throw abandoned{};
}

void block::gather(strand& t, action what, void* argument, const char* name, place at) {
  t.doing = name;
  t.at = at;
  const int warp_number = t.number / 32;
  warp& w = warps_[static_cast<std::size_t>(warp_number)];
  if (w.arrived == 0) {
    w.what = what;
    w.name = name;
    w.at = at;
  } else if (w.what != what || w.at != at) {
    t.fail(std::string("the warp diverges: other lanes are in ") + w.name + " of " + text_of(w.at));
  }
  w.arguments[static_cast<std::size_t>(t.lane())] = argument;
  if (++w.arrived < 32) return wait(t);
  w.arrived = 0;
  acting_ = warp_number;
  settle_accesses(warp_number);
  what(*this, w.arguments);
  for (int i = 0; i < 32; ++i) wake(warp_number * 32 + i);
  go_on(t);
}

void block::barrier(strand& t, int id, int expected, const char* name, place at) {
  t.doing = name;
  t.at = at;
  if (id < 0 || id > 15 || expected <= 0 || expected % 32 != 0 || expected > threads())
    t.fail("no such barrier: id " + std::to_string(id) + " of " + std::to_string(expected) + " threads");
  meeting& m = meetings_[static_cast<std::size_t>(id)];
  if (m.arrived.empty()) m.expected = expected;
  if (m.expected != expected)
    t.fail("barrier " + std::to_string(id) + " of " + std::to_string(expected) + " threads; thread " +
           std::to_string(m.arrived.front()) + " waits there for " + std::to_string(m.expected));
  m.arrived.push_back(t.number);
  if (static_cast<int>(m.arrived.size()) < expected) return wait(t);
  check_warps(m.arrived);
  meet(shared.clocks, m.arrived);
  ++did.barriers;
  for (const int i : m.arrived) wake(i);
  m.arrived.clear();
  go_on(t);
}

void block::settle_accesses(int of_warp) {
  std::array<access_log*, 32> logs;
  for (std::size_t i = 0; i < 32; ++i) logs[i] = &threads_[static_cast<std::size_t>(of_warp) * 32 + i].accesses;
  did.access_conflicts += access_log::settle(logs);
}

// Whole warps meet, each at one place.
void block::check_warps(const std::vector<int>& arrived) {
  std::vector<int> there(warps_.size());
  for (const int i : arrived) {
    const strand &t = threads_[static_cast<std::size_t>(i)], &first = threads_[static_cast<std::size_t>(i / 32 * 32)];
    ++there[static_cast<std::size_t>(i / 32)];
    if (t.at != first.at) fail(text_of(t) + ": the warp diverges: " + text_of(first));
  }
  for (std::size_t w = 0; w < there.size(); ++w) {
    if (there[w] % 32 != 0) fail("warp " + std::to_string(w) + " diverges at a barrier: " + standstill());
    if (there[w] == 32) settle_accesses(static_cast<int>(w));
  }
}

std::string block::standstill() const {
  std::map<std::string, std::vector<int>> by;
  for (const strand& t : threads_)
    by[t.now == strand::state::ended   ? "ended"
       : t.now == strand::state::waits ? std::string("in ") + t.doing + " of " + text_of(t.at)
                                       : "at work"]
        .push_back(t.number);
  std::string all;
  for (const auto& [what, who] : by) {
    all += all.empty() ? "threads " : "; threads ";
    for (std::size_t i = 0, j = 0; i < who.size(); i = j) {
      for (j = i + 1; j < who.size() && who[j] == who[j - 1] + 1;) ++j;
      if (i > 0) all += ", ";
      all += std::to_string(who[i]);
      if (j > i + 1) all += "-" + std::to_string(who[j - 1]);
    }
    all += " are " + what;
  }
  return "block " + std::to_string(number) + " stands still: " + all;
}

}  // namespace seqpar::twin
