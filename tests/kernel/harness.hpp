// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a block kernel on rows dealt out in any order, with any strides, and gives the results in natural order.
#pragma once

// g++ warns of returning vectors that the processor lacks; none cross a translation unit here.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>

#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <seqpar/kernel/tables.hpp>
#include <seqpar/memory.hpp>
#include <tests/support/dense.hpp>
#include <tests/support/recipe.hpp>
#include <tests/support/tolerance.hpp>

/// The kernels that every kernel test is run with. Vectors that the processor lacks are put together from what it has:
/// slow, but the same lines of code.
#define EVERY_KERNEL                                                                          \
  seqpar::host_reference<float>, seqpar::host_reference<double>, seqpar::basic_host_fast<16>, \
      seqpar::basic_host_fast<64>

namespace seqpar::test {

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// A buffer of exactly `bytes`, full of NaN: one byte more, or a byte read before it is written, shows.
class exact_space {
 public:
  explicit exact_space(index_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), p_(::operator new (bytes_, std::align_val_t{64})) {
    std::memset(p_, 0xff, bytes_);
  }
  exact_space(const exact_space&) = delete;
  exact_space& operator=(const exact_space&) = delete;
  ~exact_space() { ::operator delete (p_, std::align_val_t{64}); }
  void* get() const { return p_; }

