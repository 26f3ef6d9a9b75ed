// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bad input while planning, and ranks that do not give the same: one clear error, the same on every rank.
#include <array>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

problem plain() {
  attention_case c{.tokens = 16, .shape = {.heads = 8, .kv_heads = 4, .head_dim = 4}, .mask = see_past};
  return c.at(contiguously, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
}

/// What planning p says on every rank of four; all must say the same.
std::string plan_error(const problem& p) {
  std::string said;
  for (int r = 0; r < 4; ++r) {
    std::vector<recorded_message> log;
    const auto plan = try_plan_attention<float>(mesh(recorder(r, 4, log), p.team), p.q_layout, p.kv_layout, p.mask,
                                                p.shape, p.options);
    const std::string text = plan.ok() ? "planned" : plan.failure().what();
    if (!plan.ok() && plan.failure().code() != errc::invalid_argument) return "another code: " + text;
    if (r > 0 && text != said) return "other words on another rank: " + text;
    said = text;
    CHECK(log.empty());
  }
  return said;
}
using spoiler = seqpar::detail::function_ref<void(problem&)>;
std::string refused(spoiler spoil) {
  problem p = plain();
  spoil(p);
  return plan_error(p);
}
any_layout given(const std::vector<run>& runs, const std::vector<index_t>& offsets) {
  return any_layout(segments{runs, offsets}, "segments");
}

/// Any mask, with the judgement on lengths that any_mask leaves out.
struct judging_mask : any_mask {
  template <class M>
  requires(!std::derived_from<M, any_mask>) judging_mask(const M& mask)
      : any_mask(mask), judge([mask](padded_length q, padded_length k) { return misfit_of(mask, q, k); }) {}
  std::string misfit(padded_length q, padded_length k) const { return judge(q, k); }
  std::function<std::string(padded_length, padded_length)> judge;
};

/// What prepare says on each rank when rank `odd` was given another problem than the rest; afterwards all of them run
/// the right one.
std::array<std::string, 4> disagreement(int odd, spoiler spoil) {
  const problem good = plain();
  problem bad = good;
  spoil(bad);
  std::array<std::string, 4> said;
  run_ranks(4, [&](threads::transport world) {
    rank_run rank(world, world.rank() == odd ? bad : good);
    std::string& text = said[static_cast<std::size_t>(world.rank())];
    try {
      rank.prepare();
      text = "prepared";
    } catch (const error& e) {
      text = e.code() == errc::ranks_disagree ? e.what() : std::string("another code: ") + e.what();
    }
    check(world.recover());
    rank_run again(world, good);
    again.prepare();
    check(again.forward());
    check(again.backward());
  });
  return said;
}
/// The message names what, the odd rank, and the rest; numbers are printed, hashes are not.
void check_disagreement(const std::string& on, spoiler spoil) {
  for (int odd : {1, 3}) {
    const auto said = disagreement(odd, spoil);
    const std::string start = "[seqpar] plan_attention: ranks disagree on " + on + ": ";
    const std::string rest = odd == 1 ? "ranks 0,2,3" : "ranks 0,1,2", one = "rank " + std::to_string(odd);
    CHECK_MESSAGE(said[0].starts_with(start), on << ": " << said[0]);
    const bool numbers = said[0].find(": expected ") != std::string::npos;
    CHECK_MESSAGE(said[0].find(numbers ? "(" + rest + " of 4), got " : ": " + rest) != std::string::npos, said[0]);
    CHECK_MESSAGE(said[0].find((numbers ? "(" + one + ")" : " against " + one) + "; give every rank the same") !=
                      std::string::npos,
                  on << ": " << said[0]);
    for (const std::string& text : said) CHECK(text == said[0]);
  }
}

}  // namespace

