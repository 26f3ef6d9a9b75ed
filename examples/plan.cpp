// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attention will cost: layouts, meshes and schedules weighed for a mask, a shape and a machine, the best ones run
// on paper and drawn; and published measurements beside what paper says.
#include <charconv>
#include <cstdio>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/cost.hpp>

#include "support/plan_mask.hpp"
#include "support/timeline_picture.hpp"

namespace sp = seqpar;
using demo::fixed_text;
using sp::index_t;

namespace {

constexpr const char* usage =
    "plan: which layout, mesh and schedule for an attention, and what it will cost\n"
    "\n"
    "  --mask NAME          full, causal, window, block_causal, teacher_forcing or documents (default: causal)\n"
    "  --width N            window: keys that a query sees, its own among them (default: tokens / 64)\n"
    "                       block_causal, teacher_forcing: tokens of a block (default: tokens / 32, tokens / 64)\n"
    "                       documents: their median length (default: tokens / 48); lengths are drawn, lognormal\n"
    "  --tokens N           the whole sequence (default: 65536)     --ranks N          (default: 8)\n"
    "  --heads N            query heads (default: 32)               --kv-heads N       (default: 8)\n"
    "  --head-dim N         (default: 128)                          --granule N        (default: 1)\n"
    "  --tflops N           of one rank's kernel (default: 400)     --ranks-per-node N 0: one node (default)\n"
    "  --inside N           GB/s in a node (default: 200)           --across N         GB/s between nodes (default: "
    "50)\n"
    "  --simulate N         how many are run on paper (default: 3)\n"
    "  --forward            the forward pass only\n"
    "  --published          measurements of others beside what paper says\n"
    "  --out DIR            where the pictures go (default: the current folder)\n";

struct bad_arguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct arguments {
  std::string mask = "causal", out = ".";
  std::map<std::string, index_t> number{{"tokens", 65536}, {"ranks", 8},    {"heads", 32},         {"kv-heads", 8},
                                        {"head-dim", 128}, {"granule", 1},  {"tflops", 400},       {"inside", 200},
                                        {"across", 50},    {"simulate", 3}, {"ranks-per-node", 0}, {"width", 0}};
  bool forward = false, published = false, help = false;

  arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--help")
        help = true;
      else if (name == "--forward")
        forward = true;
      else if (name == "--published")
        published = true;
      else if (name == "--mask")
        mask = value(argc, argv, ++i);
      else if (name == "--out")
        out = value(argc, argv, ++i);
      else if (name.size() > 2 && number.count(name.substr(2)) > 0)
        number[name.substr(2)] = integer(name, value(argc, argv, ++i));
      else
        throw bad_arguments("unknown argument `" + name + "`");
    }
  }
  static std::string value(int argc, char** argv, int i) {
    if (i >= argc) throw bad_arguments(std::string(argv[i - 1]) + " needs a value");
    return argv[i];
  }
  static index_t integer(const std::string& name, const std::string& text) {
    index_t n = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (failed != std::errc{} || end != text.data() + text.size())
      throw bad_arguments(name + " takes a whole number, not `" + text + "`");
    // ranks: each is a row of pictures and tables; the others: the library's own bounds are narrower, or an int's
    const index_t most = name == "--ranks" ? 4096 : std::numeric_limits<int>::max();
    if (n < 0 || n > most)
      throw bad_arguments(name + " takes 0 to " + std::to_string(most) + ", not " + std::to_string(n));
    return n;
  }
  double real(const char* name) const { return static_cast<double>(number.at(name)); }
};

struct named_mask {
  std::string name;  ///< with its width
  demo::mask_choice mask;
};
named_mask mask_of(const arguments& given, std::vector<index_t>& bounds) {
  const std::string& name = given.mask;
  const index_t tokens = given.number.at("tokens");
  const auto width = [&](index_t part) {
    return given.number.at("width") > 0 ? given.number.at("width") : std::max<index_t>(1, tokens / part);
  };
  const auto of = [](index_t n, const char* noun) { return ", " + demo::count_text(n, noun); };
  if (name == "full") return {name, {sp::full{}}};
  if (name == "causal") return {name, {sp::causal{}}};
  if (name == "window")
    return {name + " of " + demo::count_text(width(64), "key"), {sp::window{.left = width(64) - 1, .right = 0}}};
  if (name == "block_causal") return {name + of(width(32), "token") + " a block", {sp::block_causal{width(32)}}};
  if (name == "teacher_forcing")
    return {name + of(width(64), "token") + " a block", {sp::teacher_forcing{.clean = tokens / 2, .block = width(64)}}};
  if (name == "documents") {
    bounds = demo::some_documents(tokens, static_cast<double>(width(48)));
    index_t longest = 0;
    for (std::size_t d = 1; d < bounds.size(); ++d) longest = std::max(longest, bounds[d] - bounds[d - 1]);
    return {"causal in " + demo::count_text(static_cast<index_t>(bounds.size()) - 1, "document") +
                of(longest, "token") + " the longest",
            {demo::mask_choice::inside_documents{sp::documents{bounds}, sp::causal{}}}};
  }
  throw bad_arguments("no mask is called `" + name + "`");
}

