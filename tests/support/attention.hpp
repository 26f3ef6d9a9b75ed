// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One attention problem on global tensors: dealt to ranks, run, gathered, and beside it the fp64 definition and
// the bytes that must move.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <seqpar/attention/plan.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/support/any.hpp>
#include <tests/support/dense.hpp>
#include <tests/support/engine.hpp>
#include <tests/support/guarded_memory.hpp>
#include <tests/support/recipe.hpp>
#include <tests/support/tolerance.hpp>

namespace seqpar::test {

/// How the ranks' tensors lie in memory.
enum class strides { dense, heads_first, packed_qkv, padded };

struct problem {
  any_layout q_layout;
  any_layout kv_layout;
  any_mask mask;
  attention_shape shape;
  mesh_shape team = {.ring = 1, .all_to_all = 1};
  attention_options options = {.passes = forward_backward};
  strides memory = strides::dense;
  std::optional<std::uint64_t> adversary = {};
  bool with_dlse = false;
  std::vector<int> ranks = {};  ///< of the world; empty: all, in order
  int world = 0;                ///< 0: as many as the mesh
};

/// Global tensors in fp32 (joint tokens in their place among the others), before rounding to T.
struct tensors {
  std::vector<float> q, k, v, dout, dlse;
  std::vector<float> dq = {}, dk = {}, dv = {};  ///< what gradients are added to (write::add); empty: zeros
};

/// What all ranks computed together, on global positions, and what each of them sent.
template <class T>
struct outcome {
  std::vector<T> out, dq, dk, dv;
  std::vector<float> lse;
  std::vector<index_t> forward_bytes, backward_bytes;
  std::vector<memory_sizes> memory;
  std::vector<memory_sizes> unused;  ///< cache lines of each kind that neither pass wrote
  bool replicas_agree = true;
  /// joint_gradient::partial: dk and dv of joint keys are sums over the ranks; here the rounding of their terms.
  std::vector<double> dk_rounding, dv_rounding;
};

inline dense_shape dense_shape_of(const problem& p) {
  const attention_shape& n = p.shape;
  return {n.batch,
          p.q_layout.token_count() + n.joint_q,
          p.kv_layout.token_count() + n.joint_kv,
          n.heads,
          n.kv_heads,
          n.head_dim,
          n.v_dim()};
}

inline tensors recipe_tensors(const problem& p) {
  const dense_shape d = dense_shape_of(p);
  tensors t{filled<float>(tag::q, d.q_size()),
            filled<float>(tag::k, d.k_size()),
            filled<float>(tag::v, d.v_size()),
            filled<float>(tag::dout, d.out_size()),
            {}};
  if (p.with_dlse) t.dlse = filled<float>(tag::dlse, d.lse_size());
  if (p.options.gradients == write::add) {
    t.dq = filled<float>(tag::dq, d.q_size());
    t.dk = filled<float>(tag::dk, d.k_size());
    t.dv = filled<float>(tag::dv, d.v_size());
  }
  return t;
}

template <class T>
std::vector<T> rounded(const std::vector<float>& x) {
  std::vector<T> y;
  y.reserve(x.size());
  for (float v : x) y.push_back(T(v));
  return y;
}

/// A tensor of one rank in one of the ways of lying in memory, with poison around and between its elements.
template <class T>
class rank_tensor {
 public:
  rank_tensor(std::array<index_t, 4> shape, strides how, T poison, std::pmr::memory_resource* where) : data_(where) {
    const auto [b, t, h, d] = shape;
    switch (how) {
      case strides::dense:
        stride_ = {t * h * d, h * d, d, 1};
        break;
      case strides::heads_first:
        stride_ = {h * t * d, d, t * d, 1};
        break;
      case strides::packed_qkv:
        stride_ = {t * h * 3 * d, h * 3 * d, 3 * d, 1};
        break;
      case strides::padded:
        stride_ = {(t + 1) * (h * (d + 3) + 5), h * (d + 3) + 5, d + 3, 1};
        break;
    }
    shape_ = shape;
    index_t size = guard_ + 1;
    for (int i = 0; i < 4; ++i) size += shape[static_cast<std::size_t>(i)] * stride_[static_cast<std::size_t>(i)];
    data_.assign(static_cast<std::size_t>(size + guard_), poison);
    used_.assign(data_.size(), false);
    const rows_view<T> v = view();
    for (index_t x = 0; x < b; ++x)
      for (index_t y = 0; y < t; ++y)
        for (index_t z = 0; z < h; ++z)
          for (index_t w = 0; w < d; ++w) used_[static_cast<std::size_t>(v.row(x, y, z) + w - data_.data())] = true;
    poison_ = poison;
  }
  rows_view<T> view() { return {data_.data() + guard_, shape_, stride_}; }
  /// Is every byte that is no element as it was?
  bool surroundings_untouched() const {
    for (std::size_t i = 0; i < data_.size(); ++i)
      if (!used_[i] && std::memcmp(&data_[i], &poison_, sizeof(T)) != 0) return false;
    return true;
  }

