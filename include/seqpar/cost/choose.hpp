// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which layout, mesh and schedule: all of them weighed by what they must move and compute, the best ones run on paper.
#pragma once

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/cost/balanced.hpp>
#include <seqpar/cost/timeline.hpp>
#include <seqpar/cost/weigh.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/striped.hpp>

namespace seqpar {
inline namespace v0_1 {

struct named_layout {
  std::string name;
  dealt layout;  ///< over all ranks
};

struct choose_options {
  extent tokens;
  extent ranks;
  index_t granule = 1;               ///< tokens never cut apart
  attention_options attention = {};  ///< passes, reuse …; its schedule is not looked at
  /// double_ring has windows of one node's members, unless `attention` says otherwise, and is left out where they do
  /// not divide the ring.
  /// Their order means nothing.
  std::vector<seqpar::schedule> schedules = {seqpar::schedule::direct, seqpar::schedule::pass_along,
                                             seqpar::schedule::all_gather, seqpar::schedule::double_ring};
  /// How many layouts and meshes run on paper, with every schedule. 0: none, and the first is only planned; but where
  /// there are layouts of the caller's own, which always run, the best one runs beside them.
  int simulate = 3;
  bool solve = true;                       ///< is `balanced` among the layouts? Not with joint tokens
  std::vector<named_layout> layouts = {};  ///< more of them, weighed on every mesh; each runs on its best one
};

/// The best one first. A vector whose front is moved out of a temporary: a view of its layout would dangle.
struct candidates : std::vector<candidate> {
  const candidate& front() const& { return vector::front(); }
  candidate front() && { return std::move(vector::front()); }
};

/// As in the source.
inline const char* name_of(schedule s) {
  switch (s) {
    case schedule::direct:
      return "direct";
    case schedule::pass_along:
      return "pass_along";
    case schedule::all_gather:
      return "all_gather";
    case schedule::double_ring:
      return "double_ring";
  }
  return "another schedule";
}

/// What a candidate is planned with.
inline attention_options attention_of(const choose_options& o, const machine& m, const candidate& c) {
  attention_options a = o.attention;
  a.schedule = c.schedule;
  if (c.schedule == schedule::double_ring && a.window == 0) a.window = m.ranks_per_node / c.team.all_to_all;
  return a;
}

namespace detail {

/// f(name, deal[, which of o.layouts]) for every layout over the members of a mesh: dealt over the ring, each member's
/// rows cut into consecutive parts for its all-to-all group.
template <class Mask, class F>
void for_each_deal(const Mask& mask, const mesh_shape& team, const choose_options& o, bool solve, F&& f) {
  const contiguous inside{.tokens = 0, .ranks = team.all_to_all, .granule = o.granule};
  const auto over_all = [&](const auto& ring) { return nested<dealt, contiguous>{dealt::from(ring), inside}; };
  const auto add = [&](const char* name, const auto& ring) { f(name, dealt::from(over_all(ring))); };
  add("contiguous", contiguous{.tokens = o.tokens, .ranks = team.ring, .granule = o.granule});
  for (const named_layout& own : o.layouts) f(own.name, own.layout, static_cast<int>(&own - o.layouts.data()));
  if (team.ring == 1) return;  // one member has all, in whatever order
  add("zigzag", zigzag{.tokens = o.tokens, .ranks = team.ring, .granule = o.granule});
  add("striped", striped{.tokens = o.tokens, .ranks = team.ring, .granule = o.granule});
  if constexpr (std::same_as<Mask, teacher_forcing>)
    if (o.tokens % 2 == 0) {
      const auto in_pairs = [&](const char* name, const auto& ring) {
        f(name, dealt::from(paired<nested<dealt, contiguous>>{over_all(ring)}));
      };
      in_pairs("paired contiguous", contiguous{.tokens = o.tokens / 2, .ranks = team.ring, .granule = o.granule});
      in_pairs("paired zigzag", zigzag{.tokens = o.tokens / 2, .ranks = team.ring, .granule = o.granule});
    }
  // 64 granules a rank are fine enough
  const index_t granule = std::max<index_t>(1, o.tokens / (64 * team.ring) / o.granule) * o.granule;
  if (solve) add("balanced", balanced(mask, {.tokens = o.tokens, .ranks = team.ring, .granule = granule}));
}

inline void check_own(const char* where, const named_layout& own, const choose_options& o) {
  const std::string name = "layout `" + own.name + "`";
  if (const flaw what = own.layout.problem()) raise(invalid(where, {name, ": ", what}));
  if (own.layout.token_count() != o.tokens || own.layout.rank_count() != o.ranks)
    raise(invalid(where, {name, " deals ", own.layout.token_count(), " tokens over ", own.layout.rank_count(),
                          " ranks, the options say ", index_t{o.tokens}, " over ", index_t{o.ranks},
                          "; give both the same numbers"}));
  if (failure f = check_owners(where, name.c_str(), own.layout.view())) raise(*f);
}

/// One sentence.
inline std::string reason(const candidate& c) {
  const auto text = [](const char* form, auto... x) {
    char s[160];
    std::snprintf(s, sizeof s, form, x...);
    return std::string(s);
  };
  const auto megabytes = [&](double bytes) { return text(bytes < 1e9 ? "%.3g MB" : "%.0f MB", bytes / 1e6); };
  std::string why = c.layout + text(" on %d x %d: %s come to each rank, the busiest has %.2f of the mean work, and ",
                                    static_cast<int>(c.team.ring), static_cast<int>(c.team.all_to_all),
                                    megabytes(c.received.mean).c_str(), c.balance);
  if (c.memory_bytes == 0 && c.seconds == 0) return why + text("no schedule is faster than %.3g ms", 1e3 * c.least);
  return why + text("%s takes %.3g ms (at least %.3g, waiting %.3g) in %s of memory", name_of(c.schedule),
                    1e3 * c.seconds, 1e3 * c.least, 1e3 * c.waiting,
                    megabytes(static_cast<double>(c.memory_bytes)).c_str());
}

/// c as it runs with a schedule.
template <class T, class Out, class Grad, class Kernel, class Mask>
class candidate_runner {
 public:
  candidate_runner(const Mask& mask, const attention_shape& shape, const machine& m, const choose_options& options)
      : mask_(mask), shape_(shape), machine_(m), options_(options) {}

  /// Why no rank can plan it; they all say the same.
  failure refusal(const candidate& c) const {
    if (attention_of(options_, machine_, c).window == 0 && c.schedule == schedule::double_ring)
      return machine_.several_nodes(options_.ranks)
                 ? invalid("choose", {"double_ring has no window on ", index_t{c.team.ring}, " x ",
                                      index_t{c.team.all_to_all}, ": a group is larger than a node of ",
                                      machine_.ranks_per_node, " ranks; give one in options.attention"})
                 : invalid("choose", "double_ring needs a machine of several nodes, or a window in options.attention");
    const mesh first(paper_transport(0, c.team.size()), c.team);
    const auto plan = try_plan_attention<T, Out, Grad>(first, c.deal.view(), c.deal.view(), mask_, shape_,
                                                       attention_of(options_, machine_, c), kernel_on_paper<Kernel>{});
    return plan.ok() ? failure{} : failure{plan.failure()};
  }
  void run(candidate& c) const {
    const paper_runs runs = run_on_paper<T, Out, Grad, Kernel>(c.team, c.deal.view(), c.deal.view(), mask_, shape_,
                                                               attention_of(options_, machine_, c));
    std::vector<index_t> bytes(static_cast<std::size_t>(c.team.size()));
    for (const auto* pages : {&runs.forward, &runs.backward}) {
      const timeline t(*pages, machine_);
      const traffic moved = traffic_of(*pages);
      for (std::size_t r = 0; r < pages->size(); ++r) bytes[r] += moved.received()[r];
      double waiting = 0;
      for (int r = 0; r < static_cast<int>(pages->size()); ++r)
        waiting = std::max(waiting, t.spent(r, timeline_span::kind::wait));
      c.seconds += t.total();
      c.waiting += waiting;
    }
    c.received = spread_of(bytes);
    const memory_sizes memory = memory_of(runs.forward);
    c.memory_bytes = memory.tables + memory.scratch + memory.exchange + memory.saved;
  }

 private:
  const Mask& mask_;
  const attention_shape& shape_;
  const machine& machine_;
  const choose_options& options_;
};

}  // namespace detail

/// Self attention of `tokens` dealt over `ranks`: every layout × mesh weighed, the `simulate` best ones run on paper
/// with every schedule, and the caller's own, too; where the library refuses one, the next takes its place. The first
/// is the one to take: the fastest on paper, and planned for certain. Then the others that ran, then the rest by their
/// least time.
///
/// Layouts: contiguous, zigzag, striped by granule, in pairs where the mask is teacher_forcing, what `balanced` finds,
/// and the caller's own. T, Out, Grad, Kernel as in plan_attention.
/// Steps: weighing a candidate takes as many as the mask has pieces and the layout runs; a run on paper plans every
/// rank. Fails (error): what a plan refuses of shape, mask and layouts; a machine without speed; own layouts of another
/// number of tokens or ranks; a negative `simulate`; where nothing can be planned, with the first reason.
template <element T, element Out = T, element Grad = T, block_kernel Kernel = host_fast, attention_mask Mask>
candidates choose(const Mask& mask, const attention_shape& shape, const machine& m, const choose_options& o) {
  const char* where = "choose";
  if (const flaw what = detail::problem_of_sizes(o.tokens, o.ranks, o.granule)) raise(detail::invalid(where, what));
  detail::check_machine(where, m, o.ranks);
  if (failure f = detail::check_shape(where, shape)) raise(*f);
  if (o.schedules.empty()) raise(detail::invalid(where, "there is no schedule to choose from; name one"));
  if (o.simulate < 0) raise(detail::invalid(where, {"simulate must be 0 or more, not ", o.simulate}));
  for (const named_layout& own : o.layouts) detail::check_own(where, own, o);
  const index_t q_tokens = o.tokens + shape.joint_q, k_tokens = o.tokens + shape.joint_kv;
  const mask_pieces pieces(mask, q_tokens, k_tokens);

  std::vector<seqpar::schedule> schedules = o.schedules;
  std::sort(schedules.begin(), schedules.end());
  schedules.erase(std::unique(schedules.begin(), schedules.end()), schedules.end());
  attention_options with = o.attention;
  with.schedule = schedules.front();  // direct, if it is among them: then queries may travel
  const bool solve = o.solve && shape.joint_q == 0 && shape.joint_kv == 0;  // it takes the mask for the dealt tokens'
  candidates all, ran, rest;
  for (index_t ring = 1; ring <= o.ranks; ++ring) {
    const mesh_shape team{.ring = ring, .all_to_all = o.ranks / ring};
    if (o.ranks % ring == 0)
      detail::for_each_deal(mask, team, o, solve, [&](const std::string& name, const dealt& deal, int own = -1) {
        all.push_back(weigh<T, Out, Grad>(name, team, deal, mask, shape, m, with, pieces));
        all.back().own = own;
      });
  }
  std::stable_sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) { return a.least < b.least; });

