// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The backward bodies on the CPU, against the definition.
//
// The bound of 16-bit bodies: inputs are rounded first; P and dS are rounded to T before the second products, so an
// element may err by the fp32 bound of tolerance.hpp and by roundoff<T>·Σ|p·dout| (dV), roundoff<T>·Σ|ds·q| (dK),
// roundoff<T>·Σ|ds·k| (dQ); and, as fp16 rounds what is below its normal numbers to multiples of 2^-24 (P is held as
// 2^15·p, dS so that the largest is 2^14 or more), by 2^-40·Σ|dout|, 2^-39·max|ds|·Σ|q|, 2^-39·max|ds|·Σ|k|.
#include <cstring>

#include <seqpar/cuda/attend_backward.hpp>
#include <seqpar/cuda/attend_backward_plain.hpp>
#include <seqpar/kernel/transpose.hpp>

#include "tests/cuda_on_cpu/twin.hpp"
#include "tests/kernel/harness.hpp"

namespace {

using namespace seqpar;
using namespace seqpar::test;
using cuda::head_class;

struct three_back {  // a functor mask, as a user may write one
  index_t left;
  SEQPAR_HD bool allows(index_t q, index_t k) const { return k <= q && q - k <= left && (q + k) % 3 != 0; }
};
struct window_2d {  // of rows of `width`: one that compares coordinates
  std::int32_t width, reach;
  struct at {
    std::int32_t y, x;
  };
  SEQPAR_HD at coordinate_of(index_t p) const {
    return {static_cast<std::int32_t>(p) / width, static_cast<std::int32_t>(p) % width};
  }
  SEQPAR_HD bool allows_at(at q, at k) const {
    const auto near = [&](std::int32_t a, std::int32_t b) { return a - b <= reach && b - a <= reach; };
    return near(q.y, k.y) && near(q.x, k.x);
  }
  SEQPAR_HD bool allows(index_t q, index_t k) const { return allows_at(coordinate_of(q), coordinate_of(k)); }
};
static_assert(cuda::coordinate_mask<window_2d>);

/// A problem: the definition's call, how its rows are dealt, and which of its heads the kernel is given.
template <class T>
struct problem {
  inputs<T> in;
  dealing rows;
  index_t first_head = 0, heads = 0;  ///< 0: all
  bool accumulate = false;
  index_t blocks = 3;
  bool sees_all = false;  ///< the tables say that every query sees every key; only lse says otherwise
};

struct gradients {
  std::vector<float> dq, dk, dv;  // in natural order, all heads
  bool untouched_around = true;
  twin::report did;
};

/// A gradient among −0, in its gaps and in rows behind it: whatever is added there, be it 0, shows.
struct gradient : tensor<float> {
  gradient(std::array<index_t, 4> shape, striding s)
      : tensor<float>({shape[0], shape[1] + cuda::query_rows_of_tile, shape[2], shape[3]}, s), all(view) {
    view.shape[1] = shape[1];
    std::fill_n(data.get(), size(), -0.0f);
  }
  std::size_t size() const {
    return static_cast<std::size_t>(all.offset(all.batch() - 1, all.tokens() - 1, all.heads() - 1) + all.dim());
  }
  bool untouched_around() const {
    std::vector<bool> mine(size());
    for (index_t b = 0; b < view.batch(); ++b)
      for (index_t i = 0; i < view.tokens(); ++i)
        for (index_t h = 0; h < view.heads(); ++h)
          for (index_t d = 0; d < view.dim(); ++d) mine[static_cast<std::size_t>(view.offset(b, i, h) + d)] = true;
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (!mine[i] && !(data[i] == 0 && std::signbit(data[i]))) return false;
    return true;
  }
  rows_view<float> all;
};

template <class T>
rows_view<T> heads_of(rows_view<T> v, index_t first, index_t count) {
  v.pointer += first * v.stride[2];
  v.shape[2] = count;
  return v;
}

template <class Keys, class Queries, class T, class M, class Mask>
gradients run(const problem<T>& p, const M& form, const Mask& mask, const dense_result& dense, std::uint64_t seed) {
  const dense_shape& n = p.in.n;
  const dealing& d = p.rows;
  const index_t group = n.heads / n.kv_heads, count = p.heads == 0 ? n.heads : p.heads;
  const index_t kv_first = p.first_head / group, kv_count = (p.first_head + count - 1) / group + 1 - kv_first;
  const index_t q_rows = rows_of(d.queries);
  const striding grads{d.strides.heads_first, d.strides.gap * 4};
  tensor<T> q({n.batch, q_rows, n.heads, n.qk_dim}, d.strides), dout({n.batch, q_rows, n.heads, n.v_dim}, d.strides);
  gradient dq({n.batch, q_rows, n.heads, n.qk_dim}, grads);
  const auto before = [&](std::uint64_t tag, index_t size) {
    return p.accumulate ? filled<float>(tag, size) : std::vector<float>(static_cast<std::size_t>(size));
  };
  deal(p.in.q, n.q_tokens, d.queries, q.view);
  deal(p.in.dout, n.q_tokens, d.queries, dout.view);
  deal(before(tag::dq, n.q_size()), n.q_tokens, d.queries, dq.view);
  query_rows queries;
  if constexpr (std::is_same_v<M, interval_form>)
    queries = lower_intervals(d.queries, p.sees_all ? full_mask().intervals_of : form.intervals_of, n.k_tokens,
                              cuda::query_rows_of_tile);
  else
    queries = lower_positions(d.queries, cuda::query_rows_of_tile);

  std::vector<tensor<T>> k, v;
  std::vector<gradient> dk, dv;
  std::vector<key_rows> keys;
  for (const runs& rows : d.segments) {
    const index_t m = rows_of(rows);
    const auto add = [&](auto& list, index_t dim, striding s) -> auto& {
      return list.emplace_back(std::array<index_t, 4>{n.batch, m, n.kv_heads, dim}, s);
    };
    deal(p.in.k, n.k_tokens, rows, add(k, n.qk_dim, d.strides).view);
    deal(p.in.v, n.k_tokens, rows, add(v, n.v_dim, d.strides).view);
    deal(before(tag::dk, n.k_size()), n.k_tokens, rows, add(dk, n.qk_dim, grads).view);
    deal(before(tag::dv, n.v_size()), n.k_tokens, rows, add(dv, n.v_dim, grads).view);
    keys.push_back(lower_keys(rows, queries, cuda::key_rows_of_tile));
    transpose(keys.back());
  }
  std::vector<kv_segment<T>> segments;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto mine = [&](auto& t) { return heads_of(t.view, kv_first, kv_count); };
    segments.push_back({mine(k[i]), mine(v[i]), keys[i].table(), mine(dk[i]), mine(dv[i])});
  }