/// Both passes of a candidate, played on the machine.
using named_timelines = std::vector<std::pair<std::string, sp::timeline>>;
named_timelines timelines_of(const sp::paper_runs& runs, const sp::machine& m) {
  named_timelines list{{"forward", sp::timeline(runs.forward, m)}};
  if (!runs.backward.empty()) list.emplace_back("backward", sp::timeline(runs.backward, m));
  return list;
}

void choose_and_draw(const arguments& given) {
  const index_t tokens = given.number.at("tokens"), ranks = given.number.at("ranks");
  std::vector<index_t> bounds;
  const named_mask asked = mask_of(given, bounds);
  const demo::mask_choice& mask = asked.mask;
  const sp::attention_shape shape{.heads = given.number.at("heads"),
                                  .kv_heads = given.number.at("kv-heads"),
                                  .head_dim = given.number.at("head-dim")};
  const sp::machine machine{.flops = 1e12 * given.real("tflops"),
                            .inside = {5e-6, 1e9 * given.real("inside")},
                            .across = {1e-5, 1e9 * given.real("across")},
                            .ranks_per_node = static_cast<int>(given.number.at("ranks-per-node"))};
  sp::choose_options options{.tokens = tokens, .ranks = ranks, .granule = given.number.at("granule")};
  options.attention.passes = given.forward ? sp::forward_only : sp::forward_backward;
  options.simulate = static_cast<int>(given.number.at("simulate"));
  if (given.mask == "teacher_forcing" && tokens > 0 && tokens % 2 == 0 && ranks > 0 &&
      options.granule > 0)  // a mask of the caller's own brings its own layouts
    options.layouts = {{"paired zigzag", sp::dealt::from(sp::paired<sp::zigzag>{
                                             {.tokens = tokens / 2, .ranks = ranks, .granule = options.granule}})}};
  const auto all = sp::choose<sp::bfloat16>(mask, shape, machine, options);

  const bool nodes = machine.several_nodes(ranks);
  const std::string problem = asked.name + "; " + demo::count_text(tokens, "token") + " on " +
                              demo::count_text(ranks, "rank") + ", " + std::to_string(shape.heads) + " query and " +
                              std::to_string(shape.kv_heads) + " kv heads of " + std::to_string(shape.head_dim);
  const std::string speeds =
      (nodes ? "nodes of " + demo::count_text(machine.ranks_per_node, "rank") : std::string("one node")) + "; " +
      std::to_string(given.number.at("tflops")) + " TFLOP/s a rank, " + std::to_string(given.number.at("inside")) +
      " GB/s inside a node" + (nodes ? ", " + std::to_string(given.number.at("across")) + " across" : std::string());
  std::printf("%s\n%s\n\n", problem.c_str(), speeds.c_str());

  demo::table table({"layout", "mesh", "schedule", "MB per rank", "work", "least ms", "ms", "waiting ms", "memory MB"});
  for (const sp::candidate& c : all) {
    const bool ran = c.seconds > 0;
    table.add({c.layout, std::to_string(c.team.ring) + " x " + std::to_string(c.team.all_to_all),
               ran ? sp::name_of(c.schedule) : "", fixed_text(c.received.mean / 1e6, 2), fixed_text(c.balance, 2),
               fixed_text(1e3 * c.least, 3), ran ? fixed_text(1e3 * c.seconds, 3) : "",
               ran ? fixed_text(1e3 * c.waiting, 3) : "",
               ran ? fixed_text(static_cast<double>(c.memory_bytes) / 1e6, 2) : ""});
  }
  table.print();
  std::printf(
      "\nmesh: ring x all-to-all; without a ring each rank has all tokens, for its heads, in whatever order: one "
      "layout\n"
      "stands for all. MB per rank: that come to it, on average. work: of the busiest rank over the mean. least: what "
      "no\n"
      "schedule undercuts. ms, waiting (of the rank that waits most), memory: as it ran on paper; empty: it did "
      "not.\n");
  const sp::candidate& best = all.front();
  std::printf("\nTake %s.\n", best.why.c_str());

  const sp::segments layout = best.deal.view();
  const std::string title = given.mask + ": " + best.layout + " on " + std::to_string(best.team.ring) + " x " +
                            std::to_string(best.team.all_to_all);
  const demo::picture_text text{.title = title,
                                .subtitle = problem + "\n" + speeds + "\n" + fixed_text(best.received.mean / 1e6, 2) +
                                            " MB come to each rank, the busiest has " + fixed_text(best.balance, 2) +
                                            " of the mean work",
                                .ranks = {},
                                .rows = 0,
                                .brightness = {}};
  demo::write_file(given.out + "/plan_owners.svg",
                   demo::draw_picture(
                       text, tokens, static_cast<int>(ranks), [&](index_t t) { return layout.place_of(t).rank; },
                       [&](index_t q, index_t k) { return mask.allows(q, k); }));
  if (best.seconds > 0) {
    const sp::paper_runs runs = sp::run_on_paper<sp::bfloat16>(best.team, layout, layout, mask, shape,
                                                               sp::attention_of(options, machine, best));
    demo::write_file(given.out + "/plan_timeline.svg",
                     demo::draw_timelines(title + ", " + sp::name_of(best.schedule), problem + "; " + speeds,
                                          timelines_of(runs, machine), static_cast<int>(ranks)));
  }
}