  const detail::candidate_runner<T, Out, Grad, Kernel, Mask> on_paper_too(mask, shape, m, o);
  const bool play = o.simulate > 0 || !o.layouts.empty();
  failure refused;
  std::vector<bool> own_ran(o.layouts.size());
  int others = 0;  // that ran and are nobody's own
  for (candidate& c : all) {
    const bool own = c.own >= 0;
    if (others >= std::max(1, o.simulate) && (!own || own_ran[static_cast<std::size_t>(c.own)])) {
      rest.push_back(std::move(c));
      continue;
    }
    const auto before = ran.size();
    for (seqpar::schedule s : schedules) {
      c.schedule = s;
      if (failure f = on_paper_too.refusal(c)) {
        if (!refused) refused = f;
        continue;
      }
      ran.push_back(c);
      if (s != with.schedule)  // keys travel, whatever direct lets travel
        ran.back().balance =
            weigh<T, Out, Grad>(c.layout, c.team, c.deal, mask, shape, m, attention_of(o, m, c), pieces).balance;
      if (play) on_paper_too.run(ran.back());
      if (!play || c.team.ring == 1) break;  // one that the library plans; or no ring, and all schedules are the same
    }
    if (ran.size() == before) continue;
    if (own) own_ran[static_cast<std::size_t>(c.own)] = true;
    others += !own;
  }
  if (ran.empty()) raise(*refused);
  std::stable_sort(ran.begin(), ran.end(),
                   [](const candidate& a, const candidate& b) { return a.seconds < b.seconds; });
  ran.insert(ran.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  for (candidate& c : ran) c.why = detail::reason(c);
  return ran;
}

}  // namespace v0_1
}  // namespace seqpar