 private:
  static constexpr index_t guard_ = 7;
  std::array<index_t, 4> shape_, stride_;
  std::pmr::vector<T> data_;
  std::vector<bool> used_;
  T poison_;
};

namespace detail {
inline index_t dealt_offset(index_t joint, joint_place where) {
  return where == joint_place::front ? joint : 0;
}
inline index_t joint_offset(index_t dealt, joint_place where) {
  return where == joint_place::front ? 0 : dealt;
}
}  // namespace detail

/// Runs the problem on the engine's ranks. Throws what a rank throws. `kernel` computes the blocks; `mask` is p.mask,
/// or the same as another type.
template <class T, class Kernel, class Engine, class Mask = any_mask>
outcome<T> run_problem_on(const Engine& engine, const problem& p, const tensors& in, Kernel kernel, const Mask& mask) {
  const attention_shape& n = p.shape;
  const dense_shape d = dense_shape_of(p);
  const int members = static_cast<int>(p.team.ring * p.team.all_to_all);
  const T nan = T(std::numeric_limits<float>::quiet_NaN());
  outcome<T> result;
  result.out.assign(static_cast<std::size_t>(d.out_size()), nan);
  result.lse.assign(static_cast<std::size_t>(d.lse_size()), std::numeric_limits<float>::quiet_NaN());
  result.dq.assign(static_cast<std::size_t>(d.q_size()), nan);
  result.dk.assign(static_cast<std::size_t>(d.k_size()), nan);
  result.dv.assign(static_cast<std::size_t>(d.v_size()), nan);
  result.forward_bytes.resize(static_cast<std::size_t>(members));
  result.backward_bytes.resize(static_cast<std::size_t>(members));
  result.memory.resize(static_cast<std::size_t>(members));
  result.unused.resize(static_cast<std::size_t>(members));
  std::vector<int> agree(static_cast<std::size_t>(members), 0);
  std::vector<double> dk_sums(result.dk.size()), dv_sums(result.dv.size());
  result.dk_rounding.assign(result.dk.size(), 0);
  result.dv_rounding.assign(result.dv.size(), 0);
  std::mutex sums;

  std::vector<int> ranks = p.ranks;
  if (ranks.empty())
    for (int r = 0; r < members; ++r) ranks.push_back(r);
  threads::options world_options{.ranks = p.world ? p.world : members};
  if (p.adversary) world_options.adversary = *p.adversary;

  engine.run(world_options, [&](typename Engine::transport world) {
    if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return;
    flight_record record(world.rank(), world.size(), 16);
    const mesh team(traced(world, record), p.team, ranks);
    const int me = team.index();
    auto plan = plan_attention<T>(team, p.q_layout, p.kv_layout, mask, n, p.options, kernel);
    const index_t rows = plan.q_rows(), keys = plan.kv_rows();
    auto&& site = engine.site(world);
    guarded_memory memory(plan.memory(), site.memory);

    // Global row of every local one; a joint row is its own index in the joint tensor.
    const auto q_global = [&](index_t i) {
      return detail::dealt_offset(n.joint_q, n.joint_at) + p.q_layout.global_of(me, i);
    };
    const auto k_global = [&](index_t i) {
      return detail::dealt_offset(n.joint_kv, n.joint_at) + p.kv_layout.global_of(me, i);
    };
    const auto q_joint = [&](index_t i) { return detail::joint_offset(p.q_layout.token_count(), n.joint_at) + i; };
    const auto k_joint = [&](index_t i) { return detail::joint_offset(p.kv_layout.token_count(), n.joint_at) + i; };
    const auto load = [](auto view, const std::vector<float>& from, index_t tokens, auto&& global) {
      using E = std::remove_pointer_t<decltype(view.pointer)>;
      for (index_t b = 0; b < view.batch(); ++b)
        for (index_t t = 0; t < view.tokens(); ++t)
          for (index_t h = 0; h < view.heads(); ++h)
            for (index_t e = 0; e < view.dim(); ++e)
              view.row(b, t, h)[e] =
                  E(from[static_cast<std::size_t>(((b * tokens + global(t)) * view.heads() + h) * view.dim() + e)]);
    };
    const auto store = [&](auto view, auto& to, index_t tokens, auto&& global, bool replica) {
      for (index_t b = 0; b < view.batch(); ++b)
        for (index_t t = 0; t < view.tokens(); ++t)
          for (index_t h = 0; h < view.heads(); ++h)
            for (index_t e = 0; e < view.dim(); ++e) {
              auto& x = to[static_cast<std::size_t>(((b * tokens + global(t)) * view.heads() + h) * view.dim() + e)];
              const auto y = view.row(b, t, h)[e];
              if (!replica || me == 0) x = y;
            }
    };
    const std::array<index_t, 4> qs{n.batch, rows, n.heads, n.head_dim}, ks{n.batch, keys, n.kv_heads, n.head_dim},
        vs{n.batch, keys, n.kv_heads, n.v_dim()}, os{n.batch, rows, n.heads, n.v_dim()};
    const std::array<index_t, 4> jqs{n.batch, n.joint_q, n.heads, n.head_dim},
        jks{n.batch, n.joint_kv, n.kv_heads, n.head_dim}, jvs{n.batch, n.joint_kv, n.kv_heads, n.v_dim()},
        jos{n.batch, n.joint_q, n.heads, n.v_dim()};
    const auto make = [&](std::array<index_t, 4> shape) { return rank_tensor<T>(shape, p.memory, nan, site.memory); };
    auto q = make(qs), k = make(ks), v = make(vs), out = make(os), dout = make(os), dq = make(qs), dk = make(ks),
         dv = make(vs);
    auto jq = make(jqs), jk = make(jks), jv = make(jvs), jout = make(jos), jdout = make(jos), jdq = make(jqs),
         jdk = make(jks), jdv = make(jvs);
    load(q.view(), in.q, d.q_tokens, q_global);
    load(k.view(), in.k, d.k_tokens, k_global);
    load(v.view(), in.v, d.k_tokens, k_global);
    load(dout.view(), in.dout, d.q_tokens, q_global);
    load(jq.view(), in.q, d.q_tokens, q_joint);
    load(jk.view(), in.k, d.k_tokens, k_joint);
    load(jv.view(), in.v, d.k_tokens, k_joint);
    load(jdout.view(), in.dout, d.q_tokens, q_joint);
    if (p.options.gradients == write::add) {
      const auto prior = [&](auto& dealt, auto& joint, const std::vector<float>& from, index_t size, index_t tokens,
                             auto&& global, auto&& joint_row) {
        const std::vector<float> zeros(from.empty() ? static_cast<std::size_t>(size) : 0);
        load(dealt.view(), from.empty() ? zeros : from, tokens, global);
        load(joint.view(), from.empty() ? zeros : from, tokens, joint_row);
      };
      prior(dq, jdq, in.dq, d.q_size(), d.q_tokens, q_global, q_joint);
      prior(dk, jdk, in.dk, d.k_size(), d.k_tokens, k_global, k_joint);
      prior(dv, jdv, in.dv, d.v_size(), d.k_tokens, k_global, k_joint);
    }
    const bool token_major = p.memory == strides::heads_first;  // the other order of lse, to see that strides count
    const auto numbers = [&](std::pmr::vector<float>& data, index_t tokens) -> heads_view<float> {
      data.assign(static_cast<std::size_t>(n.batch * n.heads * tokens + 1), std::numeric_limits<float>::quiet_NaN());
      if (token_major) return {data.data(), {n.batch, n.heads, tokens}, {n.heads * tokens, 1, n.heads}};
      return dense_heads(data.data(), {n.batch, n.heads, tokens});
    };
    std::pmr::vector<float> lse_data(site.memory), jlse_data(site.memory), dlse_data(site.memory),
        jdlse_data(site.memory);
    const heads_view<float> lse = numbers(lse_data, rows), jlse = numbers(jlse_data, n.joint_q);
    heads_view<float> dlse{}, jdlse{};
    if (!in.dlse.empty()) {
      dlse = numbers(dlse_data, rows);
      jdlse = numbers(jdlse_data, n.joint_q);
      for (index_t b = 0; b < n.batch; ++b)
        for (index_t h = 0; h < n.heads; ++h) {
          for (index_t t = 0; t < rows; ++t)
            dlse.at(b, h, t) = in.dlse[static_cast<std::size_t>((b * n.heads + h) * d.q_tokens + q_global(t))];
          for (index_t t = 0; t < n.joint_q; ++t)
            jdlse.at(b, h, t) = in.dlse[static_cast<std::size_t>((b * n.heads + h) * d.q_tokens + q_joint(t))];
        }
    }

    const forward_arguments<T> forward{
        .q = q.view(),
        .k = k.view(),
        .v = v.view(),
        .out = out.view(),
        .lse = lse,
        .joint = {.q = jq.view(), .k = jk.view(), .v = jv.view(), .out = jout.view(), .lse = jlse}};
    plan.prepare(memory, site.exec, forward);
    const index_t before = record.bytes(direction::send);
    check(plan.forward(forward, memory, site.exec));
    const index_t middle = record.bytes(direction::send);
    if (p.options.passes == forward_backward)
      check(plan.backward({.q = q.view(),
                           .k = k.view(),
                           .v = v.view(),
                           .out = out.view(),
                           .lse = lse,
                           .dout = dout.view(),
                           .dlse = dlse,
                           .dq = dq.view(),
                           .dk = dk.view(),
                           .dv = dv.view(),
                           .joint = {.q = jq.view(),
                                     .k = jk.view(),
                                     .v = jv.view(),
                                     .out = jout.view(),
                                     .lse = jlse,
                                     .dout = jdout.view(),
                                     .dlse = jdlse,
                                     .dq = jdq.view(),
                                     .dk = jdk.view(),
                                     .dv = jdv.view()}},
                          memory, site.exec));
    site.settle();
    const auto m = static_cast<std::size_t>(me);
    result.forward_bytes[m] = middle - before;
    result.backward_bytes[m] = record.bytes(direction::send) - middle;
    result.memory[m] = plan.memory();
    result.unused[m] = memory.unused();
    if (!memory.intact()) raise(error(errc::invalid_argument, "test: a region of memory was written outside its size"));
    for (const auto* x : {&q, &k, &v, &out, &dout, &dq, &dk, &dv, &jq, &jk, &jv, &jout, &jdout, &jdq, &jdk, &jdv})
      if (!x->surroundings_untouched())
        raise(error(errc::invalid_argument, "test: memory around a tensor was written"));

    store(out.view(), result.out, d.q_tokens, q_global, false);
    store(dq.view(), result.dq, d.q_tokens, q_global, false);
    store(dk.view(), result.dk, d.k_tokens, k_global, false);
    store(dv.view(), result.dv, d.k_tokens, k_global, false);
    store(jout.view(), result.out, d.q_tokens, q_joint, true);
    store(jdq.view(), result.dq, d.q_tokens, q_joint, true);
    if (p.options.joint_gradient == joint_gradient::complete) {
      store(jdk.view(), result.dk, d.k_tokens, k_joint, true);
      store(jdv.view(), result.dv, d.k_tokens, k_joint, true);
    } else if (p.options.passes == forward_backward) {
      const std::lock_guard lock(sums);
      const auto sum = [&](auto view, std::vector<T>& to, std::vector<double>& total, std::vector<double>& rounding) {
        for (index_t b = 0; b < view.batch(); ++b)
          for (index_t t = 0; t < view.tokens(); ++t)
            for (index_t h = 0; h < view.heads(); ++h)
              for (index_t e = 0; e < view.dim(); ++e) {
                const auto i =
                    static_cast<std::size_t>(((b * d.k_tokens + k_joint(t)) * view.heads() + h) * view.dim() + e);
                const auto x = static_cast<double>(view.row(b, t, h)[e]);
                to[i] = T(static_cast<float>(total[i] += x));
                rounding[i] += std::abs(x) * roundoff<T>;
              }
      };
      sum(jdk.view(), result.dk, dk_sums, result.dk_rounding);
      sum(jdv.view(), result.dv, dv_sums, result.dv_rounding);
    }
    for (index_t b = 0; b < n.batch; ++b)
      for (index_t h = 0; h < n.heads; ++h) {
        for (index_t t = 0; t < rows; ++t)
          result.lse[static_cast<std::size_t>((b * n.heads + h) * d.q_tokens + q_global(t))] = lse.at(b, h, t);
        if (me == 0)
          for (index_t t = 0; t < n.joint_q; ++t)
            result.lse[static_cast<std::size_t>((b * n.heads + h) * d.q_tokens + q_joint(t))] = jlse.at(b, h, t);
      }
    // Replicated results must be the same bits everywhere: hash them and compare through a second exchange of hashes.
    std::uint64_t hash = 1469598103934665603u;
    const auto mix = [&](auto view) {
      for (index_t b = 0; b < view.batch(); ++b)
        for (index_t t = 0; t < view.tokens(); ++t)
          for (index_t h = 0; h < view.heads(); ++h)
            for (index_t e = 0; e < view.dim(); ++e) {
              std::uint32_t bits = 0;
              std::memcpy(&bits, view.row(b, t, h) + e, sizeof(T));
              hash = (hash ^ bits) * 1099511628211u;
            }
    };
    mix(jout.view());
    if (p.options.passes == forward_backward && p.options.joint_gradient == joint_gradient::complete) {
      mix(jdq.view());
      mix(jdk.view());
      mix(jdv.view());
    }
    static_assert(sizeof(hash) == 8);
    auto group = world.group();
    group.reserve(members, members);
    std::vector<std::uint64_t> hashes(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (static_cast<int>(r) == me) continue;
      group.send(dense_block(&hash, 8), ranks[r]);
      group.recv(dense_block(&hashes[r], 8), ranks[r]);
    }
    check(world.launch(group, on_host{}));
    check(world.wait(group, on_host{}));
    agree[m] = 1;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (static_cast<int>(r) != me && hashes[r] != hash) agree[m] = 0;
  });
  for (std::vector<T>* x : {&result.out, &result.dq, &result.dk, &result.dv}) engine.combine(*x, nan);
  engine.combine(result.lse, std::numeric_limits<float>::quiet_NaN());
  engine.combine(result.forward_bytes, index_t{0});
  engine.combine(result.backward_bytes, index_t{0});
  engine.combine(agree, 0);
  result.replicas_agree = std::count(agree.begin(), agree.end(), 1) == members;
  return result;
}

template <class T, class Kernel, class Engine>
outcome<T> run_problem_on(const Engine& engine, const problem& p, const tensors& in, Kernel kernel = {}) {
  return run_problem_on<T>(engine, p, in, kernel, p.mask);
}

/// On thread ranks.
template <class T, class Kernel = host_fast>
outcome<T> run_problem(const problem& p, const tensors& in, Kernel kernel = {}) {
  return run_problem_on<T>(on_threads{}, p, in, kernel);
}

/// The definition, on inputs rounded to T first. Masks see global positions, joint tokens included.
template <class T>
dense_result definition(const problem& p, const tensors& in) {
  const dense_shape d = dense_shape_of(p);
  const any_mask mask = seqpar::bound(p.mask, d.q_tokens, d.k_tokens);
  const double scale = p.options.scale ? static_cast<double>(*p.options.scale) : default_scale;
  dense_result want =
      dense_attention(d, {scale, std::same_as<T, float> ? 0.0 : roundoff<T>}, rounded<T>(in.q), rounded<T>(in.k),
                      rounded<T>(in.v), p.options.passes == forward_backward ? rounded<T>(in.dout) : std::vector<T>(),
                      in.dlse, [&](index_t q, index_t k) { return mask.allows(q, k); });
  if (p.options.passes == forward_only) return want;
  if (in.dout.empty()) {  // no queries: keys and values have gradients, and they are zero
    want.dk = want.dk_magnitude = std::vector<double>(static_cast<std::size_t>(d.k_size()));
    want.dv = want.dv_magnitude = std::vector<double>(static_cast<std::size_t>(d.v_size()));
  }
  if (p.options.gradients == write::assign) return want;
  // dq is rounded to T on its way home and again when added. Partial joint sums hold what was there once a rank.
  const index_t first = detail::joint_offset(p.kv_layout.token_count(), p.shape.joint_at);
  const interval joint{first, first + p.shape.joint_kv};
  const auto ranks = static_cast<double>(p.team.ring * p.team.all_to_all);
  const auto add = [&](std::vector<double>& value, std::vector<double>& magnitude, const std::vector<float>& prior,
                       index_t row_size, bool keys) {
    for (std::size_t i = 0; i < prior.size(); ++i) {
      const bool shared = keys && joint.contains(static_cast<index_t>(i) / row_size % d.k_tokens) &&
                          p.options.joint_gradient == joint_gradient::partial;
      const double there = static_cast<double>(T(prior[i])) * (shared ? ranks : 1.0);
      magnitude[i] += std::abs(there) + std::abs(value[i]) * roundoff<T> / (roundings * 0x1p-24);
      value[i] += there;
    }
  };
  add(want.dq, want.dq_magnitude, in.dq, d.heads * d.qk_dim, false);
  add(want.dk, want.dk_magnitude, in.dk, d.kv_heads * d.qk_dim, true);
  add(want.dv, want.dv_magnitude, in.dv, d.kv_heads * d.v_dim, true);
  return want;
}

/// Does every query of the problem see two intervals of keys at most?
inline bool fits_in_intervals(const problem& p) {
  const index_t q_tokens = p.q_layout.token_count() + p.shape.joint_q;
  const any_mask mask = seqpar::bound(p.mask, q_tokens, p.kv_layout.token_count() + p.shape.joint_kv);
  for (index_t q = 0; q < q_tokens; ++q)
    if (!try_key_intervals(mask, q)) return false;
  return true;
}

/// The bytes that each member must send in the two passes when every wanted entry that another member holds moves once
/// (pass_along: once over every link on its way): counted entry by entry from the layouts, the mask and the heads,
/// without looking at the library's routes.
struct byte_count {
  index_t forward = 0, backward = 0;
};
template <class T>
std::vector<byte_count> wanted_bytes(const problem& p) {
  const attention_shape& n = p.shape;
  const dense_shape d = dense_shape_of(p);
  const any_mask mask = seqpar::bound(p.mask, d.q_tokens, d.k_tokens);
  const int R = static_cast<int>(p.team.ring), U = static_cast<int>(p.team.all_to_all), P = R * U;
  const bool inside = p.team.inside == axis::all_to_all;
  const auto ring_of = [&](int m) { return inside ? m / U : m % R; };
  const auto group_of = [&](int m) { return inside ? m % U : m / R; };
  const auto share = [](index_t count, index_t parts, index_t i) {
    return interval{i * (count / parts) + std::min(i, count % parts),
                    (i + 1) * (count / parts) + std::min(i + 1, count % parts)};
  };
  const auto heads = [&](int m) { return share(n.heads, U, group_of(m)); };
  const auto kv_heads = [&](int m) {
    std::set<index_t> used;
    for (index_t h = heads(m).lo; h < heads(m).hi; ++h) used.insert(h / (n.heads / n.kv_heads));
    return static_cast<index_t>(used.size());
  };
  const auto q_position = [&](index_t t) { return detail::dealt_offset(n.joint_q, n.joint_at) + t; };
  const auto k_position = [&](index_t t) { return detail::dealt_offset(n.joint_kv, n.joint_at) + t; };
  // queries of each ring index: those of its members, and its share of the joint ones
  std::vector<std::vector<index_t>> queries(static_cast<std::size_t>(R)), keys(static_cast<std::size_t>(R));
  for (int m = 0; m < P; ++m) {
    for (index_t i = 0; i < p.q_layout.count_of(m); ++i)
      queries[static_cast<std::size_t>(ring_of(m))].push_back(q_position(p.q_layout.global_of(m, i)));
    for (index_t i = 0; i < p.kv_layout.count_of(m); ++i)
      keys[static_cast<std::size_t>(ring_of(m))].push_back(k_position(p.kv_layout.global_of(m, i)));
  }
  for (int r = 0; r < R; ++r) {
    const interval mine = share(n.joint_q, R, r);
    for (index_t j = mine.lo; j < mine.hi; ++j)
      queries[static_cast<std::size_t>(r)].push_back(detail::joint_offset(p.q_layout.token_count(), n.joint_at) + j);
  }
  // keys_sent[r][s]: keys of ring index s that r sends to another; sums_sent[r][s]: of whose gradients r sends sums.
  // direct, all_gather: the owner sends to each who may see the key, each of those sends its gradient straight back.
  // pass_along: the key goes from neighbour to neighbour to the farthest who may see it, the sum from the nearest home.
  // double_ring: as direct inside a window; another window has one who gets the key for it, and the gradients back.
  using counts = std::vector<std::vector<index_t>>;
  const counts zeros(static_cast<std::size_t>(R), std::vector<index_t>(static_cast<std::size_t>(R)));
  counts keys_sent = zeros, sums_sent = zeros;
  for (int s = 0; s < R; ++s)
    for (index_t k : keys[static_cast<std::size_t>(s)]) {
      int nearest = R, farthest = 0;
      std::set<int> agents;
      for (int distance = 1; distance < R; ++distance) {
        const auto r = static_cast<std::size_t>((s + distance) % R);
        bool seen = false;
        for (index_t q : queries[r]) seen = seen || mask.sends(q, k);
        if (!seen) continue;
        nearest = std::min(nearest, distance);
        farthest = distance;
        if (p.options.schedule == schedule::pass_along) continue;
        if (const int w = static_cast<int>(p.options.window);
            p.options.schedule == schedule::double_ring && static_cast<int>(r) / w != s / w) {
          const int agent = static_cast<int>(r) / w * w + s % w;
          if (agents.insert(agent).second) {
            ++keys_sent[static_cast<std::size_t>(s)][static_cast<std::size_t>(s)];
            ++sums_sent[static_cast<std::size_t>(agent)][static_cast<std::size_t>(s)];
          }
          if (agent == static_cast<int>(r)) continue;
          ++keys_sent[static_cast<std::size_t>(agent)][static_cast<std::size_t>(s)];
          ++sums_sent[r][static_cast<std::size_t>(s)];
          continue;
        }
        ++keys_sent[static_cast<std::size_t>(s)][static_cast<std::size_t>(s)];
        ++sums_sent[r][static_cast<std::size_t>(s)];
      }
      if (p.options.schedule != schedule::pass_along || farthest == 0) continue;
      for (int distance = 0; distance < R; ++distance) {
        const auto r = static_cast<std::size_t>((s + distance) % R);
        keys_sent[r][static_cast<std::size_t>(s)] += distance < farthest;
        sums_sent[r][static_cast<std::size_t>(s)] += distance >= nearest;
      }
    }

  // queries_sent[r][s]: queries of ring index r that visit the keys of s, since one of these must meet them.
  counts queries_sent = zeros;
  for (std::size_t r = 0; r < queries.size(); ++r)
    for (std::size_t s = 0; s < keys.size(); ++s)
      for (index_t q : queries[r])
        queries_sent[r][s] +=
            r != s && std::any_of(keys[s].begin(), keys[s].end(), [&](index_t k) { return mask.sends(q, k); });

  const index_t size = static_cast<index_t>(sizeof(T)), D = n.head_dim, V = n.v_dim(), B = n.batch;
  const bool resend = p.options.reuse == reuse::resend;
  // Either side along the ring, there and back, by member.
  std::vector<byte_count> by_keys(static_cast<std::size_t>(P)), by_queries = by_keys;
  const index_t sight = fits_in_intervals(p) ? 16 : 4;  // two intervals of keys, or a position
  for (int m = 0; m < P; ++m) {
    const auto r = static_cast<std::size_t>(ring_of(m));
    const auto sum = [&](auto&& count_of) {
      index_t rows = 0;
      for (std::size_t s = 0; s < keys.size(); ++s) rows += count_of(s);
      return rows;
    };
    const index_t keys_out = sum([&](std::size_t s) { return keys_sent[r][s]; }) * kv_heads(m),
                  sums_out = sum([&](std::size_t s) { return sums_sent[r][s]; }) * kv_heads(m),
                  rows_out = sum([&](std::size_t s) { return queries_sent[r][s]; }),
                  visitors = sum([&](std::size_t s) { return queries_sent[s][r]; }) * heads(m).size();
    // keys to those whose queries see them, their gradients back
    by_keys[static_cast<std::size_t>(m)] = {B * keys_out * (D + V) * size,
                                            B * (keys_out * (D + V) * (resend ? size : 0) + sums_out * (D + V) * 4)};
    // queries to those whose keys they see, and what each row may see; states or dq back
    const index_t queries_out = rows_out * heads(m).size(), sights = heads(m).empty() ? 0 : rows_out * sight;
    by_queries[static_cast<std::size_t>(m)] = {B * (queries_out * D * size + visitors * (V + 2) * 4) + sights,
                                               B * (queries_out * ((D + V) * size + 8) + visitors * D * 4) + sights};
  }
  const auto along_ring = [&](side asked, index_t byte_count::*pass) -> const std::vector<byte_count>& {
    index_t keys_bytes = 0, query_bytes = 0;
    for (const byte_count& c : by_keys) keys_bytes += c.*pass;
    for (const byte_count& c : by_queries) query_bytes += c.*pass;
    const bool may =
        p.options.schedule == schedule::direct && resend && p.options.capacity.tokens_per_rank == 0 && n.joint_q == 0;
    return may && (asked == side::queries || (asked == side::cheaper && query_bytes < keys_bytes)) ? by_queries
                                                                                                   : by_keys;
  };
  const std::vector<byte_count>&forward = along_ring(p.options.moves.forward, &byte_count::forward),
        &backward = along_ring(p.options.moves.backward, &byte_count::backward);
  std::vector<byte_count> all(static_cast<std::size_t>(P));
  for (int m = 0; m < P; ++m) {
    byte_count& c = all[static_cast<std::size_t>(m)];
    const index_t rows = p.q_layout.count_of(m), kv = p.kv_layout.count_of(m);
    for (int o = 0; o < P; ++o) {
      if (o == m) continue;
      if (ring_of(o) == ring_of(m)) {  // heads: my rows to the one that attends for those heads, and results back
        const index_t q_in = rows * heads(o).size(), kv_in = kv * kv_heads(o),
                      back = p.q_layout.count_of(o) * heads(m).size();
        c.forward += (q_in * D + kv_in * (D + V)) * size + back * (V * size + 4);
        if (resend) c.backward += (q_in * D + kv_in * (D + V)) * size;
        c.backward += q_in * (V * size + 8);                                // dout, lse, delta
        c.backward += back * D * size;                                      // dq
        c.backward += p.kv_layout.count_of(o) * kv_heads(m) * (D + V) * 4;  // dk, dv in fp32
      }
      // joint tokens: results of my share to everybody; my gradients to the slices' owners, finished slices to
      // everybody
      const index_t results = share(n.joint_q, R, ring_of(m)).size() * heads(m).size();
      c.forward += results * (V * size + 4);
      c.backward += results * D * size;
      if (p.options.joint_gradient == joint_gradient::partial) continue;
      c.backward += share(n.joint_kv, P, o).size() * kv_heads(m) * (D + V) * 4;
      c.backward += share(n.joint_kv, P, m).size() * n.kv_heads * (D + V) * 4;
    }
    c.forward = B * c.forward + forward[static_cast<std::size_t>(m)].forward;
    c.backward = B * c.backward + backward[static_cast<std::size_t>(m)].backward;
  }
  return all;
}

/// The first thing that two outcomes differ in, or "".
template <class T>
std::string difference(const outcome<T>& a, const outcome<T>& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0);
  };
  if (!same(a.out, b.out)) return "out";
  if (!same(a.lse, b.lse)) return "lse";
  if (!same(a.dq, b.dq)) return "dq";
  if (!same(a.dk, b.dk)) return "dk";
  if (!same(a.dv, b.dv)) return "dv";
  if (a.forward_bytes != b.forward_bytes || a.backward_bytes != b.backward_bytes) return "bytes sent";
  if (a.replicas_agree != b.replicas_agree) return "replicas";
  return "";
}