  const std::array<index_t, 3> stride{n.heads * q_rows * 2, q_rows * 2, 2};
  std::vector<float> lse(static_cast<std::size_t>(n.lse_size() / n.q_tokens * q_rows * 2), not_a_number), delta(lse);
  for (index_t b = 0; b < n.batch; ++b)
    for (index_t h = 0; h < n.heads; ++h) {
      index_t i = 0;
      for (const test::runs::value_type& r : d.queries)
        for (index_t j = 0; j < r.count; ++j, ++i) {
          const auto to = static_cast<std::size_t>(b * stride[0] + h * stride[1] + i * 2);
          const auto from = static_cast<std::size_t>((b * n.heads + h) * n.q_tokens + r.at(j));
          lse[to] = static_cast<float>(dense.lse[from]);
          delta[to] = static_cast<float>(dense.delta[from]);
        }
    }
  backward_call<T> call;
  call.q = heads_of<const T>(q.view, p.first_head, count);
  call.dout = heads_of<const T>(dout.view, p.first_head, count);
  call.queries = queries.table();
  call.segments = segments;
  call.heads = {p.first_head, kv_first, group};
  call.scale = p.in.scale_used();
  call.lse = {lse.data() + p.first_head * stride[1], {n.batch, count, q_rows}, stride};
  call.delta = {delta.data() + p.first_head * stride[1], {n.batch, count, q_rows}, stride};
  call.dq = heads_of(dq.view, p.first_head, count);
  gradients g;
  for (std::size_t first = 0; first < segments.size(); first += cuda::most_segments) {
    const auto params = Keys::params::of(call, mask, first);
    static_assert(std::is_same_v<typename Keys::params, typename Queries::params>);
    g.did += twin::run<Keys>(p.blocks, params, {.seed = seed});
    g.did += twin::run<Queries>(p.blocks, params, {.seed = seed + 1});
  }
  g.dq = std::vector<float>(static_cast<std::size_t>(n.q_size()));
  g.dk = std::vector<float>(static_cast<std::size_t>(n.k_size()));
  g.dv = std::vector<float>(static_cast<std::size_t>(n.v_size()));
  undeal(dq.view, d.queries, n.q_tokens, g.dq);
  g.untouched_around = dq.untouched_around();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    undeal(dk[i].view, d.segments[i], n.k_tokens, g.dk);
    undeal(dv[i].view, d.segments[i], n.k_tokens, g.dv);
    g.untouched_around = g.untouched_around && dk[i].untouched_around() && dv[i].untouched_around();
  }
  return g;
}