 private:
  std::size_t bytes_;
  void* p_;
};

/// Which order the dimensions lie in, and how many elements (NaN) lie between rows.
struct striding {
  bool heads_first = false;
  index_t gap = 0;
};

/// A tensor whose buffer ends exactly with its last element.
template <class T>
struct tensor {
  tensor(std::array<index_t, 4> shape, striding s) {
    const index_t pitch = shape[3] + s.gap;
    if (s.heads_first)
      view = {nullptr, shape, {shape[2] * shape[1] * pitch, pitch, shape[1] * pitch, 1}};
    else
      view = {nullptr, shape, {shape[1] * shape[2] * pitch, shape[2] * pitch, pitch, 1}};
    const bool none = shape[0] * shape[1] * shape[2] == 0;
    const index_t size = none ? 0 : view.offset(shape[0] - 1, shape[1] - 1, shape[2] - 1) + shape[3];
    data = std::make_unique<T[]>(static_cast<std::size_t>(size));
    std::fill(data.get(), data.get() + size, T(not_a_number));
    view.pointer = data.get();
  }
  std::unique_ptr<T[]> data;
  rows_view<T> view;
};

using runs = std::vector<run>;

/// A call in natural order: inputs [batch][tokens][heads][dim] by position.
template <class T>
struct inputs {
  dense_shape n;
  double scale = default_scale;
  std::vector<T> q, k, v, dout;
  std::vector<float> dlse{};
  float scale_used() const {
    return static_cast<float>(std::isnan(scale) ? 1 / std::sqrt(static_cast<double>(n.qk_dim)) : scale);
  }
};

template <class T = float>
inputs<T> recipe_inputs(const dense_shape& n, double scale = default_scale) {
  return {n,
          scale,
          filled<T>(tag::q, n.q_size()),
          filled<T>(tag::k, n.k_size()),
          filled<T>(tag::v, n.v_size()),
          filled<T>(tag::dout, n.out_size())};
}

/// How the rows are dealt to the call: query rows, and the key rows of each segment; segments [0, cuts[0]) are one
/// call, [cuts[0], cuts[1]) the next, …, the state carried. No cuts: one call with everything.
struct dealing {
  runs queries;
  std::vector<runs> segments;
  std::vector<std::size_t> cuts{};
  striding strides{};
};

inline dealing in_order(const dense_shape& n) {
  return {{{0, n.q_tokens, 1}}, {{{0, n.k_tokens, 1}}}};
}

template <class Out>
struct outputs {
  std::vector<Out> out;
  std::vector<float> lse, dq, dk, dv;
};

/// A mask given by intervals_of(position) → interval_pair, as tables.
struct interval_form {
  std::function<interval_pair(index_t)> intervals_of;
  bool allows(index_t q, index_t k) const { return intervals_of(q).contains(k); }
};

/// A mask given by allows(q, k) alone.
struct functor_form {
  std::function<bool(index_t, index_t)> f;
  bool allows(index_t q, index_t k) const { return f(q, k); }
};

inline interval_form full_mask() {
  return interval_form{[](index_t) { return make_intervals({0, unbounded}); }};
}
inline interval_form causal_mask(index_t shift = 0, index_t left = unbounded) {
  return interval_form{[=](index_t q) { return make_intervals({q + shift - left, q + shift + 1}); }};
}

/// The rows that `rows` name, in their order, out of natural order; then back.
template <class T>
void deal(const std::vector<T>& natural, index_t tokens, const runs& rows, const rows_view<T>& to) {
  for (index_t b = 0, heads = to.heads(), dim = to.dim(); b < to.batch(); ++b) {
    index_t i = 0;
    for (const run& r : rows)
      for (index_t j = 0; j < r.count; ++j, ++i)
        for (index_t h = 0; h < heads; ++h)
          std::copy_n(natural.begin() + ((b * tokens + r.at(j)) * heads + h) * dim, dim, to.row(b, i, h));
  }
}
template <class T>
void undeal(const rows_view<T>& from, const runs& rows, index_t tokens, std::vector<std::remove_const_t<T>>& natural) {
  for (index_t b = 0, heads = from.heads(), dim = from.dim(); b < from.batch(); ++b) {
    index_t i = 0;
    for (const run& r : rows)
      for (index_t j = 0; j < r.count; ++j, ++i)
        for (index_t h = 0; h < heads; ++h)
          std::copy_n(from.row(b, i, h), dim, natural.begin() + ((b * tokens + r.at(j)) * heads + h) * dim);
  }
}
inline index_t rows_of(const runs& rows) {
  return std::accumulate(rows.begin(), rows.end(), index_t{0}, [](index_t n, const run& r) { return n + r.count; });
}

/// Forward, then backward with the kernel's own lse and the delta given (natural order; empty: forward only).
template <class Kernel, class Out, class T, class M>
outputs<Out> run_kernel(const inputs<T>& in, const dealing& deal_out, const M& mask,
                        const std::vector<double>& delta = {}) {
  const dense_shape& n = in.n;
  const index_t q_rows = rows_of(deal_out.queries);
  const striding strides = deal_out.strides;
  tensor<T> q({n.batch, q_rows, n.heads, n.qk_dim}, strides), dout({n.batch, q_rows, n.heads, n.v_dim}, strides);
  tensor<Out> out({n.batch, q_rows, n.heads, n.v_dim}, strides);
  deal(in.q, n.q_tokens, deal_out.queries, q.view);
  deal(in.dout, n.q_tokens, deal_out.queries, dout.view);
  query_rows queries;
  if constexpr (std::is_same_v<M, interval_form>)
    queries = lower_intervals(deal_out.queries, mask.intervals_of, n.k_tokens, Kernel::query_tile_rows);
  else
    queries = lower_positions(deal_out.queries, Kernel::query_tile_rows);

  std::vector<tensor<T>> k, v;
  std::vector<tensor<float>> dk, dv;
  std::vector<key_rows> keys;
  for (const runs& rows : deal_out.segments) {
    const index_t count = rows_of(rows);
    k.emplace_back(std::array<index_t, 4>{n.batch, count, n.kv_heads, n.qk_dim}, strides);
    v.emplace_back(std::array<index_t, 4>{n.batch, count, n.kv_heads, n.v_dim}, strides);
    dk.emplace_back(std::array<index_t, 4>{n.batch, count, n.kv_heads, n.qk_dim}, strides);
    dv.emplace_back(std::array<index_t, 4>{n.batch, count, n.kv_heads, n.v_dim}, strides);
    deal(in.k, n.k_tokens, rows, k.back().view);
    deal(in.v, n.k_tokens, rows, v.back().view);
    deal(std::vector<float>(static_cast<std::size_t>(n.k_size())), n.k_tokens, rows, dk.back().view);
    deal(std::vector<float>(static_cast<std::size_t>(n.v_size())), n.k_tokens, rows, dv.back().view);
    keys.push_back(lower_keys(rows, queries, Kernel::key_tile_rows));
  }
  std::vector<kv_segment<T>> segments;
  for (std::size_t i = 0; i < keys.size(); ++i)
    segments.push_back({k[i].view, v[i].view, keys[i].table(), dk[i].view, dv[i].view});

  // lse and delta are strided: two numbers apart, NaN between.
  const std::array<index_t, 3> lse_shape{n.batch, n.heads, q_rows}, lse_stride{n.heads * q_rows * 2, q_rows * 2, 2};
  std::vector<float> lse(static_cast<std::size_t>(n.batch * n.heads * q_rows * 2), not_a_number), delta_rows(lse);
  std::vector<float> acc(static_cast<std::size_t>(n.batch * n.heads * q_rows * n.v_dim), not_a_number);
  std::vector<float> max(static_cast<std::size_t>(n.batch * n.heads * q_rows), not_a_number), sum(max);
  const auto call_forward = [&](std::size_t first, std::size_t last, bool is_first, bool is_last) {
    const exact_space workspace(Kernel::workspace_bytes(n.qk_dim, n.v_dim));
    forward_call<T, Out> call;
    call.q = q.view;
    call.queries = queries.table();
    call.segments = std::span<const kv_segment<T>>(segments).subspan(first, last - first);
    call.heads = {0, 0, n.heads / n.kv_heads};
    call.scale = in.scale_used();
    call.in = is_first ? state_in::none : state_in::carry;
    call.out_kind = is_last ? state_out::final : state_out::carry;
    call.state = {acc.data(), max.data(), sum.data()};
    call.out = out.view;
    call.lse = {lse.data(), lse_shape, lse_stride};
    call.workspace = workspace.get();
    if constexpr (std::is_same_v<M, interval_form>)
      Kernel{}.forward(call, by_intervals{});
    else
      Kernel{}.forward(call, mask);
  };
  std::size_t first = 0;
  for (std::size_t i = 0; i < deal_out.cuts.size(); ++i) {
    call_forward(first, deal_out.cuts[i], i == 0, false);
    first = deal_out.cuts[i];
  }
  call_forward(first, segments.size(), deal_out.cuts.empty(), true);

  const auto natural = [](index_t size) { return std::vector<float>(static_cast<std::size_t>(size)); };
  outputs<Out> result{std::vector<Out>(static_cast<std::size_t>(n.out_size())), natural(n.lse_size()), {}, {}, {}};
  undeal(out.view, deal_out.queries, n.q_tokens, result.out);
  const auto each_lse = [&](auto&& f) {
    for (index_t b = 0; b < n.batch; ++b)
      for (index_t h = 0; h < n.heads; ++h) {
        index_t i = 0;
        for (const run& r : deal_out.queries)
          for (index_t j = 0; j < r.count; ++j, ++i)
            f(static_cast<std::size_t>((b * n.heads + h) * q_rows + i) * 2,
              static_cast<std::size_t>((b * n.heads + h) * n.q_tokens + r.at(j)));
      }
  };
  each_lse([&](std::size_t row, std::size_t global) { result.lse[global] = lse[row]; });
  if (delta.empty()) return result;

  each_lse([&](std::size_t row, std::size_t global) { delta_rows[row] = static_cast<float>(delta[global]); });
  tensor<float> dq({n.batch, q_rows, n.heads, n.qk_dim}, strides);
  deal(natural(n.q_size()), n.q_tokens, deal_out.queries, dq.view);
  const exact_space workspace(Kernel::workspace_bytes(n.qk_dim, n.v_dim));
  backward_call<T> call;
  call.q = q.view;
  call.dout = dout.view;
  call.queries = queries.table();
  call.segments = segments;
  call.heads = {0, 0, n.heads / n.kv_heads};
  call.scale = in.scale_used();
  call.lse = {lse.data(), lse_shape, lse_stride};
  call.delta = {delta_rows.data(), lse_shape, lse_stride};
  call.dq = dq.view;
  call.workspace = workspace.get();
  if constexpr (std::is_same_v<M, interval_form>)
    Kernel{}.backward(call, by_intervals{});
  else
    Kernel{}.backward(call, mask);
  result.dq = natural(n.q_size());
  result.dk = natural(n.k_size());
  result.dv = natural(n.v_size());
  undeal(dq.view, deal_out.queries, n.q_tokens, result.dq);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    undeal(dk[i].view, deal_out.segments[i], n.k_tokens, result.dk);
    undeal(dv[i].view, deal_out.segments[i], n.k_tokens, result.dv);
  }
  return result;
}

