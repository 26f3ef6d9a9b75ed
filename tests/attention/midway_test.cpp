// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What fails in the middle of a run: an engine that does not launch, a mask or a kernel of the caller's that throws.
#include <array>
#include <barrier>

#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

/// What one rank is to do wrong. 0: nothing; n: at the n-th time from now.
struct planted {
  int launch = 0, kernel = 0, mask = 0;
  bool standard = true;  ///< throw a std::exception, else a number
  static bool now(int& countdown) { return countdown > 0 && --countdown == 0; }
  void blow() const {
    if (standard) throw std::runtime_error("planted");
    throw 5;
  }
};

/// Forwards to thread ranks; the planned launch fails before anything is posted.
struct faulty_transport {
  using group_type = threads::group;
  static constexpr transport_access access = threads::transport::access;
  threads::transport inner;
  planted* fault;
  int rank() const noexcept { return inner.rank(); }
  int size() const noexcept { return inner.size(); }
  group_type group() const { return inner.group(); }
  status launch(group_type& g, on_host e) const noexcept {
    if (planted::now(fault->launch)) return {errc::transport_failed, "planted: this launch fails"};
    return inner.launch(g, e);
  }
  status wait(group_type& g, on_host e) const noexcept { return inner.wait(g, e); }
  status wait(group_type& g, on_host e, std::chrono::nanoseconds d) const noexcept { return inner.wait(g, e, d); }
  status check() const noexcept { return inner.check(); }
  void abort(const status& s, std::string_view why = {}) const noexcept { inner.abort(s, why); }
};
struct faulty_kernel {
  using good = host_reference<float>;
  static constexpr auto query_tile_rows = good::query_tile_rows;
  static constexpr auto key_tile_rows = good::key_tile_rows;
  static index_t workspace_bytes(index_t qk_dim, index_t v_dim) { return good::workspace_bytes(qk_dim, v_dim); }
  planted* fault = nullptr;
  template <class Call, class Mask>
  void forward(const Call& call, const Mask& mask) const {
    if (planted::now(fault->kernel)) fault->blow();
    good{}.forward(call, mask);
  }
  template <class Call, class Mask>
  void backward(const Call& call, const Mask& mask) const {
    if (planted::now(fault->kernel)) fault->blow();
    good{}.backward(call, mask);
  }
};
struct faulty_mask {
  planted* fault;
  bool allows(index_t, index_t) const {
    if (planted::now(fault->mask)) fault->blow();
    return true;
  }
};

enum class pass { forward, backward };
struct told {
  status at_once, later, recovered;
  bool same_bits_again = false;
  std::string report{};
};

/// Runs both passes, plants `fault` on a rank and runs the pass again; then recovers and compares the results' bits.
/// Nobody leaves or recovers before all have been told.
std::vector<told> run_with(planted fault, int at_fault, mesh_shape team_shape, schedule how, pass where) {
  const int ranks = static_cast<int>(team_shape.ring * team_shape.all_to_all);
  std::vector<told> all(static_cast<std::size_t>(ranks));
  std::barrier here(ranks);
  threads::options world{.ranks = ranks};
  world.deadline = std::chrono::seconds(15);
  run_ranks(world, [&](threads::transport t) {
    told& said = all[static_cast<std::size_t>(t.rank())];
    planted mine;
    const contiguous layout{.tokens = 12, .ranks = ranks};
    const mesh team(faulty_transport{t, &mine}, team_shape);
    const attention_shape shape{.heads = 4, .kv_heads = 4, .head_dim = 4};
    auto plan = plan_attention<float>(
        team, layout, any_mask(faulty_mask{&mine}), shape,
        {.passes = forward_backward, .schedule = how, .window = window_of(team_shape.ring)}, faulty_kernel{&mine});
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const index_t rows = plan.q_rows();
    const auto size = static_cast<std::size_t>(rows * 16);
    const std::vector<float> x = filled<float>(tag::q, rows * 16);
    std::vector<float> out(size), lse(size / 4), dq(size), dk(size), dv(size);
    const auto view = [&](auto& data) { return dense_view(data.data(), {1, rows, 4, 4}); };
    const auto run = [&](pass p) {
      const heads_view<float> l = dense_heads(lse.data(), {1, 4, rows});
      if (p == pass::forward)
        return plan.forward({.q = view(x), .k = view(x), .v = view(x), .out = view(out), .lse = l}, memory, on_host{});
      return plan.backward({.q = view(x),
                            .k = view(x),
                            .v = view(x),
                            .out = view(out),
                            .lse = l,
                            .dout = view(x),
                            .dq = view(dq),
                            .dk = view(dk),
                            .dv = view(dv)},
                           memory, on_host{});
    };
    check(run(pass::forward));
    check(run(pass::backward));
    const std::vector<float> out_before = out, dk_before = dk;
    here.arrive_and_wait();
    if (t.rank() == at_fault) mine = fault;
    said.at_once = run(where);
    mine = {};
    here.arrive_and_wait();
    said.later = run(pass::forward);
    said.report = t.report();
    here.arrive_and_wait();
    said.recovered = t.recover();
    check(run(pass::forward));
    check(run(pass::backward));
    said.same_bits_again = same_bits(out, out_before) && same_bits(dk, dk_before);
  });
  return all;
}

