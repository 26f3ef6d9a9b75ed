// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layout × mask × mesh × schedule × everything else, drawn from one number a problem. Every problem's values and bytes
// are compared with the definition. Replay one: SWEEP_SEED=<its number> SWEEP_COUNT=1 <this program> -tc='*sweep*'
#include <tests/attention/cases.hpp>
#include <tests/attention/draw.hpp>
#include <tests/support/sanitized.hpp>

#include <cstdlib>

namespace seqpar::test {

// Compiled here only; memory_test.cpp uses it too.
template outcome<float> run_problem<float, host_reference<>>(const problem&, const tensors&, host_reference<>);

namespace {

constexpr std::uint64_t usual_count = under_asan || under_tsan ? 300 : 2000;

std::uint64_t environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string name_of(const drawn_problem& d) {
  const problem& p = d.p;
  std::ostringstream s;
  constexpr const char *types[] = {"float", "float16", "bfloat16"},
                       *memories[] = {"dense", "heads first", "packed", "padded"};
  s << name_of(p) << ", " << types[d.type] << (d.reference ? " by host_reference" : "") << ", "
    << memories[static_cast<int>(p.memory)];
  if (p.shape.joint_q + p.shape.joint_kv > 0)
    s << ", joint " << p.shape.joint_q << "/" << p.shape.joint_kv
      << (p.shape.joint_at == joint_place::front ? " front" : " rear")
      << (p.options.joint_gradient == joint_gradient::partial ? " partial" : "");
  if (p.options.passes == forward_only) s << ", forward only";
  if (p.options.scale) s << ", scale " << *p.options.scale;
  if (p.options.gradients == write::add) s << ", add";
  if (p.options.capacity.tokens_per_rank > 0) s << ", capacity " << p.options.capacity.tokens_per_rank;
  if (p.with_dlse) s << ", dlse";
  if (p.adversary) s << ", adversary " << *p.adversary;
  if (!p.ranks.empty()) {
    s << ", ranks";
    for (int r : p.ranks) s << " " << r;
    s << " of " << p.world;
  }
  return s.str();
}

template <class T, class Kernel = host_fast>
std::string fault_in(const problem& p) {
  const tensors in = recipe_tensors(p);
  return fault_of(p, run_problem<T>(p, in, Kernel{}), definition<T>(p, in));
}

std::string fault_in(const drawn_problem& d) {
  try {
    if (d.type == 1) return fault_in<float16>(d.p);
    if (d.type == 2) return fault_in<bfloat16>(d.p);
    return d.reference ? fault_in<float, host_reference<>>(d.p) : fault_in<float>(d.p);
  } catch (const std::exception& e) {
    return std::string("threw ") + e.what();
  }
}

}  // namespace

TEST_CASE("the sweep: any layout, mask, mesh, schedule, shape and type gives the definition's values and bytes") {
  const std::uint64_t first = environment("SWEEP_SEED", 1), count = environment("SWEEP_COUNT", usual_count);
  std::uint64_t failures = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < 20; ++seed) {
    problem_drawer drawer(seed);
    const drawn_problem d = drawer.draw();
    const std::string fault = fault_in(d);
    if (fault.empty()) continue;
    ++failures;
    FAIL_CHECK("problem " << seed << ": " << name_of(d) << "\n  " << fault << "\n  replay: SWEEP_SEED=" << seed
                          << " SWEEP_COUNT=1 attention_tests -tc='the sweep*'");
  }
  MESSAGE(count << " problems from " << first << " on, " << failures << " failed");
}

TEST_CASE("the sweep draws every family of layouts and masks, alone and combined, and every mesh of up to 8 ranks") {
  std::string all;
  for (std::uint64_t seed = 1; seed <= usual_count; ++seed) {
    problem_drawer drawer(seed);
    all += " " + drawer.draw().families;
  }
  for (const char* family : {"contiguous",
                             "zigzag",
                             "striped",
                             "paired<contiguous>",
                             "paired<zigzag>",
                             "grid",
                             "nested<contiguous",
                             "nested<zigzag",
                             "nested<striped",
                             "reordered",
                             "per_document",
                             "segments",
                             "causal",
                             "full",
                             "window",
                             "block_causal",
                             "teacher_forcing",
                             "first_keys",
                             "prefix_lm",
                             "valid",
                             "documents",
                             "within<causal",
                             "within<window",
                             "all_of<valid,",
                             "any_of<first_keys,",
                             "within<all_of<causal,",
                             "speckled",
                             "apart",
                             "every_third"})
    CHECK_MESSAGE(all.find(std::string(" ") + family) != std::string::npos, family);
  for (int r = 1; r <= 8; ++r)
    for (int u = 1; r * u <= 8; ++u)
      for (const char* placement : {" ", " ring inside "}) {
        const std::string mesh = "mesh " + std::to_string(r) + "x" + std::to_string(u) + placement;
        CHECK_MESSAGE(all.find(mesh) != std::string::npos, mesh);
      }
}

}  // namespace seqpar::test
