// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts and masks that change every step, within the capacity and memory of one plan.
#include <barrier>
#include <mutex>
#include <random>

#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

/// Steps of one plan: each has its own documents, layout and mask.
struct step {
  std::vector<index_t> bounds;
  problem p;
};

class step_drawer {
 public:
  step_drawer(std::uint32_t seed, int ranks, index_t capacity, problem base)
      : draw_(seed), ranks_(ranks), capacity_(capacity), base_(std::move(base)) {}

  /// `bounds` of the step are viewed by its layouts and mask, so steps are kept by pointer.
  std::unique_ptr<step> draw(index_t smallest_document) {
    auto s = std::make_unique<step>(step{{}, base_});
    std::vector<index_t> lengths;
    index_t left = below(capacity_ * ranks_ + 1);
    while (left > 0) {
      lengths.push_back(std::min<index_t>(left, smallest_document + below(10)));
      left -= lengths.back();
    }
    s->bounds = pack(lengths);
    const index_t tokens = s->bounds.back();
    const auto layout = [&]() -> any_layout {
      if (below(3) == 0) {
        const any_layout l(per_document<zigzag>{s->bounds, {.tokens = 0, .ranks = ranks_}}, "zigzag per document");
        bool fits = true;
        for (int r = 0; r < ranks_; ++r) fits = fits && l.count_of(r) <= capacity_;
        if (fits) return l;
      }
      return every_deal[static_cast<std::size_t>(below(3))](tokens, ranks_);
    };
    s->p.q_layout = layout();
    s->p.kv_layout = layout();
    const documents docs{s->bounds};
    switch (below(4)) {
      case 0:
        s->p.mask = any_mask(seqpar::within{docs, causal{}}, "documents, causal");
        break;
      case 1:
        s->p.mask = any_mask(docs, "documents");
        break;
      case 2:
        s->p.mask = any_mask(seqpar::within{docs, window{.left = 3, .right = 1}}, "documents, window");
        break;
      default:
        s->p.mask = see_past;
        break;
    }
    return s;
  }

 private:
  index_t below(index_t n) { return static_cast<index_t>(draw_() % static_cast<std::uint32_t>(n)); }
  std::minstd_rand draw_;
  int ranks_;
  index_t capacity_;
  problem base_;
};

problem base(int ranks, mesh_shape team, schedule s, reuse again, index_t capacity) {
  attention_case c{.tokens = 0, .shape = {.heads = 4, .kv_heads = 2, .head_dim = 3}, .mask = see_past};
  c.options.reuse = again;
  c.options.capacity.tokens_per_rank = capacity;
  return c.at(contiguously, ranks, team, s);
}

}  // namespace

TEST_CASE("documents and layouts may change every step within the capacity: same memory, right results at once") {
  const index_t capacity = 11;
  std::uint32_t seed = 3;
  for (const mesh_shape& team : every_mesh(4))
    for (const schedule s : every_schedule)
      for (const reuse again : {reuse::resend, reuse::saved}) {
        step_drawer drawer(++seed, 4, capacity, base(4, team, s, again, capacity));
        std::vector<std::unique_ptr<step>> steps;
        for (int i = 0; i < 12; ++i) steps.push_back(drawer.draw(1));
        std::vector<outcome<float>> results;
        for (const auto& x : steps) results.push_back(empty_outcome(x->p));
        std::string fault;
        std::mutex mutex;
        const auto run = [&] {
          run_ranks(4, [&](threads::transport world) {
            rank_run rank(world, steps.front()->p);
            rank.prepare();
            const memory_sizes sizes = rank.plan.memory();
            for (std::size_t i = 0; i < steps.size(); ++i) {
              if (i > 0) rank.update(steps[i]->p);
              check(rank.forward());
              check(rank.backward());
              rank.store(steps[i]->p, results[i]);
              if (rank.plan.memory() != sizes) {
                const std::lock_guard lock(mutex);
                fault = "update changed the sizes of memory";
              }
            }
          });
        };
        CHECK_NOTHROW(run());
        CHECK(fault == "");
        for (std::size_t i = 0; i < steps.size(); ++i) {
          const problem& p = steps[i]->p;
          const std::string wrong = fault_of(p, results[i], definition<float>(p, recipe_tensors(p)));
          CHECK_MESSAGE(wrong.empty(), "step " << i << ": " << name_of(p) << ": " << wrong);
        }
      }
}

TEST_CASE("an update beyond the capacity is a clear error on every rank, and the plan stays as it was") {
  const index_t capacity = 5;
  problem p = base(4, {.ring = 2, .all_to_all = 2}, schedule::direct, reuse::resend, capacity);
  p.q_layout = p.kv_layout = in_zigzag(18, 4);
  problem more = p;
  more.q_layout = more.kv_layout = in_zigzag(21, 4);
  problem negative = p;
  negative.mask = any_mask(first_keys{-1});
  problem fewer_ranks = p;
  fewer_ranks.q_layout = contiguously(9, 2);
  std::array<std::vector<std::string>, 4> said;
  outcome<float> got = empty_outcome(p);
  std::barrier prepared(4);  // else a peer may hear of the fault in its prepare
  run_ranks(4, [&](threads::transport world) {
    rank_run rank(world, p);
    rank.prepare();
    prepared.arrive_and_wait();
    for (const problem* bad : {&more, &negative, &fewer_ranks}) {
      const failure f = rank.plan.try_update(bad->q_layout, bad->kv_layout, bad->mask, rank.given);
      said[static_cast<std::size_t>(world.rank())].push_back(f ? f->what() : "updated");
    }
    const failure unprepared = rank.plan.try_update(p.q_layout, p.kv_layout, p.mask, seqpar::memory{});
    said[static_cast<std::size_t>(world.rank())].push_back(unprepared ? unprepared->what() : "updated");
    check(world.recover());  // too little memory may be one rank's own: it was told to all
    check(rank.forward());
    check(rank.backward());
    rank.store(p, got);
  });
  CHECK(said[0][0] ==
        "[seqpar] attention_plan::update: rank 3 holds 6 tokens, more than capacity.tokens_per_rank, 5; plan with a "
        "larger capacity");
  CHECK(said[0][1].find("first_keys: count counts keys; give 0 or more, got -1") != std::string::npos);
  CHECK(said[0][2].find("dealt over 2 ranks, the mesh has 4") != std::string::npos);
  CHECK(said[0][3].find("give plan.memory() bytes") != std::string::npos);
  for (const auto& text : said) CHECK(text == said[0]);
  CHECK(fault_of(p, got, definition<float>(p, recipe_tensors(p))) == "");
}

}  // namespace seqpar::test