/// The first thing that is wrong with an outcome, or "": values element by element, replicas, bytes.
/// `products`: how often a kernel rounds the terms of its sums to T.
template <class T>
std::string fault_of(const problem& p, const outcome<T>& got, dense_result want, double products = 0) {
  for (auto* magnitude : {&want.out_magnitude, &want.dq_magnitude, &want.dk_magnitude, &want.dv_magnitude})
    for (double& m : *magnitude) m *= 1 + products * roundoff<T> / (roundings * 0x1p-24);
  const auto tell = [](const char* name, const verdict& v) {
    std::ostringstream text;
    text << name << ": " << v;
    return text.str();
  };
  if (const verdict v = compare(got.out, want.out, want.out_magnitude); !v) return tell("out", v);
  if (const verdict v = compare(got.lse, want.lse, want.lse_magnitude); !v) return tell("lse", v);
  if (p.options.passes == forward_backward) {
    if (const verdict v = compare(got.dq, want.dq, want.dq_magnitude); !v) return tell("dq", v);
    const auto with_rounding = [](std::vector<double> magnitude, const std::vector<double>& rounding) {
      for (std::size_t i = 0; i < rounding.size(); ++i) magnitude[i] += rounding[i] / (roundings * 0x1p-24);
      return magnitude;
    };
    if (const verdict v = compare(got.dk, want.dk, with_rounding(want.dk_magnitude, got.dk_rounding)); !v)
      return tell("dk", v);
    if (const verdict v = compare(got.dv, want.dv, with_rounding(want.dv_magnitude, got.dv_rounding)); !v)
      return tell("dv", v);
  }
  if (!got.replicas_agree) return "replicated results differ between ranks";
  const std::vector<byte_count> bytes = wanted_bytes<T>(p);
  for (std::size_t m = 0; m < bytes.size(); ++m) {
    if (got.forward_bytes[m] != bytes[m].forward)
      return "rank " + std::to_string(m) + " sent " + std::to_string(got.forward_bytes[m]) +
             " bytes forward, wanted are " + std::to_string(bytes[m].forward);
    if (p.options.passes == forward_backward && got.backward_bytes[m] != bytes[m].backward)
      return "rank " + std::to_string(m) + " sent " + std::to_string(got.backward_bytes[m]) +
             " bytes backward, wanted are " + std::to_string(bytes[m].backward);
  }
  return "";
}

}  // namespace seqpar::test