/// "" if the rank at fault was told `code`, its peers peer_failed, and all came back; "no fault" if nothing happened.
/// A peer that needs nothing more of that rank may have finished; then it learns of the failure in its next run. Before
/// the first round of a ring of four nobody can have: `all_wait`. `why` is what all can read of the cause.
std::string fault_in(const std::vector<told>& all, int at_fault, errc code, const char* why, bool all_wait) {
  int failed = 0;
  for (int r = 0; r < static_cast<int>(all.size()); ++r) {
    const told& t = all[static_cast<std::size_t>(r)];
    const std::string rank = "rank " + std::to_string(r) + ": ";
    failed += t.at_once.ok() ? 0 : 1;
    if (r == at_fault && t.at_once.code() != code) return rank + t.at_once.message();
    if (r != at_fault && (all_wait || !t.at_once.ok())) {
      if (t.at_once.code() != errc::peer_failed) return rank + t.at_once.message();
      if (t.at_once.rank() != at_fault) return rank + "the wrong rank is blamed: " + t.at_once.message();
    }
    if (t.later.ok()) return rank + "a later run does not know of the failure";
    if (t.report != "rank " + std::to_string(at_fault) + " gave up: " + why) return rank + "reports " + t.report;
    if (!t.recovered.ok() || !t.same_bits_again) return rank + "did not recover";
  }
  return failed > 1 ? "" : "no peer was told";
}

const mesh_shape meshes[] = {{.ring = 4, .all_to_all = 1}, {.ring = 2, .all_to_all = 2}};

}  // namespace

TEST_CASE("a launch that fails in the middle of a run is told to the peers at once, whichever launch it is") {
  for (const mesh_shape& team : {meshes[0], meshes[1], mesh_shape{.ring = 1, .all_to_all = 4}})
    for (const schedule s : every_schedule)
      for (const pass where : {pass::forward, pass::backward}) {
        int launches = 0;
        for (;; ++launches) {
          const auto start = std::chrono::steady_clock::now();
          const auto all = run_with({.launch = launches + 1}, 2, team, s, where);
          if (all[2].at_once.ok() || launches == 20) break;
          CAPTURE(launches);
          CHECK(fault_in(all, 2, errc::transport_failed, "planted: this launch fails", launches == 0) == "");
          REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));  // without a deadline
        }
        CHECK(launches >= 1);
        CHECK(launches < 20);
      }
}

TEST_CASE("a mask that throws in a run is that rank's error, peer_failed for the others, and ends nobody [J5]") {
  for (const mesh_shape& team : meshes)
    for (const pass where : {pass::forward, pass::backward})
      for (const bool standard : {true, false})
        CHECK(fault_in(run_with({.mask = 1, .standard = standard}, 1, team, schedule::direct, where), 1,
                       errc::invalid_argument,
                       standard ? "attention: the kernel or the mask threw: planted"
                                : "attention: the kernel or the mask threw: threw something that is no std::exception",
                       team.ring == 4) == "");
}

TEST_CASE("a kernel that throws in a run is that rank's error, peer_failed for the others, and ends nobody [J5]") {
  for (const mesh_shape& team : meshes)
    for (const schedule s : every_schedule)
      for (const pass where : {pass::forward, pass::backward})
        CHECK(fault_in(run_with({.kernel = 1}, 0, team, s, where), 0, errc::invalid_argument,
                       "attention: the kernel or the mask threw: planted", team.ring == 4) == "");
}

TEST_CASE("a kernel that asks no mask is blamed alone, in its own words, which run_ranks throws") {
  std::string thrown;
  try {
    run_ranks(2, [](threads::transport t) {
      planted mine{.kernel = t.rank()};
      auto plan = plan_attention<float>(ring(t), contiguous{.tokens = 2, .ranks = 2}, full{},
                                        {.heads = 1, .kv_heads = 1, .head_dim = 1}, {}, faulty_kernel{&mine});
      const host_memory memory(plan.memory());
      plan.prepare(memory, on_host{});
      float x = 1, out = 0, lse = 0;
      const auto in = dense_view<const float>(&x, {1, 1, 1, 1});
      check(plan.forward(
          {.q = in, .k = in, .v = in, .out = dense_view(&out, {1, 1, 1, 1}), .lse = dense_heads(&lse, {1, 1, 1})},
          memory, on_host{}));
    });
  } catch (const error& e) {
    thrown = e.what();
  }
  CHECK(thrown == "[seqpar] rank 1: attention: the kernel threw: planted");
}

}  // namespace seqpar::test
