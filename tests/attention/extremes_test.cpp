// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers that no plan can use, results that lie on themselves, prepare without exceptions.
#include <array>
#include <limits>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

problem plain(int ranks) {
  attention_case c{.tokens = 16, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_past};
  return c.at(contiguously, ranks, {.ring = ranks, .all_to_all = 1}, schedule::direct);
}
/// What planning says on each of four ranks, which must be the same.
template <class Spoil>
std::string refused(Spoil&& spoil) {
  std::array<std::string, 4> said;
  problem p = plain(4);
  spoil(p);
  run_ranks(4, [&](threads::transport world) {
    std::string& text = said[static_cast<std::size_t>(world.rank())];
    text = "planned";
    try {
      const rank_run rank(world, p);
    } catch (const error& e) {
      text = e.code() == errc::invalid_argument ? e.what() : std::string("another code: ") + e.what();
    } catch (const std::exception& e) {
      text = std::string("no seqpar::error: ") + e.what();
    }
  });
  for (const std::string& text : said)
    if (text != said[0]) return "other words on another rank: " + text;
  return said[0];
}
template <class Spoil>
void check_refused(const std::string& by_name, Spoil&& spoil) {
  const std::string said = refused(spoil);
  CHECK_MESSAGE(said.starts_with("[seqpar] plan_attention: "), by_name << ": " << said);
  CHECK_MESSAGE(said.find(by_name) != std::string::npos, by_name << ": " << said);
}

}  // namespace

TEST_CASE("sizes and numbers beyond all use are refused while planning, the same on every rank") {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  CHECK(refused([](problem&) {}) == "planned");
  check_refused("joint", [](problem& p) { p.shape.joint_q = most; });
  check_refused("joint", [](problem& p) { p.shape.joint_kv = most; });
  check_refused("joint", [](problem& p) { p.shape.joint_q = p.shape.joint_kv = most / 2; });
  check_refused("", [](problem& p) { p.shape.batch = index_t{1} << 61; });
  check_refused("", [](problem& p) { p.shape.batch = most; });
  check_refused("", [](problem& p) { p.shape.heads = p.shape.kv_heads = index_t{1} << 62; });
  check_refused("", [](problem& p) { p.shape.heads = most; });
  check_refused("", [](problem& p) { p.shape.batch = p.shape.heads = p.shape.kv_heads = index_t{1} << 30; });
  check_refused("capacity", [](problem& p) { p.options.capacity.tokens_per_rank = most; });
  check_refused("capacity", [](problem& p) { p.options.capacity = {16, most}; });
  for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()})
    check_refused("scale", [scale](problem& p) { p.options.scale = scale; });
  check_refused("tokens", [](problem& p) { p.q_layout = p.kv_layout = contiguously(index_t{1} << 62, 4); });
}

TEST_CASE("a result whose elements share a place is refused by the name of the overlap, an input may be so [E4]") {
  std::vector<std::string> faults;
  run_ranks(1, [&](threads::transport world) {
    problem p = plain(1);
    p.shape.batch = 2;
    rank_run rank(world, p);
    rank.prepare();
    const auto forward = rank.f;
    const auto backward = rank.b;
    const auto refused_as = [&](const char* what, const status& s, errc code = errc::overlapping_buffers) {
      if (s.code() != code) faults.push_back(std::string(what) + ": " + s.message());
      rank.f = forward;
      rank.b = backward;
      check(world.recover());
    };
    rank.f.out.stride[1] = 0;
    refused_as("all tokens of out at one place", rank.forward());
    rank.f.out.stride[2] = 0;
    refused_as("all heads of out at one place", rank.forward());
    rank.f.out.stride[0] = 0;
    refused_as("both items of out at one place", rank.forward());
    rank.f.out.stride[2] = 2;
    refused_as("heads of out at half of dim", rank.forward());
    rank.f.out.stride[1] = -4;
    refused_as("tokens of out on the next one's heads", rank.forward());
    rank.f.lse.stride[2] = 0;
    refused_as("all tokens of lse at one place", rank.forward());
    rank.b.dq.stride[1] = 0;
    refused_as("all tokens of dq at one place", rank.backward());
    rank.b.dk.stride[2] = 3;
    refused_as("heads of dk at less than dim", rank.backward());
    rank.b.dv.stride[0] = 8;
    refused_as("the second item of dv on the first", rank.backward());
    rank.f.q.stride[1] = 0;
    rank.f.k.stride[2] = 0;
    refused_as("one query and one key head for all", rank.forward(), errc::ok);
    std::swap(rank.f.out.stride[1], rank.f.out.stride[2]);  // heads outermost: 16 tokens at 4, heads at 8
    refused_as("strides that are too small when swapped", rank.forward());
    rank.f.out.stride[1] = -8;
    rank.f.out.pointer += 15 * 8;
    refused_as("tokens backwards", rank.forward(), errc::ok);
    check(rank.forward());
    check(rank.backward());
  });
  for (const std::string& fault : faults) FAIL_CHECK(fault);
}

