// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans run on paper: the code that runs an attention, over an executor, a transport and a kernel that do nothing but
// write down what they are asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <seqpar/attention/plan.hpp>
#include <seqpar/cost/traffic.hpp>
#include <seqpar/kernel/visit.hpp>
#include <seqpar/transport/recorder.hpp>

namespace seqpar {
inline namespace v0_1 {

/// One thing that a run asked for. Messages of one launch between the same two ranks are one transfer.
struct paper_operation {
  enum class kind : std::uint8_t { compute, memory, launch, wait };
  kind what;
  double flops = 0;                       ///< compute: of the tiles that are visited
  index_t pairs = 0, pairs_in_tiles = 0;  ///< compute: (query, key) of all heads; pairs only where the page asks
  index_t bytes = 0;                      ///< memory: read and written
  int launched = -1;                      ///< launch: which it is, counted; wait: for which
  message_label label{};
};

/// All that one rank asked for, in order.
struct paper_page {
  std::vector<paper_operation> operations;
  std::vector<recorded_message> messages;
  std::vector<int> launch_of;  ///< of each message
  memory_sizes memory;
  region tables;  ///< the only memory that is looked at
  int launches = 0;
  bool count_pairs = false;  ///< exact pairs, too, but of queries that travel: every pair is looked at

  /// Are these tables, or one of them, and not what would have come from elsewhere?
  bool holds(const void* a, const void* b) const {
    const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const void* p = a ? a : b;
    return at(p) - at(tables.pointer) < static_cast<std::uintptr_t>(tables.bytes);
  }
  void touch(index_t bytes) {
    if (bytes == 0) return;
    if (operations.empty() || operations.back().what != paper_operation::kind::memory)
      operations.push_back({.what = paper_operation::kind::memory});
    operations.back().bytes += bytes;
  }
};

/// The executor: names the page.
struct on_paper {
  paper_page* page;
};

/// The space behind it. Only tables are real memory.
class paper_space {
 public:
  explicit paper_space(paper_page* page) : page_(page) {}
  void copy(const block& to, const block& from) const { page_->touch(to.bytes() + from.bytes()); }
  void zero(const block& at) const { page_->touch(at.bytes()); }
  template <class T>
  void fill(const block& at, const T&) const {
    page_->touch(at.bytes());
  }
  template <class To, class From>
  void store(const block& to, const block& from, write how) const {
    page_->touch(from.bytes() + to.bytes() * (how == write::add ? 2 : 1));
  }
  template <class X, class Y>
  void row_dots(const rows_view<const X>& x, const rows_view<const Y>& y, const heads_view<const float>&,
                const heads_view<float>&) const {
    page_->touch(x.elements() * static_cast<index_t>(sizeof(X)) + y.elements() * static_cast<index_t>(sizeof(Y)));
  }
  void merge(const state_rows& to, const state_rows&) const {
    page_->touch(3 * to.acc.elements() * static_cast<index_t>(sizeof(float)));
  }
  void upload(void* to, const void* from, index_t bytes) const {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  status outcome() const { return {}; }
  status finish() const { return {}; }

 private:
  paper_page* page_;
};
inline paper_space space_of(const on_paper& exec) {
  return paper_space(exec.page);
}

/// The transport: any rank of any world.
class paper_transport {
 public:
  struct group_type : message_list<> {
    using message_list<>::message_list;
    int launched = -1;
  };
  static constexpr transport_access access = transport_access::peer_memory;

  paper_transport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  group_type group() const { return group_type(size_); }

  status launch(group_type& group, const on_paper& exec) const {
    if (const status wrong = group.shape_problem(); !wrong.ok()) return wrong;
    paper_page& page = *exec.page;
    group.launched = page.launches++;
    const message_label label = group.messages().empty() ? message_label{} : group.messages().front().label;
    page.operations.push_back({.what = paper_operation::kind::launch, .launched = group.launched, .label = label});
    for (const message& m : group.messages()) {
      const bool sent = m.way == direction::send;
      page.messages.push_back({sent ? rank_ : m.peer, sent ? m.peer : rank_, m.data.bytes(), m.label, m.way});
      page.launch_of.push_back(group.launched);
    }
    return {};
  }
  status wait(group_type& group, const on_paper& exec) const {
    if (group.launched < 0) return {};
    exec.page->operations.push_back({.what = paper_operation::kind::wait, .launched = group.launched});
    return {};
  }
  status launch(group_type&, on_host) const { return not_here(); }
  status wait(group_type&, on_host) const { return not_here(); }
  status wait(group_type&, on_host, std::chrono::nanoseconds) const { return not_here(); }
  status check() const noexcept { return {}; }
  void abort(const status&) const noexcept {}

 private:
  static status not_here() { return {errc::invalid_argument, "paper: a transport on paper needs on_paper"}; }
  int rank_, size_;
};

/// The kernel: as large tiles and as much workspace as `Kernel`, and writes down what its tables would have it do.
template <block_kernel Kernel>
struct kernel_on_paper {
  static constexpr index_t query_tile_rows = Kernel::query_tile_rows;
  static constexpr index_t key_tile_rows = Kernel::key_tile_rows;
  static constexpr bool walks_by_keys = detail::walks_by_keys<Kernel>();
  static constexpr index_t most_rectangles = detail::most_rectangles<Kernel>();
  template <class Mask>
  static constexpr bool takes_mask = detail::takes_mask<Kernel, Mask>();
  template <class... Sizes>
  static index_t workspace_bytes(Sizes... sizes) requires requires {
    Kernel::workspace_bytes(sizes...);
  }
  { return Kernel::workspace_bytes(sizes...); }

  /// s = q·kᵀ, p·v
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask, const on_paper& exec) const {
    const index_t v_dim = call.segments.empty() ? call.out.dim() : call.segments.front().v.dim();
    note(call, mask, exec, 2 * (call.q.dim() + v_dim));
  }
  /// s again, dout·vᵀ, dv, dk, dq
  template <class T, class Mask>
  void backward(const backward_call<T>& call, const Mask& mask, const on_paper& exec) const {
    note(call, mask, exec, 2 * (3 * call.q.dim() + 2 * call.dout.dim()));
  }

 private:
  template <class Call, class Mask>
  static void note(const Call& call, const Mask& mask, const on_paper& exec, index_t flops_per_pair) {
    index_t tiles = 0, pairs = 0;
    for (const auto& segment : call.segments) {
      const key_table& keys = segment.table;
      if (keys.tiles.empty()) continue;
      for (std::size_t t = 0; t < call.queries.tiles.size(); ++t) {
        for (std::int32_t r = keys.first_range[t]; r < keys.first_range[t + 1]; ++r) {
          const tile_range& range = keys.ranges[static_cast<std::size_t>(r)];
          const key_tile& last = keys.tiles[static_cast<std::size_t>(range.first + range.count - 1)];
          tiles += index_t{call.queries.tiles[t].rows} *
                   (last.row + last.rows - keys.tiles[static_cast<std::size_t>(range.first)].row);
        }
        if (exec.page->count_pairs && exec.page->holds(call.queries.position.data(), call.queries.lo0.data()))
          pairs += pairs_of(call.queries, keys, t, mask);
      }
    }
    const index_t heads = call.q.batch() * call.q.heads();
    exec.page->operations.push_back({.what = paper_operation::kind::compute,
                                     .flops = static_cast<double>(tiles * heads) * static_cast<double>(flops_per_pair),
                                     .pairs = pairs * heads,
                                     .pairs_in_tiles = tiles * heads});
  }
  template <class Mask>
  static index_t pairs_of(const query_table& queries, const key_table& keys, std::size_t t, const Mask& mask) {
    index_t pairs = 0;
    for_each_tile(keys, t, [&](const key_tile& tile, cover kind) {
      for (std::int32_t i = 0; i < queries.tiles[t].rows; ++i)
        for (std::int32_t j = 0; j < tile.rows; ++j)
          pairs += kind == cover::all ||
                   may_see(queries, index_t{queries.tiles[t].row} + i, keys.position_of(tile, j), mask);
    });
    return pairs;
  }
};

namespace detail {
/// Addresses that are never looked at: apart from each other, and from any memory that there is.
class paper_addresses {
 public:
  void* take(index_t bytes) {
    const std::uintptr_t at = next_;
    next_ += static_cast<std::uintptr_t>(round_up(bytes, memory_alignment) + memory_alignment);
    return reinterpret_cast<void*>(at);  // NOLINT: that is the point
  }
  template <class T>
  rows_view<T> rows(std::array<index_t, 4> shape) {
    return dense_view(
        static_cast<T*>(take(shape[0] * shape[1] * shape[2] * shape[3] * static_cast<index_t>(sizeof(T)))), shape);
  }
  heads_view<float> heads(std::array<index_t, 3> shape) {
    return dense_heads(static_cast<float*>(take(shape[0] * shape[1] * shape[2] * static_cast<index_t>(sizeof(float)))),
                       shape);
  }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 50;
};
}  // namespace detail

/// What the runs of all ranks ask for: pages[rank].
struct paper_runs {
  std::vector<paper_page> forward, backward;  ///< backward is empty unless planned
};

/// Plans an attention for every member of a mesh of this shape and runs it on paper. The plan, its schedule and its
/// tables are the real ones; T, Out, Grad and Kernel as in plan_attention.
///
/// Steps: as many plans as ranks. Fails (error): what the plan refuses.
template <element T, element Out = T, element Grad = T, block_kernel Kernel = host_fast, sequence_layout QLayout,
          sequence_layout KvLayout, attention_mask Mask>
paper_runs run_on_paper(const mesh_shape& team, const QLayout& q_layout, const KvLayout& kv_layout, const Mask& mask,
                        const attention_shape& n, attention_options options = {}, bool count_pairs = false) {
  options.check = agreement::trusted;
  paper_runs runs;
  for (int rank = 0; rank == 0 || rank < team.size(); ++rank) {
    auto plan = plan_attention<T, Out, Grad>(mesh(paper_transport(rank, team.size()), team), q_layout, kv_layout, mask,
                                             n, options, kernel_on_paper<Kernel>{});
    const memory_sizes sizes = plan.memory();
    const host_memory tables({.tables = sizes.tables, .scratch = 0, .exchange = 0, .saved = 0});
    detail::paper_addresses at;
    memory given = tables;
    given.scratch = {at.take(sizes.scratch), sizes.scratch};
    given.exchange = {at.take(sizes.exchange), sizes.exchange};
    given.saved = {at.take(sizes.saved), sizes.saved};
    paper_page start;
    plan.prepare(given, on_paper{&start});

    const index_t b = n.batch, q = plan.q_rows(), kv = plan.kv_rows(), d = n.head_dim, e = n.v_dim();
    const auto inputs = [&](auto& a, index_t q_rows, index_t kv_rows) {
      a.q = at.rows<const T>({b, q_rows, n.heads, d});
      a.k = at.rows<const T>({b, kv_rows, n.kv_heads, d});
      a.v = at.rows<const T>({b, kv_rows, n.kv_heads, e});
      a.out = at.rows<Out>({b, q_rows, n.heads, e});
      a.lse = at.heads({b, n.heads, q_rows});
    };
    const auto gradients = [&](auto& a, index_t q_rows, index_t kv_rows) {
      a.dout = at.rows<const T>({b, q_rows, n.heads, e});
      a.dq = at.rows<Grad>({b, q_rows, n.heads, d});
      a.dk = at.rows<Grad>({b, kv_rows, n.kv_heads, d});
      a.dv = at.rows<Grad>({b, kv_rows, n.kv_heads, e});
    };
    const auto page_of = [&](std::vector<paper_page>& pages) -> paper_page& {
      paper_page& page = pages.emplace_back();
      page.memory = sizes;
      page.tables = given.tables;
      page.count_pairs = count_pairs;
      return page;
    };
    forward_arguments<T, Out> f;
    inputs(f, q, kv);
    inputs(f.joint, n.joint_q, n.joint_kv);
    check(plan.forward(f, given, on_paper{&page_of(runs.forward)}));
    if (options.passes == forward_only) continue;
    backward_arguments<T, Out, Grad> g;
    inputs(g, q, kv);
    inputs(g.joint, n.joint_q, n.joint_kv);
    gradients(g, q, kv);
    gradients(g.joint, n.joint_q, n.joint_kv);
    check(plan.backward(g, given, on_paper{&page_of(runs.backward)}));
  }
  return runs;
}

/// Bytes that the run of all ranks moves.
inline traffic traffic_of(const std::vector<paper_page>& pages, int ranks_per_node = 0) {
  traffic t(static_cast<int>(pages.size()), ranks_per_node);
  for (const paper_page& p : pages)
    for (const recorded_message& m : p.messages)
      if (m.way == direction::send) t.add(m.from, m.to, m.bytes);
  return t;
}

/// Pairs in the tiles that are visited, of all heads, over the ranks: work as a kernel has it that skips whole tiles.
inline spread pairs_in_tiles(const std::vector<paper_page>& pages) {
  std::vector<index_t> pairs;
  for (const paper_page& p : pages) {
    pairs.push_back(0);
    for (const paper_operation& o : p.operations) pairs.back() += o.pairs_in_tiles;
  }
  return detail::spread_of(pairs);
}

}  // namespace v0_1
}  // namespace seqpar