#define FOR_EVERY_CALL(f, Kernel)                                                                             \
  f(Kernel, float, float) f(Kernel, float16, float16) f(Kernel, bfloat16, bfloat16) f(Kernel, float, float16) \
      f(Kernel, float, bfloat16)
#define INSTANCE(Kernel, Out, T)                                                                                     \
  template outputs<Out> run_kernel<Kernel, Out, T, interval_form>(const inputs<T>&, const dealing&,                  \
                                                                  const interval_form&, const std::vector<double>&); \
  template outputs<Out> run_kernel<Kernel, Out, T, functor_form>(const inputs<T>&, const dealing&,                   \
                                                                 const functor_form&, const std::vector<double>&);
#define EXTERN_INSTANCE(Kernel, Out, T)                                                    \
  extern template outputs<Out> run_kernel<Kernel, Out, T, interval_form>(                  \
      const inputs<T>&, const dealing&, const interval_form&, const std::vector<double>&); \
  extern template outputs<Out> run_kernel<Kernel, Out, T, functor_form>(                   \
      const inputs<T>&, const dealing&, const functor_form&, const std::vector<double>&);

// Compiled once, in <kernel>_instances_test.cpp.
FOR_EVERY_CALL(EXTERN_INSTANCE, host_reference<float>)
FOR_EVERY_CALL(EXTERN_INSTANCE, host_reference<double>)
FOR_EVERY_CALL(EXTERN_INSTANCE, basic_host_fast<16>)
FOR_EVERY_CALL(EXTERN_INSTANCE, basic_host_fast<64>)