TEST_CASE("shapes that cannot be planned are one clear error with the remedy, the same on every rank") {
  const std::string at = "[seqpar] plan_attention: ";
  CHECK(plan_error(plain()) == "planned");
  CHECK(refused([](problem& p) { p.shape.heads = 0; }) == at + "heads must be at least 1, got 0");
  CHECK(refused([](problem& p) { p.shape.kv_heads = 3; }) == at + "kv_heads must divide heads (8), got 3");
  CHECK(refused([](problem& p) { p.shape.kv_heads = 0; }) == at + "kv_heads must divide heads (8), got 0");
  CHECK(refused([](problem& p) { p.shape.kv_heads = 16; }) == at + "kv_heads must divide heads (8), got 16");
  CHECK(refused([](problem& p) { p.shape.head_dim = 0; }) == at + "head_dim must be 1 to 256, got 0");
  CHECK(refused([](problem& p) { p.shape.head_dim = 257; }) == at + "head_dim must be 1 to 256, got 257");
  CHECK(refused([](problem& p) { p.shape.value_dim = 257; }) == at + "value_dim must be 1 to 256, got 257");
  CHECK(refused([](problem& p) { p.shape.value_dim = -1; }) == at + "value_dim must be 1 to 256, got -1");
  CHECK(refused([](problem& p) { p.shape.batch = -1; }) == at + "batch must not be negative, got -1");
  CHECK(refused([](problem& p) { p.shape.joint_kv = -2; }) == at + "joint tokens must be 0 to 2^31 - 1, got -2");
  CHECK(refused([](problem& p) { p.shape.joint_q = -3; }) == at + "joint tokens must be 0 to 2^31 - 1, got -3");
  CHECK(refused([](problem& p) { p.options.capacity.tokens_per_rank = -1; }) ==
        at + "capacity must be 0 to 2^31 - 1 tokens, ranges_per_tile 1 to 2^31 - 1, got -1 and 16");
  CHECK(refused([](problem& p) { p.options.capacity.tokens_per_rank = 3; }) ==
        at + "rank 0 holds 4 tokens, more than capacity.tokens_per_rank, 3; plan with a larger capacity");
  const auto windows_of = [](index_t n) {
    return refused([n](problem& p) {
      p.options.schedule = schedule::double_ring;
      p.options.window = n;
    });
  };
  const std::string window = at + "double_ring takes options.window, ring members that share a node: a divisor of 2, ";
  CHECK(windows_of(3) == window + "got 3");
  CHECK(windows_of(0) == window + "got 0");
  CHECK(refused([](problem& p) { p.q_layout = contiguously(-16, 4); }) ==
        at + "the layout: tokens is negative; give 0 or more, got -16");
}

TEST_CASE(
    "queries that cannot travel are refused where they are asked for; the cheaper side is then that of the keys") {
  const auto without = [](auto&& set) {
    const auto with = [&](side forward, side backward) {
      return refused([&](problem& p) {
        set(p);
        p.options.moves = {forward, backward};
      });
    };
    CHECK(with(side::cheaper, side::cheaper) == "planned");
    CHECK(with(side::queries, side::keys) == with(side::keys, side::queries));
    return with(side::queries, side::queries);
  };
  const std::string no =
      "[seqpar] plan_attention: queries travel with schedule::direct and reuse::resend only, without joint queries and "
      "capacity; leave options.moves to side::cheaper, or give side::keys";
  CHECK(without([](problem&) {}) == "planned");
  CHECK(without([](problem& p) { p.options.schedule = schedule::pass_along; }) == no);
  CHECK(without([](problem& p) { p.options.schedule = schedule::all_gather; }) == no);
  CHECK(without([](problem& p) { p.options.reuse = reuse::saved; }) == no);
  CHECK(without([](problem& p) { p.options.capacity.tokens_per_rank = 16; }) == no);
  CHECK(without([](problem& p) { p.shape.joint_q = 2; }) == no);
  CHECK(without([](problem& p) { p.shape.joint_kv = 2; }) == "planned");
}