struct paper_time {
  double seconds, flops;
};
paper_time time_of(const sp::mesh_shape& team, const sp::dealt& layout, const sp::attention_shape& shape,
                   const sp::machine& m, sp::schedule schedule) {
  const sp::paper_runs runs =
      sp::run_on_paper<sp::bfloat16>(team, layout.view(), layout.view(), demo::mask_choice{sp::causal{}}, shape,
                                     {.passes = sp::forward_backward, .schedule = schedule});
  paper_time t{0, 0};
  for (const auto& [name, pass] : timelines_of(runs, m)) {
    t.seconds += pass.total();
    t.flops += pass.ideal() * m.flops * team.size();
  }
  return t;
}

/// Nothing here is fitted: rates are those of the data sheets, and of kernels as their authors give them.
void compare_with_published() {
  const sp::attention_shape llama{.heads = 32, .kv_heads = 8, .head_dim = 128};
  {
    const index_t tokens = 8 * 8192;
    const sp::machine m{
        .flops = 400e12, .inside = {1e-5, 200e9}, .across = {1e-5, 50e9}};  // H800: NVLink 400 GB/s both ways
    const double alone =
        time_of({1, 1}, sp::dealt::from(sp::contiguous{.tokens = tokens, .ranks = 1}), llama, m, sp::schedule::direct)
            .flops;
    demo::table table({"ring-flash-attention, 8 x H800, causal, forward and backward", "measured %", "paper %", "off"});
    const auto row = [&](const char* name, const sp::dealt& layout, double measured) {
      const double paper =
          100 * alone / (8 * m.flops * time_of({8, 1}, layout, llama, m, sp::schedule::pass_along).seconds);
      table.add({name, fixed_text(measured, 1), fixed_text(paper, 1), fixed_text(paper - measured, 1)});
    };
    row("ring (contiguous)", sp::dealt::from(sp::contiguous{.tokens = tokens, .ranks = 8}), 53.9);
    row("zigzag", sp::dealt::from(sp::zigzag{.tokens = tokens, .ranks = 8}), 90.2);
    row("striped", sp::dealt::from(sp::striped{.tokens = tokens, .ranks = 8}), 82.9);
    table.print();
  }
  std::printf("\n");
  demo::table table({"LongVILA, 32 x H100, zigzag ring over 2-D", "measured", "paper", "off"});
  const sp::machine m{.flops = 400e12, .inside = {1e-5, 450e9}, .across = {2e-5, 50e9}, .ranks_per_node = 8};
  for (const auto& [thousands, measured] :
       {std::pair<index_t, double>{32, 2.06 / 1.04}, {64, 4.40 / 1.08}, {128, 8.63 / 2.30}, {256, 17.54 / 7.04}}) {
    const index_t tokens = thousands * 1024;
    const double ring =
        time_of({32, 1}, sp::dealt::from(sp::zigzag{.tokens = tokens, .ranks = 32}), llama, m, sp::schedule::pass_along)
            .seconds;
    const sp::nested<sp::zigzag, sp::contiguous> both{{.tokens = tokens, .ranks = 4}, {.tokens = 0, .ranks = 8}};
    const double mesh = time_of({4, 8}, sp::dealt::from(both), llama, m, sp::schedule::pass_along).seconds;
    table.add({std::to_string(thousands) + " K tokens", fixed_text(measured, 2), fixed_text(ring / mesh, 2),
               fixed_text(ring / mesh - measured, 2)});
  }
  table.print();
  std::printf(
      "\nMeasured: whole programs, the second one a whole training step with its linear layers. Paper: one attention, "
      "no\n"
      "launch or merge costs, kernels as fast on small blocks as on large ones, gradients in fp32.\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const arguments given(argc, argv);
    if (given.help) return std::printf("%s", usage), 0;
    choose_and_draw(given);
    if (given.published) {
      std::printf("\n");
      compare_with_published();
    }
    return 0;
  } catch (const bad_arguments& e) {
    return std::fprintf(stderr, "plan: %s\n\n%s", e.what(), usage), 2;
  } catch (const std::bad_alloc&) {
    return std::fprintf(stderr, "plan: not enough memory; give fewer tokens or ranks, or wider documents\n"), 2;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "plan: %s\n", e.what()), 2;
  }
}