/// Which positions the runs name.
inline std::vector<bool> named(const std::vector<runs>& segments, index_t tokens) {
  std::vector<bool> is(static_cast<std::size_t>(tokens));
  for (const runs& rows : segments)
    for (const run& r : rows)
      for (index_t j = 0; j < r.count; ++j) is[static_cast<std::size_t>(r.at(j))] = true;
  return is;
}

/// The dense answer for the rows that are dealt out.
template <class T, class M>
dense_result dense_of(const inputs<T>& in, const dealing& d, const M& mask) {
  const std::vector<bool> q_named = named({d.queries}, in.n.q_tokens), k_named = named(d.segments, in.n.k_tokens);
  dense_options options{in.scale};
  if (!std::isnan(in.scale)) options.scale = static_cast<double>(in.scale_used());
  return dense_attention(in.n, options, in.q, in.k, in.v, in.dout, in.dlse, [&](index_t q, index_t k) {
    return q_named[static_cast<std::size_t>(q)] && k_named[static_cast<std::size_t>(k)] && mask.allows(q, k);
  });
}

/// Checks every element of a run against the dense answer; a row that was not dealt is not looked at.
template <class Out>
void check_against(const outputs<Out>& got, const dense_result& want) {
  CHECK(compare(got.out, want.out, want.out_magnitude));
  CHECK(compare(got.lse, want.lse, want.lse_magnitude));
  if (got.dq.empty()) return;
  CHECK(compare(got.dq, want.dq, want.dq_magnitude));
  CHECK(compare(got.dk, want.dk, want.dk_magnitude));
  CHECK(compare(got.dv, want.dv, want.dv_magnitude));
}

/// Forward and backward of one kernel against the definition.
template <class Kernel, class Out, class T, class M>
outputs<Out> check_kernel(const inputs<T>& in, const dealing& d, const M& mask) {
  const dense_result want = dense_of(in, d, mask);
  const outputs<Out> got = run_kernel<Kernel, Out>(in, d, mask, want.delta);
  check_against(got, want);
  return got;
}

}  // namespace seqpar::test