TEST_CASE("layouts that do not fit the mesh, and rows with two owners or none, are refused while planning") {
  const std::string at = "[seqpar] plan_attention: ";
  CHECK(refused([](problem& p) { p.q_layout = contiguously(16, 3); }) ==
        at + "the layout is dealt over 3 ranks, the mesh has 4; give both the same number");
  CHECK(refused([](problem& p) { p.kv_layout = contiguously(16, 8); }) ==
        at + "the layout of the keys is dealt over 8 ranks, the mesh has 4; give both the same number");
  const std::vector<index_t> offsets{0, 1, 2, 3, 4};
  const std::vector<run> twice{{0, 4, 1}, {3, 4, 1}, {8, 4, 1}, {12, 4, 1}};  // row 3 twice, row 7 never
  const std::string row = "row 3 has two owners (ranks 0 and 1); let every row be held by exactly one rank";
  CHECK(refused([&](problem& p) { p.q_layout = given(twice, offsets); }) == at + "the layout: " + row);
  CHECK(refused([&](problem& p) { p.kv_layout = given(twice, offsets); }) == at + "the layout of the keys: " + row);
  // a table is judged row by row, however long: here only row 500 of a thousand is held twice
  const std::vector<run> hidden{{0, 501, 1}, {500, 1, 1}, {502, 498, 1}, {1000, 0, 1}};
  std::vector<recorded_message> log;
  const auto plan = try_plan_attention<float>(ring(recorder(0, 4, log)), segments{hidden, offsets}, causal{},
                                              {.heads = 1, .kv_heads = 1, .head_dim = 4});
  REQUIRE(!plan.ok());
  CHECK(std::string(plan.failure().what()) ==
        at + "the layout: row 500 has two owners (ranks 0 and 1); let every row be held by exactly one rank");
  const std::vector<run> beyond{{0, 4, 1}, {4, 4, 1}, {8, 4, 1}, {13, 4, 1}};
  CHECK(refused([&](problem& p) { p.q_layout = given(beyond, offsets); }).starts_with(at + "the layout: segments: "));
  CHECK(refused([](problem& p) { p.q_layout = contiguously(-1, 4); }).starts_with(at + "the layout: "));
  CHECK(refused([](problem& p) {
          p.kv_layout = any_layout(zigzag{.tokens = 16, .ranks = 4, .granule = 0});
        }).starts_with(at + "the layout of the keys: "));
}

TEST_CASE("masks with negative sizes or broken tables are refused while planning, in the mask's own words") {
  const std::string at = "[seqpar] plan_attention: the mask: ";
  const auto with = [](auto mask) { return refused([&](problem& p) { p.mask = any_mask(mask); }); };
  CHECK(with(window{.left = -1, .right = 0}) == at + "window: left and right count keys; give 0 or more, got -1");
  CHECK(with(window{.left = 3, .right = -2}) == at + "window: left and right count keys; give 0 or more, got -2");
  CHECK(with(first_keys{-1}) == at + "first_keys: count counts keys; give 0 or more, got -1");
  CHECK(with(prefix_lm{-1}) == at + "prefix_lm: prefix counts keys; give 0 or more, got -1");
  CHECK(with(valid{.keys = -1}) == at + "valid: queries and keys count tokens; give 0 or more, got -1");
  CHECK(with(valid{.queries = -1, .keys = 1}) == at + "valid: queries and keys count tokens; give 0 or more, got -1");
  CHECK(with(block_causal{0}) == at + "block_causal: block counts tokens; give 1 or more, got 0");
  CHECK(with(teacher_forcing{.clean = -1, .block = 2}) ==
        at + "teacher_forcing: clean counts tokens; give 0 or more, got -1");
  CHECK(with(teacher_forcing{.clean = 8, .block = 0}) ==
        at + "teacher_forcing: block counts tokens; give 1 or more, got 0");
  CHECK(with(any_of{causal{}, first_keys{-1}}) == at + "first_keys: count counts keys; give 0 or more, got -1");
  const std::vector<index_t> down{0, 5, 3}, late{1, 5};
  CHECK(with(documents{down}) == at + "documents: bounds descend; give lengths of 0 or more to pack()");
  CHECK(with(seqpar::within{documents{late}, causal{}}) == at + "documents: the first bound is not 0; use pack()");
}

