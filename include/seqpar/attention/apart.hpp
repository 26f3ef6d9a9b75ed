// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a planned attention does: prepare, forward, backward. One struct per set of types, which may be compiled apart.
#pragma once

#include <algorithm>
#include <vector>

#include <seqpar/attention/attention_core.hpp>

namespace seqpar {
inline namespace v0_1 {

template <element T, transport Transport, class Exec, block_kernel Kernel, element Out, element Grad, class Mask>
struct attention_apart {
  using core = detail::attention_core<T, Out, Grad, Transport, Kernel, Mask>;

  static failure prepare(core& c, const memory& given, Exec exec, const forward_arguments<T, Out>& like);
  static status forward(const core& c, const forward_arguments<T, Out>& a, const memory& given, Exec exec) noexcept;
  static status backward(const core& c, const backward_arguments<T, Out, Grad>& a, const memory& given,
                         Exec exec) noexcept;
  /// Writes the tables, reserves room in the groups for the most messages that one launch posts, and shows the kernel
  /// the calls of the runs to come, if it wants to see them.
  static status bind(core& c, const memory& given, Exec exec);

 private:
  template <class Tensors>
  static void check_inputs(detail::buffer_checks& buffers, const Tensors& a, const detail::tensor_shapes& own,
                           const detail::tensor_shapes& joint) {
    buffers.input("q", a.q, own.q);
    buffers.input("k", a.k, own.k);
    buffers.input("v", a.v, own.v);
    buffers.input("joint.q", a.joint.q, joint.q);
    buffers.input("joint.k", a.joint.k, joint.k);
    buffers.input("joint.v", a.joint.v, joint.v);
  }
  static status ready(const core& c, const memory& given, detail::buffer_checks& buffers, const Exec& exec) {
    if (c.team_.moved_from()) return c.gone();
    if (!c.prepared_) return {errc::not_prepared, "attention: call prepare first"};
    if (status s = check_memory(given, c.sizes_); !s.ok()) return s;
    if (given.tables.pointer != c.tables_at_ && c.sizes_.tables > 0)
      return {errc::not_prepared, "attention: memory.tables is not the one that prepare wrote"};
    buffers.memory("memory.tables", given.tables, c.sizes_.tables);
    buffers.memory("memory.scratch", given.scratch, c.sizes_.scratch);
    buffers.memory("memory.exchange", given.exchange, c.sizes_.exchange);
    buffers.memory("memory.saved", given.saved, c.sizes_.saved);
    buffers.lie_in(space_of(exec));
    return buffers.outcome();
  }
  template <class Pass, class Arguments>
  static status outcome(const core& c, Pass pass, const Arguments& a) {
    if (status s = pass.run(a); !s.ok()) {
      // All is told: waits return at once, and no peer begins to read what the caller may soon free.
      for (auto& g : c.groups_) static_cast<void>(c.team_.transport().wait(g, pass.exec));
      return s;
    }
    const status s = pass.work.outcome();
    return s.ok() ? s : c.fail(s);
  }
  static status load_kernel(const core& c, const Exec& exec) {
    if constexpr (requires { Kernel::template load<T, Out, by_intervals>(exec, c.options_.passes); }) {
      if constexpr (!std::same_as<Mask, by_intervals>)
        if (!c.setup_.intervals) return Kernel::template load<T, Out, Mask>(exec, c.options_.passes);
      return Kernel::template load<T, Out, by_intervals>(exec, c.options_.passes);
    } else {
      return {};
    }
  }
  static std::vector<int> peers(const core& c) {
    std::vector<int> all;
    if (c.options_.capacity.tokens_per_rank > 0) {  // update() may make any two members meet
      for (int m = 0; m < c.team_.size(); ++m)
        if (m != c.team_.index()) all.push_back(c.team_.rank_of(m));
      return all;
    }
    const detail::attention_setup& s = c.setup_;
    const peer_ranks group = c.team_.along(axis::all_to_all, s.ring, s.group),
                     ring = c.team_.along(axis::ring, s.ring, s.group);
    for (const route* way : {&s.q_in, &s.kv_in}) add_peers(all, group, *way);
    for (const route* way : {&s.joint_out, &s.joint_sums, &s.joint_gather}) add_peers(all, c.team_, *way);
    s.for_each_ring_route([&](const route& way, side) { add_peers(all, ring, way); });
    return all;
  }
};

template <element T, transport Transport, class Exec, block_kernel Kernel, element Out, element Grad, class Mask>
failure attention_apart<T, Transport, Exec, Kernel, Out, Grad, Mask>::prepare(core& c, const memory& given, Exec exec,
                                                                              const forward_arguments<T, Out>& like) {
  if (c.team_.moved_from()) return error(c.gone());
  if (status s = check_memory(given, c.sizes_); !s.ok()) return error(c.fail(s));
  if (c.options_.check == agreement::checked)
    if (failure f = detail::agree(c.team_, c.said_)) return f;
  if (status s = connect_peers(c.team_.transport(), peers(c), exec); !s.ok()) return error(c.fail(s));
  if constexpr (requires { exec.template load<T, Out, Grad>(); })
    if (status s = exec.template load<T, Out, Grad>(); !s.ok()) return error(c.fail(s));
  if (status s = load_kernel(c, exec); !s.ok()) return error(c.fail(s));
  c.like_ = like;
  if (status s = bind(c, given, exec); !s.ok()) return error(c.fail(s));
  return {};
}

template <element T, transport Transport, class Exec, block_kernel Kernel, element Out, element Grad, class Mask>
status attention_apart<T, Transport, Exec, Kernel, Out, Grad, Mask>::forward(const core& c,
                                                                             const forward_arguments<T, Out>& a,
                                                                             const memory& given, Exec exec) noexcept {
  detail::buffer_checks buffers;
  const detail::tensor_shapes own = c.shapes(), joint = c.joint_shapes();
  check_inputs(buffers, a, own, joint);
  buffers.output("out", a.out, own.out);
  buffers.output("lse", a.lse, own.lse);
  buffers.output("joint.out", a.joint.out, joint.out);
  buffers.output("joint.lse", a.joint.lse, joint.lse);
  if (status s = ready(c, given, buffers, exec); !s.ok()) return c.fail(s);
  return outcome(c, detail::forward_pass<core, Exec>(c, c.carve(given), exec), a);
}

template <element T, transport Transport, class Exec, block_kernel Kernel, element Out, element Grad, class Mask>
status attention_apart<T, Transport, Exec, Kernel, Out, Grad, Mask>::backward(const core& c,
                                                                              const backward_arguments<T, Out, Grad>& a,
                                                                              const memory& given, Exec exec) noexcept {
  if (c.options_.passes == forward_only)
    return c.fail({errc::not_prepared, "attention: planned for the forward pass only; plan with forward_backward"});
  detail::buffer_checks buffers;
  const detail::tensor_shapes own = c.shapes(), joint = c.joint_shapes();
  check_inputs(buffers, a, own, joint);
  buffers.input("out", a.out, own.out);
  buffers.input("dout", a.dout, own.out);
  buffers.input("lse", a.lse, own.lse);
  buffers.input("joint.out", a.joint.out, joint.out);
  buffers.input("joint.dout", a.joint.dout, joint.out);
  buffers.input("joint.lse", a.joint.lse, joint.lse);
  if (a.dlse.pointer) buffers.input("dlse", a.dlse, own.lse);
  if (a.joint.dlse.pointer) buffers.input("joint.dlse", a.joint.dlse, joint.lse);
  buffers.output("dq", a.dq, own.q);
  buffers.output("dk", a.dk, own.k);
  buffers.output("dv", a.dv, own.v);
  buffers.output("joint.dq", a.joint.dq, joint.q);
  buffers.output("joint.dk", a.joint.dk, joint.k);
  buffers.output("joint.dv", a.joint.dv, joint.v);
  if (status s = ready(c, given, buffers, exec); !s.ok()) return c.fail(s);
  return outcome(c, detail::backward_pass<core, Exec>(c, c.carve(given), exec), a);
}

template <element T, transport Transport, class Exec, block_kernel Kernel, element Out, element Grad, class Mask>
status attention_apart<T, Transport, Exec, Kernel, Out, Grad, Mask>::bind(core& c, const memory& given, Exec exec) {
  const auto work = space_of(exec);
  carver tables(given.tables);
  detail::bound_tables::walk(tables, c.setup_, c.tables_,
                             [&](void* to, const void* from, index_t bytes) { work.upload(to, from, bytes); });
  if (status s = work.finish(); !s.ok()) return s;
  c.tables_at_ = given.tables.pointer;
  const detail::attention_setup& s = c.setup_;
  const auto blocks = [](const route& r) {
    return std::max(detail::block_count(r.outgoing()), detail::block_count(r.incoming()));
  };
  index_t most = blocks(s.q_in) * 4 + blocks(s.kv_in) * 2 + blocks(s.joint_out) * 2 + blocks(s.joint_sums) * 2 +
                 blocks(s.joint_gather) * 2;
  s.for_each_ring_route(
      [&](const route& way, side moving) { most = std::max(most, (moving == side::keys ? 2 : 8) * blocks(way)); });
  most *= std::max<index_t>(1, s.shape.batch);
  for (auto& g : c.groups_) g.reserve(most, most);
  status said;
  if constexpr (detail::prepares_for<Kernel, forward_call<T, Out>, Exec>)
    said = detail::forward_pass<core, Exec>(c, c.carve(given), exec)
               .show(c.like_, [&](const auto& call, const auto& mask) {
                 return detail::said_by([&] { return c.kernel_.prepare(call, mask, exec); });
               });
  c.prepared_ = said.ok();
  return said;
}

}  // namespace v0_1
}  // namespace seqpar