/// Σ|p·dout|, Σ|ds·q|, Σ|ds·k|: what the rounding of P and dS is relative to.
struct term_sizes {
  std::vector<double> dq, dk, dv;
  std::vector<double> dq_sums, dk_sums, dv_sums;  // Σ|k|, Σ|q|, Σ|dout| over the same pairs
  double most_ds = 0;
};
template <class T, class Allows>
term_sizes sizes_of(const inputs<T>& in, const dense_result& dense, Allows&& allows) {
  const dense_shape& n = in.n;
  const auto zeros = [](index_t size) { return std::vector<double>(static_cast<std::size_t>(size)); };
  const auto at = [](const auto& x, index_t i) { return static_cast<double>(x[static_cast<std::size_t>(i)]); };
  term_sizes sizes{zeros(n.q_size()), zeros(n.k_size()), zeros(n.v_size()),
                   zeros(n.q_size()), zeros(n.k_size()), zeros(n.v_size())};
  const double scale = static_cast<double>(in.scale_used());
  for (index_t b = 0; b < n.batch; ++b)
    for (index_t h = 0; h < n.heads; ++h)
      for (index_t i = 0; i < n.q_tokens; ++i)
        for (index_t j = 0; j < n.k_tokens; ++j) {
          if (!allows(i, j)) continue;
          const index_t kv = h / (n.heads / n.kv_heads), row = (b * n.heads + h) * n.q_tokens + i;
          const index_t q0 = (b * n.q_tokens + i) * n.heads + h, k0 = (b * n.k_tokens + j) * n.kv_heads + kv;
          double s = 0, dp = 0;
          for (index_t d = 0; d < n.qk_dim; ++d) s += at(in.q, q0 * n.qk_dim + d) * at(in.k, k0 * n.qk_dim + d);
          for (index_t d = 0; d < n.v_dim; ++d) dp += at(in.dout, q0 * n.v_dim + d) * at(in.v, k0 * n.v_dim + d);
          const double p = std::exp(scale * s - at(dense.lse, row));
          const double ds = std::abs(scale * p * (dp - at(dense.delta, row)));
          sizes.most_ds = std::max(sizes.most_ds, ds);
          const auto add = [&](std::vector<double>& to, index_t i0, double by, const std::vector<T>& x, index_t j0,
                               index_t dim) {
            for (index_t d = 0; d < dim; ++d)
              to[static_cast<std::size_t>(i0 * dim + d)] += by * std::abs(at(x, j0 * dim + d));
          };
          add(sizes.dv, k0, p, in.dout, q0, n.v_dim);
          add(sizes.dk, k0, ds, in.q, q0, n.qk_dim);
          add(sizes.dq, q0, ds, in.k, k0, n.qk_dim);
          add(sizes.dv_sums, k0, 1, in.dout, q0, n.v_dim);
          add(sizes.dk_sums, k0, 1, in.q, q0, n.qk_dim);
          add(sizes.dq_sums, q0, 1, in.k, k0, n.qk_dim);
        }
  return sizes;
}