TEST_CASE(
    "teacher forcing over another number of positions than its copies have is refused, padding that is told apart") {
  const auto planned = [](index_t tokens, const judging_mask& mask, index_t joint = 0) {
    const auto plan =
        try_plan_attention<float>(ring(self{}), contiguous{.tokens = tokens, .ranks = 1}, mask,
                                  {.heads = 1, .kv_heads = 1, .head_dim = 4, .joint_q = joint, .joint_kv = joint});
    return plan.ok() ? std::string() : std::string(plan.failure().what());
  };
  const teacher_forcing six{.clean = 6, .block = 2};
  const auto real = [](index_t n) { return valid{.queries = n, .keys = n}; };
  const std::string wrong = "[seqpar] plan_attention: the mask: teacher_forcing: clean is 6, the sequence has ";
  CHECK(planned(16, six).starts_with(wrong + "16 positions; give half of them"));
  CHECK(planned(11, six).starts_with(wrong + "11 positions"));
  CHECK(planned(12, six, 4).starts_with(wrong + "16 positions"));
  CHECK(planned(12, six) == "");
  CHECK(planned(16, all_of{six, real(12)}) == "");
  CHECK(planned(16, all_of{all_of{six, causal{}}, all_of{full{}, real(12)}}) == "");
  CHECK(planned(12, all_of{six, real(10)}) == "");
  CHECK(planned(16, all_of{six, real(13)}).starts_with(wrong));
  CHECK(planned(16, all_of{six, valid{.keys = 12}}).starts_with(wrong));  // queries 12 to 15 would see nothing
  CHECK(planned(16, all_of{six, valid{.queries = 12, .keys = 16}}).starts_with(wrong));
  CHECK(planned(11, all_of{six, real(11)}).starts_with(wrong));
  CHECK(planned(16, all_of{six, causal{}}).starts_with(wrong));
  CHECK(planned(16, any_of{six, first_keys{2}}) == "");
  CHECK(planned(11, any_of{six, first_keys{2}}).starts_with(wrong));
  const std::vector<index_t> equal = pack({12, 12}), other = pack({12, 0, 14});
  CHECK(planned(24, seqpar::within{documents{equal}, six}) == "");
  CHECK(planned(26, seqpar::within{documents{other}, six}).starts_with(wrong + "14 positions"));
  CHECK(planned(26, all_of{seqpar::within{documents{other}, six}, real(24)}) == "");
}

TEST_CASE("whatever one rank gives otherwise than the rest is one error on all of them before data moves [J6]") {
  check_disagreement("batch", [](problem& p) { p.shape.batch = 2; });
  check_disagreement("heads", [](problem& p) { p.shape.heads = 4; });
  check_disagreement("kv_heads", [](problem& p) { p.shape.kv_heads = 2; });
  check_disagreement("head_dim", [](problem& p) { p.shape.head_dim = 8; });
  check_disagreement("value_dim", [](problem& p) { p.shape.value_dim = 3; });
  check_disagreement("joint_q", [](problem& p) { p.shape.joint_q = 1; });
  check_disagreement("joint_kv", [](problem& p) { p.shape.joint_kv = 1; });
  check_disagreement("the scale", [](problem& p) { p.options.scale = 0.25f; });
  check_disagreement("the schedule", [](problem& p) { p.options.schedule = schedule::pass_along; });
  check_disagreement("the sides that move", [](problem& p) { p.options.moves.backward = side::queries; });
  check_disagreement("passes", [](problem& p) { p.options.passes = forward_only; });
  check_disagreement("reuse", [](problem& p) { p.options.reuse = reuse::saved; });
  check_disagreement("joint_gradient", [](problem& p) { p.options.joint_gradient = joint_gradient::partial; });
  check_disagreement("gradients", [](problem& p) { p.options.gradients = write::add; });
  check_disagreement("capacity", [](problem& p) { p.options.capacity.tokens_per_rank = 16; });
  check_disagreement("the mesh's ring size", [](problem& p) { p.team = {.ring = 4, .all_to_all = 1}; });
  check_disagreement("the mesh's placement", [](problem& p) { p.team.inside = axis::ring; });
  check_disagreement("the mesh's ranks", [](problem& p) { p.ranks = {0, 2, 1, 3}; });
  check_disagreement("tokens", [](problem& p) { p.q_layout = p.kv_layout = contiguously(17, 4); });
  check_disagreement("key tokens", [](problem& p) { p.kv_layout = contiguously(15, 4); });
  check_disagreement("the layout", [](problem& p) { p.q_layout = in_zigzag(16, 4); });
  check_disagreement("the layout of the keys", [](problem& p) { p.kv_layout = in_stripes(16, 4); });
  check_disagreement("the mask", [](problem& p) { p.mask = see_all; });
  check_disagreement("the mask", [](problem& p) { p.mask = any_mask(window{.left = 14, .right = 0}); });
}

