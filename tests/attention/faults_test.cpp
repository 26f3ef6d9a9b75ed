// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Wrong use at run time and ranks that fail: a local status before anything is posted, peers told, no hang, and after
// recover() everything works again.
#include <chrono>
#include <mutex>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

problem plain(mesh_shape team, schedule s = schedule::direct, passes which = forward_backward) {
  const int ranks = static_cast<int>(team.ring * team.all_to_all);
  attention_case c{.tokens = 12, .shape = {.heads = 4, .kv_heads = 4, .head_dim = 4}, .mask = see_all};
  c.options.passes = which;
  c.options.reuse = reuse::saved;
  return c.at(contiguously, ranks, team, s);
}

/// What went wrong in any rank's thread; doctest's macros are for the main one.
class complaints {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    list_.push_back(text);
  }
  void report() const {
    CHECK(list_.size() == 0);
    for (const std::string& text : list_) FAIL_CHECK(text);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> list_;
};

enum class pass { forward, backward };
struct misuse {
  const char* name;
  pass where;
  errc code;
  void (*spoil)(rank_run&);
};
void shift(region& r) {
  r.pointer = static_cast<std::byte*>(r.pointer) + 4;
}

const std::vector<misuse> misuses{
    {"q is null", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.q.pointer = nullptr; }},
    {"k is null", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.k.pointer = nullptr; }},
    {"v is null", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.v.pointer = nullptr; }},
    {"out is null", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.out.pointer = nullptr; }},
    {"lse is null", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.lse.pointer = nullptr; }},
    {"k is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.k.pointer = nullptr; }},
    {"out is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.out.pointer = nullptr; }},
    {"lse is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.lse.pointer = nullptr; }},
    {"dout is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.dout.pointer = nullptr; }},
    {"dq is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.dq.pointer = nullptr; }},
    {"dk is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.dk.pointer = nullptr; }},
    {"dv is null", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.dv.pointer = nullptr; }},
    {"q has a token less", pass::forward, errc::invalid_argument, [](rank_run& r) { --r.f.q.shape[1]; }},
    {"k has a head more", pass::forward, errc::invalid_argument, [](rank_run& r) { ++r.f.k.shape[2]; }},
    {"lse has another order", pass::forward, errc::invalid_argument,
     [](rank_run& r) { std::swap(r.f.lse.shape[1], r.f.lse.shape[2]); }},
    {"dq is not given", pass::backward, errc::invalid_argument, [](rank_run& r) { r.b.dq = {}; }},
    {"dlse has another shape", pass::backward, errc::invalid_argument,
     [](rank_run& r) {
       r.b.dlse = dense_heads<const float>(r.dlse.data(), {1, 4, 1}), r.b.dlse.pointer = r.q.data();
     }},
    {"every second element", pass::forward, errc::invalid_argument, [](rank_run& r) { r.f.v.stride[3] = 2; }},
    {"out on v", pass::forward, errc::overlapping_buffers, [](rank_run& r) { r.f.out.pointer = r.v.data(); }},
    {"dv on dk", pass::backward, errc::overlapping_buffers, [](rank_run& r) { r.b.dv.pointer = r.dk.data(); }},
    {"scratch on exchange", pass::forward, errc::overlapping_buffers,
     [](rank_run& r) {
       region& smaller = r.given.scratch.bytes < r.given.exchange.bytes ? r.given.scratch : r.given.exchange;
       smaller.pointer =
           r.given.scratch.bytes < r.given.exchange.bytes ? r.given.exchange.pointer : r.given.scratch.pointer;
     }},
    {"tables too small", pass::forward, errc::memory_too_small, [](rank_run& r) { r.given.tables.bytes -= 1; }},
    {"scratch too small", pass::forward, errc::memory_too_small, [](rank_run& r) { r.given.scratch.bytes -= 64; }},
    {"exchange too small", pass::backward, errc::memory_too_small, [](rank_run& r) { r.given.exchange.bytes -= 1; }},
    {"saved too small", pass::forward, errc::memory_too_small, [](rank_run& r) { r.given.saved.bytes -= 1; }},
    {"exchange null", pass::forward, errc::memory_too_small, [](rank_run& r) { r.given.exchange.pointer = nullptr; }},
    {"tables misaligned", pass::forward, errc::memory_misaligned, [](rank_run& r) { shift(r.given.tables); }},
    {"scratch misaligned", pass::backward, errc::memory_misaligned, [](rank_run& r) { shift(r.given.scratch); }},
    {"exchange misaligned", pass::forward, errc::memory_misaligned, [](rank_run& r) { shift(r.given.exchange); }},
    {"saved misaligned", pass::forward, errc::memory_misaligned, [](rank_run& r) { shift(r.given.saved); }},
};

}  // namespace

TEST_CASE("wrong use at run time is that rank's own status, peer_failed for the others, and forgotten by recover()") {
  for (const mesh_shape& team : every_mesh(4))
    for (const schedule s : every_schedule) {
      const problem p = plain(team, s);
      complaints wrong;
      run_ranks(4, [&](threads::transport world) {
        rank_run rank(world, p);
        rank.prepare();
        check(rank.forward());
        check(rank.backward());
        const std::vector<float> out = rank.out, dk = rank.dk;
        const auto f = rank.f;
        const auto b = rank.b;
        const seqpar::memory given = rank.given;
        int turn = 0;
        for (const misuse& m : misuses) {
          const int at_fault = ++turn % 4;
          const std::string where = std::string(m.name) + " on rank " + std::to_string(at_fault);
          if (m.where == pass::backward) check(rank.forward());
          check(world.recover());  // everybody is here: nobody still waits in a good run
          const index_t sent = rank.record.messages(direction::send);
          if (world.rank() == at_fault) m.spoil(rank);
          const status st = m.where == pass::forward ? rank.forward() : rank.backward();
          if (world.rank() == at_fault) {
            if (st.code() != m.code) wrong.add(where + ": " + st.message());
            if (rank.record.messages(direction::send) != sent) wrong.add(where + ": something was posted");
          } else if (st.code() != errc::peer_failed || st.rank() != at_fault) {
            wrong.add(where + ", rank " + std::to_string(world.rank()) + ": " + st.message());
          }
          if (rank.forward().ok()) wrong.add(where + ": a later call does not know of the failure");
          rank.f = f;
          rank.b = b;
          rank.given = given;
          check(world.recover());
        }
        check(rank.forward());
        check(rank.backward());
        if (!same_bits(rank.out, out) || !same_bits(rank.dk, dk)) wrong.add("results changed after recover()");
      });
      wrong.report();
    }
}

TEST_CASE("a tensor of another shape is told with the axis, what is wanted there and what was given") {
  run_ranks(1, [&](threads::transport world) {
    problem p = plain({.ring = 1, .all_to_all = 1});
    p.shape.kv_heads = 2;
    p.shape.batch = 2;
    rank_run rank(world, p);
    rank.prepare();
    const auto f = rank.f;
    const auto said = [&](auto&& spoil) {
      rank.f = f;
      spoil(rank.f);
      const std::string words = rank.forward().words();
      return words.substr(words.rfind(": ") + 2);
    };
    CHECK(said([](auto& x) { --x.q.shape[1]; }) == "q (12 rows wanted, 11 given)");
    CHECK(said([](auto& x) { ++x.k.shape[2]; }) == "k (2 heads wanted, 3 given)");
    CHECK(said([](auto& x) { x.v.shape[3] = 8; }) == "v (4 numbers a head wanted, 8 given)");
    CHECK(said([](auto& x) { x.out.shape = {0, 5, 5, 5}; }) == "out (2 items wanted, 0 given)");
    CHECK(said([](auto& x) { std::swap(x.lse.shape[1], x.lse.shape[2]); }) == "lse (4 heads wanted, 12 given)");
    CHECK(said([](auto& x) { ++x.lse.shape[2]; }) == "lse (12 rows wanted, 13 given)");
    CHECK(said([](auto& x) { x.k = {}; }) == "k");
    rank.f = f;
    ++rank.f.q.shape[1];
    CHECK(rank.forward().words().find("the plan's q_rows() and kv_rows() the rows: q") != std::string::npos);
  });
}

TEST_CASE("a run before prepare, with other tables than prepare wrote, or of a pass not planned, is told so") {
  complaints wrong;
  run_ranks(4, [&](threads::transport world) {
    const bool here = world.rank() == 1;
    const auto expect = [&](const char* what, const status& st, const char* text) {
      const bool told = here ? st.code() == errc::not_prepared && std::string(st.text()).find(text) != std::string::npos
                             : st.code() == errc::peer_failed && st.rank() == 1;
      if (!told) wrong.add(std::string(what) + ", rank " + std::to_string(world.rank()) + ": " + st.message());
      check(world.recover());
    };
    const auto all_here = [&] { check(world.recover()); };
    const problem p = plain({.ring = 4, .all_to_all = 1});
    rank_run ready(world, p), late(world, p);
    ready.prepare();
    all_here();
    expect("not prepared", (here ? late : ready).forward(), "call prepare first");
    expect("not prepared", (here ? late : ready).backward(), "call prepare first");
    late.prepare();
    const seqpar::memory given = ready.given;
    all_here();
    if (here) ready.given.tables = late.given.tables;
    expect("other tables", ready.forward(), "memory.tables is not the one that prepare wrote");
    ready.given = given;
    rank_run forward(world, plain({.ring = 4, .all_to_all = 1}, schedule::direct, forward_only));
    forward.prepare();
    check(forward.forward());
    check(ready.forward());
    all_here();
    expect("forward only", (here ? forward : ready).backward(), "plan with forward_backward");
    check(ready.forward());
    check(ready.backward());
  });
  wrong.report();
}

TEST_CASE("a rank that throws before, within or after forward is named by all others in time [J5]") {
  enum class when { before_forward, before_backward };
  for (const int thrower : {2, 0, 3})
    for (const when at : {when::before_forward, when::before_backward})
      for (const mesh_shape& team : every_mesh(4))
        for (const schedule s : every_schedule) {
          const problem p = plain(team, s);
          complaints wrong;
          const auto start = std::chrono::steady_clock::now();
          const auto run = [&] {
            run_ranks(4, [&](threads::transport world) {
              rank_run rank(world, p);
              rank.prepare();
              const bool here = world.rank() == thrower;
              if (here && at == when::before_forward) throw std::runtime_error("planted");
              status st = rank.forward();
              if (here) throw std::runtime_error("planted");
              if (at == when::before_backward) {
                check(st);
                st = rank.backward();
              }
              if (st.code() != errc::peer_failed || st.rank() != thrower) wrong.add(name_of(p) + ": " + st.message());
              check(st);
            });
          };
          const std::string name = "[seqpar] rank " + std::to_string(thrower) + ": planted";
          CHECK_THROWS_WITH_AS(run(), doctest::Contains(name.c_str()), error);
          CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
          wrong.report();
        }
  const problem p = plain({.ring = 4, .all_to_all = 1});
  const tensors in = recipe_tensors(p);
  CHECK(fault_of(p, run_problem<float>(p, in), definition<float>(p, in)) == "");  // a new world works
}

TEST_CASE("a rank that gives up inside a round fails the run of every rank, and recover() brings them back [J5]") {
  struct hook {
    const threads::transport* world = nullptr;
    int calls_left = -1;
  };
  struct hooked {
    hook* at;
    bool allows(index_t, index_t) const {
      if (at->calls_left > 0 && --at->calls_left == 0) at->world->abort({errc::invalid_argument, "planted in a round"});
      return true;
    }
  };
  for (const int at_fault : {2, 0, 3})
    for (const mesh_shape& team : every_mesh(4))
      for (const schedule s : every_schedule)
        for (const pass where : {pass::forward, pass::backward}) {
          if (team.ring == 1) continue;
          complaints wrong;
          run_ranks(4, [&](threads::transport world) {
            hook h{&world};
            problem p = plain(team, s);
            p.mask = any_mask(hooked{&h}, "hooked");
            rank_run rank(world, p);
            rank.prepare();
            check(rank.forward());
            check(rank.backward());
            const std::vector<float> out = rank.out;
            check(world.recover());  // everybody is here
            if (world.rank() == at_fault) h.calls_left = 1;
            const status st = where == pass::forward ? rank.forward() : rank.backward();
            const bool told =
                world.rank() == at_fault ? !st.ok() : st.code() == errc::peer_failed && st.rank() == at_fault;
            if (!told) wrong.add(name_of(p) + ", rank " + std::to_string(world.rank()) + ": " + st.message());
            check(world.recover());
            check(rank.forward());
            if (!same_bits(rank.out, out)) wrong.add("results changed after recover()");
          });
          wrong.report();
        }
}

}  // namespace seqpar::test