/// Runs the two bodies and checks every element; twice, in other orders of threads, and the same bits.
template <class Keys, class Queries, class T, class M, class Mask>
gradients check(problem<T> p, const M& form, const Mask& mask, bool rounds) {
  const dense_shape& n = p.in.n;
  if (p.heads != 0)  // heads that the kernel is not given must add nothing
    for (std::size_t i = 0; i < p.in.dout.size(); ++i) {
      const index_t h = static_cast<index_t>(i) / n.v_dim % n.heads;
      if (h < p.first_head || h >= p.first_head + p.heads) p.in.dout[i] = T(0.0f);
    }
  const std::vector<bool> q_named = named({p.rows.queries}, n.q_tokens), k_named = named(p.rows.segments, n.k_tokens);
  const dense_result want = dense_of(p.in, p.rows, form);
  term_sizes sizes;
  if (rounds)
    sizes = sizes_of(p.in, want, [&](index_t q, index_t k) {
      return q_named[static_cast<std::size_t>(q)] && k_named[static_cast<std::size_t>(k)] && form.allows(q, k);
    });
  const gradients got = run<Keys, Queries>(p, form, mask, want, 1);
  const auto compare_all = [&](const std::vector<float>& result, const std::vector<double>& exact,
                               const std::vector<double>& magnitude, const std::vector<double>& terms,
                               const std::vector<double>& sums, double floor, std::uint64_t tag,
                               const std::vector<bool>& dealt, index_t heads, index_t dim) {
    verdict worst;
    const auto tokens = static_cast<index_t>(dealt.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto at = static_cast<index_t>(i);
      if (!dealt[static_cast<std::size_t>(at / dim / heads % tokens)]) continue;
      const double base = p.accumulate ? static_cast<double>(recipe(tag, at)) : 0;
      double allowed = bound<float>(exact[i] + base, magnitude[i] + std::abs(base));
      if (rounds) allowed += roundoff<T> * terms[i] + (std::is_same_v<T, float16> ? floor * sums[i] : 0);
      worst.see(at, static_cast<double>(result[i]), exact[i] + base, allowed);
    }
    return worst;
  };
  CHECK(compare_all(got.dq, want.dq, want.dq_magnitude, sizes.dq, sizes.dq_sums, 0x1p-39 * sizes.most_ds, tag::dq,
                    q_named, n.heads, n.qk_dim));
  CHECK(compare_all(got.dk, want.dk, want.dk_magnitude, sizes.dk, sizes.dk_sums, 0x1p-39 * sizes.most_ds, tag::dk,
                    k_named, n.kv_heads, n.qk_dim));
  CHECK(compare_all(got.dv, want.dv, want.dv_magnitude, sizes.dv, sizes.dv_sums, 0x1p-40, tag::dv, k_named, n.kv_heads,
                    n.v_dim));
  CHECK(got.untouched_around);
  p.blocks += 2;
  const gradients again = run<Keys, Queries>(p, form, mask, want, 77);
  CHECK(compare_exact(got.dq, again.dq));
  CHECK(compare_exact(got.dk, again.dk));
  CHECK(compare_exact(got.dv, again.dv));
  return got;
}

template <class T, class Class, int Architecture = 80, class M, class Mask = by_intervals>
void check_fast(const problem<T>& p, const M& form, const Mask& mask = {}) {
  CAPTURE(Class::qk);
  CAPTURE(Class::v);
  const gradients g = check<cuda::attend_backward_keys<T, Class, Mask, Architecture>,
                            cuda::attend_backward_queries<T, Class, Mask, Architecture>>(p, form, mask, true);
  CHECK(g.did.bank_conflicts == 0);
  CHECK(g.did.matrix_products > 0);
}
template <class T, class M, class Mask = by_intervals>
void check_plain(const problem<T>& p, const M& form, const Mask& mask = {}) {
  CAPTURE(p.in.n.qk_dim);
  CAPTURE(p.in.n.v_dim);
  check<cuda::attend_backward_plain_keys<T, Mask>, cuda::attend_backward_plain_queries<T, Mask>>(p, form, mask, false);
}

/// Query rows in three pieces out of order, keys in two segments: one affine, one of many short runs.
dealing shuffled(const dense_shape& n, striding s) {
  const index_t a = n.q_tokens / 3, b = n.k_tokens / 2;
  dealing d{{{a, n.q_tokens - a, 1}, {a - 1, a, -1}}, {{{0, b, 1}}, {}}, {}, s};
  for (index_t i = n.k_tokens; i > b;) {
    const index_t count = std::min<index_t>(3, i - b);
    i -= count;
    d.segments[1].push_back({i, count, 1});
  }
  return d;
}