TEST_CASE("the message of a disagreement names what, who and how many") {
  const auto said = disagreement(1, [](problem& p) { p.shape.heads = 12; });
  CHECK(said[0] ==
        "[seqpar] plan_attention: ranks disagree on heads: expected 8 (ranks 0,2,3 of 4), got 12 (rank 1); give every "
        "rank the same");
}

TEST_CASE("another element type on one rank is a disagreement, not bytes taken for numbers [J6]") {
  std::array<std::string, 4> said;
  const problem p = plain();
  run_ranks(4, [&](threads::transport world) {
    std::string& text = said[static_cast<std::size_t>(world.rank())];
    const auto prepared = [&](auto plan) {
      const host_memory memory(plan.memory());
      try {
        plan.prepare(memory, on_host{});
      } catch (const error& e) {
        text = e.what();
      }
    };
    const mesh team(world, p.team);
    if (world.rank() == 3)
      prepared(plan_attention<bfloat16>(team, p.q_layout, p.mask, p.shape, p.options));
    else
      prepared(plan_attention<float>(team, p.q_layout, p.mask, p.shape, p.options));
  });
  CHECK(said[0].starts_with("[seqpar] plan_attention: ranks disagree on the element types: "));
  for (const std::string& text : said) CHECK(text == said[0]);
}

TEST_CASE("a mask or a valid length that only one rank passes is an error everywhere, not a hang [J3]") {
  check_disagreement("the mask", [](problem& p) { p.mask = any_mask(all_of{causal{}, valid{.keys = 14}}); });
  check_disagreement("the mask", [](problem& p) {
    p.mask = any_mask(all_of{causal{}, valid{.queries = 14, .keys = 16}});
  });
}

TEST_CASE("one key more or less in a million is a disagreement too [J3]") {
  const index_t n = index_t{1} << 20;
  std::array<std::string, 2> said;
  run_ranks(2, [&](threads::transport world) {
    attention_case c{.tokens = n,
                     .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1},
                     .mask = any_mask(valid{.keys = world.rank() == 0 ? n : n - 1})};
    c.options.passes = forward_only;
    const problem p = c.at(contiguously, 2, {.ring = 2, .all_to_all = 1}, schedule::direct);
    auto plan = plan_attention<float>(mesh(world, p.team), p.q_layout, p.mask, p.shape, p.options);
    const host_memory memory(plan.memory());
    try {
      plan.prepare(memory, on_host{});
    } catch (const error& e) {
      said[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  CHECK(said[0].starts_with("[seqpar] plan_attention: ranks disagree on the mask: "));
  CHECK(said[1] == said[0]);
}

TEST_CASE("with agreement::trusted nothing is compared and nothing sent") {
  run_ranks(4, [&](threads::transport world) {
    problem p = plain();
    p.options.check = agreement::trusted;
    rank_run rank(world, p);
    rank.prepare();
    if (rank.record.messages(direction::send) != 0) throw std::runtime_error("prepare sent something");
    check(rank.forward());
  });
}

}  // namespace seqpar::test