TEST_CASE("try_prepare returns what prepare throws, the same on every rank, and nothing when all agree [J6]") {
  const problem good = plain(4);
  problem bad = good;
  bad.shape.joint_q = 3;
  std::array<std::string, 4> said;
  std::array<bool, 4> fine{};
  run_ranks(4, [&](threads::transport world) {
    const auto me = static_cast<std::size_t>(world.rank());
    rank_run odd(world, me == 3 ? bad : good);
    const failure f = odd.plan.try_prepare(odd.given, on_host{});
    said[me] = f ? f->what() : "prepared";
    if (f && f->code() != errc::ranks_disagree) said[me] = "another code";
    rank_run rank(world, good);
    fine[me] = !rank.plan.try_prepare(rank.given, on_host{}) && rank.forward().ok();
  });
  CHECK(said[0].find("ranks disagree on joint_q: expected 0 (ranks 0,1,2 of 4), got 3 (rank 3)") != std::string::npos);
  for (const std::string& text : said) CHECK(text == said[0]);
  for (const bool yes : fine) CHECK(yes);
}

TEST_CASE("a disagreement on what is no number names the ranks on each side and prints no hash") {
  const problem good = plain(4);
  const auto said_of = [&](auto spoil) {
    problem bad = good;
    spoil(bad);
    std::array<std::string, 4> said;
    run_ranks(4, [&](threads::transport world) {
      rank_run rank(world, world.rank() == 3 ? bad : good);
      const failure f = rank.plan.try_prepare(rank.given, on_host{});
      said[static_cast<std::size_t>(world.rank())] = f ? f->what() : "prepared";
    });
    for (const std::string& text : said)
      if (text != said[0]) return "other words on another rank: " + text;
    return said[0];
  };
  const auto check_sides = [&](const std::string& on, const std::string& text) {
    CHECK_MESSAGE(text.starts_with("[seqpar] plan_attention: ranks disagree on " + on + ": ranks 0,1,2"), text);
    CHECK_MESSAGE(text.find("against rank 3; give every rank the same") != std::string::npos, text);
    int digits = 0, longest = 0;
    for (const char c : text) longest = std::max(longest, digits = c >= '0' && c <= '9' ? digits + 1 : 0);
    CHECK_MESSAGE(longest <= 1, text);
  };
  check_sides("the layout", said_of([](problem& p) { p.q_layout = in_zigzag(16, 4); }));
  check_sides("the layout of the keys", said_of([](problem& p) { p.kv_layout = in_zigzag(16, 4); }));
  check_sides("the mask", said_of([](problem& p) { p.mask = see_all; }));
  const std::string joint_kv = said_of([](problem& p) { p.shape.joint_kv = 5; });
  CHECK_MESSAGE(joint_kv.find("joint_kv: expected 0 (ranks 0,1,2 of 4), got 5 (rank 3)") != std::string::npos,
                joint_kv);
}

}  // namespace seqpar::test