template <class T, class Class, int Architecture = 80>
void try_class(index_t qk_dim, index_t v_dim, index_t q_tokens, index_t k_tokens) {
  const dense_shape n{1, q_tokens, k_tokens, 2, 1, qk_dim, v_dim};
  check_fast<T, Class, Architecture>({recipe_inputs<T>(n), in_order(n)}, causal_mask(k_tokens - q_tokens));
}

}  // namespace

TEST_CASE_TEMPLATE("tensor cores give the gradients for every class of widths", T, float16, bfloat16) {
  try_class<T, head_class<32>>(24, 32, 140, 150);
  try_class<T, head_class<64>>(64, 56, 140, 130);
  try_class<T, head_class<96>>(80, 96, 40, 70);
  try_class<T, head_class<128>>(128, 120, 70, 70);
  try_class<T, head_class<192, 128>>(192, 128, 70, 40);
  try_class<T, head_class<256>>(256, 248, 40, 70);
}

TEST_CASE("every choice for an architecture gives the gradients") {
  try_class<bfloat16, head_class<32>, 100>(24, 32, 140, 70);   // steps shorter than what the threads copy at once
  try_class<bfloat16, head_class<256>, 86>(256, 248, 40, 70);  // the shortest
}

TEST_CASE("strided rows dealt in any order, on tensor cores, add to what is there, and to nothing else") {
  for (const bool heads_first : {false, true}) {
    const dense_shape n{2, 75, 90, 3, 1, 40, 64};
    problem<bfloat16> p{recipe_inputs<bfloat16>(n), shuffled(n, {heads_first, 8})};
    p.accumulate = true;
    check_fast<bfloat16, head_class<64>>(p, causal_mask(15, 33));
  }
}

TEST_CASE("two intervals, rows that see nothing and keys that nobody sees: these may hold anything") {
  const interval_form mask{[](index_t q) {
    if (q % 7 == 3 || q >= 60) return interval_pair{};
    return make_intervals({q / 8 * 4, q / 8 * 4 + 5}, {40, 40 + q / 2});
  }};
  const dense_shape n{1, 80, 100, 2, 2, 32, 16};
  const auto spoil = [&](auto p) {
    for (index_t q = 0; q < n.q_tokens; ++q)
      for (index_t i = 0; i < n.heads; ++i)
        if (mask.intervals_of(q).empty()) {
          std::fill_n(p.in.q.begin() + (q * n.heads + i) * n.qk_dim, n.qk_dim, bfloat16(not_a_number));
          std::fill_n(p.in.dout.begin() + (q * n.heads + i) * n.v_dim, n.v_dim, bfloat16(infinity));
        }
    std::fill(p.in.k.begin() + 70 * n.kv_heads * n.qk_dim, p.in.k.end(), bfloat16(not_a_number));
    std::fill(p.in.v.begin() + 70 * n.kv_heads * n.v_dim, p.in.v.end(), bfloat16(not_a_number));
    return p;
  };
  const problem<bfloat16> p = spoil(problem<bfloat16>{recipe_inputs<bfloat16>(n), in_order(n)});
  check_fast<bfloat16, head_class<32>>(p, mask);
  check_plain<bfloat16>(p, mask);
}

TEST_CASE("a row whose lse is −∞ adds nothing, whatever the tables say") {
  const interval_form mask{[](index_t q) { return make_intervals({0, q % 3 == 0 ? 0 : unbounded}); }};
  const dense_shape n{1, 80, 100, 1, 1, 32, 16};
  problem<bfloat16> p{recipe_inputs<bfloat16>(n), in_order(n)};
  p.sees_all = true;
  check_fast<bfloat16, head_class<32>>(p, mask);
  check_plain<bfloat16>(p, mask);
}

TEST_CASE("functors decide, by positions or by coordinates") {
  const dense_shape n{1, 70, 100, 1, 1, 32, 32};
  const problem<float16> p{recipe_inputs<float16>(n), shuffled(n, {false, 8})};
  const three_back back{.left = 40};
  const window_2d window{.width = 10, .reach = 2};
  check_fast<float16, head_class<32>>(p, functor_form{[=](index_t q, index_t k) { return back.allows(q, k); }}, back);
  check_fast<float16, head_class<32>>(p, functor_form{[=](index_t q, index_t k) { return window.allows(q, k); }},
                                      window);
  check_plain<float16>(p, functor_form{[=](index_t q, index_t k) { return back.allows(q, k); }}, back);
  check_plain<float16>(p, functor_form{[=](index_t q, index_t k) { return window.allows(q, k); }}, window);
}

TEST_CASE("heads that straddle two kv heads find theirs") {
  const dense_shape n{1, 40, 70, 9, 3, 32, 24};
  for (const index_t first : {0, 2, 4}) {
    problem<bfloat16> p{recipe_inputs<bfloat16>(n), in_order(n), first, 5};
    check_fast<bfloat16, head_class<32>>(p, full_mask());
    check_plain<bfloat16>(p, full_mask());
  }
}

TEST_CASE("fp16 keeps gradients that are far beyond or below its range") {
  for (const float size : {0x1p-22f, 0x1p12f}) {
    const dense_shape n{1, 70, 150, 1, 1, 64, 64};
    problem<float16> p{recipe_inputs<float16>(n), in_order(n)};
    for (std::size_t i = 0; i < p.in.dout.size(); ++i)  // what p sums to does not matter: v is large
      p.in.dout[i] = float16(static_cast<float>(p.in.dout[i]) * size);
    for (float16& x : p.in.v) x = float16(static_cast<float>(x) * 64);
    if (size > 1)  // ever larger along the rows: the unit grows on the way
      for (std::size_t i = 0; i < p.in.dout.size(); ++i)
        p.in.dout[i] = float16(static_cast<float>(p.in.dout[i]) * std::exp2(static_cast<float>(i / 64) / 10 - 8));
    check_fast<float16, head_class<64>>(p, causal_mask(80));
  }
}

TEST_CASE("fp16 keeps gradients finite where scores are so large that lse is rounded by more than one") {
  for (const float x : {3000.f, 4000.f, 5000.f}) {
    const dense_shape n{1, 16, 1, 1, 1, 64, 64};
    problem<float16> p{recipe_inputs<float16>(n), in_order(n)};
    for (auto* all : {&p.in.q, &p.in.k})
      for (float16& e : *all) e = float16(x);
    check_fast<float16, head_class<64>>(p, full_mask());
  }
}

TEST_CASE("fp16 keeps the gradients of keys that all queries find improbable") {
  const dense_shape n{1, 3, 150, 1, 1, 64, 64};
  const problem<float16> p{recipe_inputs<float16>(n, 2), in_order(n)};
  check_fast<float16, head_class<64>>(p, full_mask());
}

TEST_CASE("more segments than one launch takes are several") {
  const dense_shape n{1, 30, 100, 1, 1, 16, 32};
  problem<bfloat16> p{recipe_inputs<bfloat16>(n), in_order(n)};
  p.rows.segments.clear();
  for (index_t i = 0; i < 10; ++i) p.rows.segments.push_back({{i * 10, 10, 1}});
  check_fast<bfloat16, head_class<32>>(p, causal_mask(70));
}

TEST_CASE("a call without keys, or without queries, adds nothing") {
  const dense_shape n{1, 30, 30, 1, 1, 16, 16};
  problem<bfloat16> p{recipe_inputs<bfloat16>(n), in_order(n)};
  p.accumulate = true;
  const interval_form nothing{[](index_t) { return interval_pair{}; }};
  check<cuda::attend_backward_keys<bfloat16, head_class<32>, by_intervals>,
        cuda::attend_backward_queries<bfloat16, head_class<32>, by_intervals>>(p, nothing, by_intervals{}, true);
  p.rows.segments = {{}};
  check_plain<bfloat16>(p, full_mask());
}

TEST_CASE_TEMPLATE("plain arithmetic gives the gradients for any widths and strides", T, float, float16, bfloat16) {
  struct width {
    index_t qk, v;
  };
  for (const auto& [qk, v] : {width{1, 1}, width{3, 17}, width{33, 7}, width{80, 130}, width{256, 255}}) {
    const index_t tokens = qk > 64 ? 30 : 70;
    const dense_shape n{1, tokens, tokens + 5, 3, 1, qk, v};
    problem<T> p{recipe_inputs<T>(n), shuffled(n, {qk % 2 == 0, 1})};
    p.accumulate = true;
    check_plain<T>(p, causal_mask(5, 60));
  }
}
