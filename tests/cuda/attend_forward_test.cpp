// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forward bodies on the twin against the dense definition.
#include <seqpar/cuda/attend_forward.hpp>
#include <seqpar/cuda/attend_forward_plain.hpp>
#include <tests/kernel/harness.hpp>

#include "tests/cuda_on_cpu/twin.hpp"

using namespace seqpar;
using namespace seqpar::test;
using cuda::head_class;

namespace {

/// What all runs of a test did, and the seed of the next.
struct tally {
  twin::report did;
  std::uint64_t seed = 1;
};
tally& runs_so_far() {
  static tally t;
  return t;
}

template <class Body, class Call, class Mask>
void run_on_twin(const Call& call, const Mask& mask) {
  auto params = Body::params::of(call, mask);
  params.pack_heads(Body::packed_rows);
  tally& t = runs_so_far();
  t.did += twin::run<Body>(3, params, {.seed = t.seed++});
}

/// The bodies as kernels of the harness; backward is not here.
struct no_backward {
  static constexpr index_t query_tile_rows = cuda::query_rows_of_tile, key_tile_rows = cuda::key_rows_of_tile;
  static index_t workspace_bytes(index_t, index_t) { return 0; }
  template <class Call, class Mask>
  void backward(const Call&, const Mask&) const {}
};
struct plain : no_backward {
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask) const {
    run_on_twin<cuda::attend_forward_plain<T, Out, Mask>>(call, mask);
  }
};
template <class Class, int Architecture = 80>
struct tensor_cores : no_backward {
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask) const {
    run_on_twin<cuda::attend_forward<T, Out, Class, Mask, Architecture>>(call, mask);
  }
};

/// The bound of attend_forward: that of fp32, and P rounded to T, relative or, where it is subnormal, by 2^-25 of a
/// weight of 1 at most.
template <class T, class Out>
verdict compare_rounded(const dense_shape& n, const std::vector<Out>& got, const dense_result& want) {
  verdict v;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<index_t>(i), d = n.v_dim, row = at / d;
    const index_t h = row % n.heads, t = row / n.heads % n.q_tokens, b = row / n.heads / n.q_tokens;
    const double weight = want.lse_magnitude[static_cast<std::size_t>((b * n.heads + h) * n.q_tokens + t)];
    const double terms = want.out_magnitude[i] / (weight == 0 ? 1 : weight);  // Σ|p·v|
    const double subnormal = std::is_same_v<T, float16> ? 0x1p-25 * static_cast<double>(n.k_tokens) : 0;
    v.see(at, static_cast<double>(got[i]), want.out[i],
          bound<Out>(want.out[i], want.out_magnitude[i]) + roundoff<T> * terms + subnormal);
  }
  return v;
}

template <class Kernel, class Out, class T, class M>
outputs<Out> check_rounded(const inputs<T>& in, const dealing& d, const M& mask) {
  const dense_result want = dense_of(in, d, mask);
  const outputs<Out> got = run_kernel<Kernel, Out>(in, d, mask);
  CHECK(compare_rounded<T>(in.n, got.out, want));
  CHECK(compare(got.lse, want.lse, want.lse_magnitude));
  return got;
}
template <class Out = float, class T, class M>
outputs<Out> check_plain(const inputs<T>& in, const dealing& d, const M& mask) {
  const dense_result want = dense_of(in, d, mask);
  const outputs<Out> got = run_kernel<plain, Out>(in, d, mask);
  check_against(got, want);
  return got;
}

struct thinned {
  bool allows(index_t q, index_t k) const { return (q * 5 + k * 3) % 7 > 1 && q % 9 != 4 && k % 11 != 5; }
};

/// A window in frames, rows and columns of a video, by coordinates.
struct box_window {
  std::int32_t height, width, reach;
  struct coordinate {
    std::int32_t t, h, w, unused;
  };
  SEQPAR_HD coordinate coordinate_of(index_t position) const {
    const auto p = static_cast<std::int32_t>(position);
    return {p / (height * width), p / width % height, p % width, 0};
  }
  SEQPAR_HD bool allows_at(const coordinate& q, const coordinate& k) const {
    return near(q.t, k.t) && near(q.h, k.h) && near(q.w, k.w);
  }
  SEQPAR_HD bool near(std::int32_t a, std::int32_t b) const { return a - b <= reach && b - a <= reach; }
  bool allows(index_t q, index_t k) const { return allows_at(coordinate_of(q), coordinate_of(k)); }
};
static_assert(cuda::coordinate_mask<box_window> && !cuda::coordinate_mask<thinned>);

runs zigzag(index_t tokens, index_t cut) {
  return {{0, cut, 1}, {tokens - cut, cut, 1}, {cut, tokens - 2 * cut, 1}};
}
runs short_runs(index_t tokens) {  // pairs, which make irregular tiles, then what is between them
  runs r;
  for (index_t i = 0; i < tokens; i += 3) r.push_back({i, 2, 1});
  r.push_back({2, tokens / 3, 3});
  return r;
}

}  // namespace

TEST_CASE_TEMPLATE("tensor cores: any widths that are multiples of 8 give the dense result, without bank conflicts",
                   Class, head_class<32>, head_class<64>, head_class<96>, head_class<128>, head_class<192, 128>,
                   head_class<256>, head_class<32, 256>) {
  runs_so_far().did = {};
  for (index_t less : {0, 8, 24}) {
    CAPTURE(less);
    const dense_shape n{1, 20, 75, 1, 1, Class::qk - less, Class::v - less};
    check_rounded<tensor_cores<Class>, bfloat16>(recipe_inputs<bfloat16>(n), in_order(n), causal_mask(50));
  }
  CHECK(runs_so_far().did.matrix_products > 0);
  CHECK(runs_so_far().did.bank_conflicts == 0);
}

using of_hopper = tensor_cores<head_class<128>, 90>;
using of_small_mla = tensor_cores<head_class<192, 128>, 89>;
using of_small = tensor_cores<head_class<256>, 89>;
TEST_CASE_TEMPLATE("tensor cores: every choice for an architecture gives the dense result", Kernel, of_hopper,
                   of_small_mla, of_small) {
  const dense_shape n{1, 140, 330, 1, 1, 112, 120};
  check_rounded<Kernel, bfloat16>(recipe_inputs<bfloat16>(n), in_order(n), causal_mask(190, 210));
}

TEST_CASE("tensor cores: any number of rows gives the dense result under causal, full and window masks") {
  for (index_t q : {0, 1, 17, 128, 150})
    for (index_t k : {0, 1, 63, 64, 150}) {
      CAPTURE(q);
      CAPTURE(k);
      const dense_shape n{1, q, k, 1, 1, 32, 32};
      const inputs<float16> in = recipe_inputs<float16>(n);
      check_rounded<tensor_cores<head_class<32>>, float16>(in, in_order(n), full_mask());
      check_rounded<tensor_cores<head_class<32>>, float16>(in, in_order(n), causal_mask(k - q));
      check_rounded<tensor_cores<head_class<32>>, float16>(in, in_order(n), causal_mask(k - q, 5));
      const auto sink = interval_form{[](index_t i) { return make_intervals({0, 3}, {i - 9, i + 1}); }};
      check_rounded<tensor_cores<head_class<32>>, float16>(in, in_order(n), sink);
    }
}

TEST_CASE("tensor cores: rows in any order, in segments, carried over calls, give the dense result") {
  const index_t tokens = 210;
  const dense_shape n = self_shape(tokens, 1, 32);
  const inputs<bfloat16> in = recipe_inputs<bfloat16>(n);
  const runs whole{{0, tokens, 1}}, backwards{{tokens - 1, tokens, -1}}, striped{{0, 70, 3}, {1, 70, 3}, {2, 70, 3}};
  for (const runs& q : {zigzag(tokens, 40), short_runs(tokens), striped})
    for (const runs& k : {backwards, short_runs(tokens), striped})
      for (index_t left : {index_t{17}, unbounded})
        check_rounded<tensor_cores<head_class<32>>, bfloat16>(in, {q, {k}}, causal_mask(0, left));
  const std::vector<runs> thirds{{{0, 70, 1}}, {{70, 5, 1}, {80, 60, 1}}, {{140, 70, 1}}};
  for (const std::vector<std::size_t>& cuts : std::vector<std::vector<std::size_t>>{{}, {1}, {2}, {1, 2}, {0, 3}}) {
    check_rounded<tensor_cores<head_class<32>>, bfloat16>(in, {zigzag(tokens, 40), thirds, cuts}, causal_mask());
    check_rounded<tensor_cores<head_class<32>>, float>(in, {whole, thirds, cuts}, causal_mask(-80));
  }
}

TEST_CASE("tensor cores: batch, heads that share keys, strides, scales and all types give the dense result") {
  for (bool heads_first : {false, true})
    for (index_t kv_heads : {1, 2, 6}) {
      const dense_shape n{2, 21, 33, 6, kv_heads, 48, 40};
      dealing d = in_order(n);
      d.strides = {heads_first, heads_first ? 8 : 16};
      check_rounded<tensor_cores<head_class<64>>, bfloat16>(recipe_inputs<bfloat16>(n), d, causal_mask(12));
      check_rounded<tensor_cores<head_class<64>>, float>(recipe_inputs<float16>(n), d, causal_mask(12));
    }
  for (double scale : {0.0, -0.7, 3.0}) {
    CAPTURE(scale);
    const dense_shape n = self_shape(100, 1, 32);
    dealing d{{{0, 100, 1}}, {{{0, 50, 1}}, {{50, 50, 1}}}, {1}};
    check_rounded<tensor_cores<head_class<32>>, float16>(recipe_inputs<float16>(n, scale), d, causal_mask());
  }
}

TEST_CASE("tensor cores: few queries of heads that share keys are one block's, and give the dense result") {
  const auto products = [](index_t queries, index_t heads, index_t kv_heads, const std::vector<std::size_t>& cuts) {
    const dense_shape n{2, queries, 90, heads, kv_heads, 32, 24};
    runs_so_far().did = {};
    const dealing d{{{0, queries, 1}}, {{{0, 50, 1}}, {{50, 40, 1}}}, cuts, {heads % 3 == 0, 8}};
    check_rounded<tensor_cores<head_class<32>>, bfloat16>(recipe_inputs<bfloat16>(n), d, causal_mask(90 - queries));
    return runs_so_far().did.matrix_products;
  };
  struct {
    index_t queries, blocks;  // of 128 rows, for 8 heads
  } const cases[] = {{1, 1}, {5, 1}, {17, 2}, {64, 4}, {65, 8}};
  for (const auto& c : cases) {
    CAPTURE(c.queries);
    const auto of_one = products(c.queries, 1, 1, {});
    CHECK(products(c.queries, 8, 1, {}) == c.blocks * of_one);
    CHECK(products(c.queries, 15, 3, {1}) > 0);  // five heads to a kv head; carried from segment to segment
  }
}

TEST_CASE_TEMPLATE("masks known only by asking, and rows that see nothing, give the dense result", Kernel, plain,
                   tensor_cores<head_class<32>>) {
  for (index_t tokens : {1, 20, 131}) {
    const dense_shape n = self_shape(tokens, 2, 16);
    check_rounded<Kernel, bfloat16>(recipe_inputs<bfloat16>(n), in_order(n), thinned{});
  }
  const dense_shape n = self_shape(5 * 6 * 7, 1, 16);  // frames × rows × columns
  const dealing d{short_runs(210), {short_runs(120), {{120, 90, 1}}}, {1}};
  check_rounded<Kernel, bfloat16>(recipe_inputs<bfloat16>(n), d, box_window{6, 7, 1});
}

TEST_CASE("plain: any width of keys and of values gives the dense result") {
  for (index_t dim : {1, 3, 8, 17, 32, 33, 72, 128, 256}) {
    CAPTURE(dim);
    const dense_shape n = self_shape(19, 1, dim), wider{1, 9, 11, 2, 1, dim, 257 - dim};
    check_plain(recipe_inputs(n), in_order(n), causal_mask());
    check_plain(recipe_inputs(wider), in_order(wider), full_mask());
  }
}

TEST_CASE("plain: any number of rows, strides and types give the dense result") {
  for (index_t q : {0, 1, 31, 130})
    for (index_t k : {0, 1, 64, 129}) {
      const dense_shape n{1, q, k, 1, 1, 8, 8};
      check_plain(recipe_inputs(n), in_order(n), full_mask());
      check_plain(recipe_inputs(n), in_order(n), causal_mask(k - q));
      check_plain(recipe_inputs(n), in_order(n), causal_mask(k - q, 5));
    }
  for (bool heads_first : {false, true}) {
    const dense_shape n{2, 21, 33, 6, 2, 5, 7};
    dealing d = in_order(n);
    d.strides = {heads_first, 3};
    check_plain(recipe_inputs(n), d, causal_mask(12));
    check_plain<bfloat16>(recipe_inputs<bfloat16>(n), d, causal_mask(12));
    check_plain<float16>(recipe_inputs<float16>(n), d, causal_mask(12));
  }
}

TEST_CASE("plain: segments and carried states give the dense result, with scales of any sign") {
  const dense_shape n = self_shape(210, 1, 8);
  const std::vector<runs> thirds{{{0, 70, 1}}, {{70, 5, 1}, {80, 60, 1}}, {{140, 70, 1}}};
  for (double scale : {default_scale, 0.0, -2.0})
    for (const std::vector<std::size_t>& cuts : std::vector<std::vector<std::size_t>>{{}, {1, 2}})
      check_plain(recipe_inputs(n, scale), {zigzag(210, 40), thirds, cuts}, causal_mask());
}

namespace {

/// One call on given numbers: rows × heads × dim of 16-bit or float, dense, and a table.
template <class T>
struct small_call {
  dense_shape n;
  std::vector<T> q, k, v;
  query_rows queries;
  key_rows keys;
  kv_segment<T> segment{};
  std::vector<float> acc, max, sum, lse, out;
  forward_call<T, float> call{};

  small_call(const dense_shape& shape, const interval_form& mask)
      : n(shape),
        q(filled<T>(tag::q, n.q_size())),
        k(filled<T>(tag::k, n.k_size())),
        v(filled<T>(tag::v, n.v_size())),
        queries(lower_intervals(runs{{0, n.q_tokens, 1}}, mask.intervals_of, n.k_tokens, 128)),
        keys(lower_keys(runs{{0, n.k_tokens, 1}}, queries, 64)),
        acc(static_cast<std::size_t>(n.out_size()), -7),
        max(static_cast<std::size_t>(n.lse_size()), -7),
        sum(max),
        lse(max),
        out(acc) {}
  template <class Kernel>
  void run(head_map heads = {}) {
    segment = {dense_view<const T>(k.data(), {n.batch, n.k_tokens, n.kv_heads, n.qk_dim}),
               dense_view<const T>(v.data(), {n.batch, n.k_tokens, n.kv_heads, n.v_dim}), keys.table()};
    call.q = dense_view<const T>(q.data(), {n.batch, n.q_tokens, n.heads, n.qk_dim});
    call.queries = queries.table();
    call.segments = {&segment, 1};
    call.heads = heads;
    call.scale = 0.25f;
    call.state = {acc.data(), max.data(), sum.data()};
    call.out = dense_view(out.data(), {n.batch, n.q_tokens, n.heads, n.v_dim});
    call.lse = dense_heads(lse.data(), {n.batch, n.heads, n.q_tokens});
    const exact_space workspace(Kernel::workspace_bytes(n.qk_dim, n.v_dim));
    call.workspace = workspace.get();
    Kernel{}.forward(call, by_intervals{});
  }
};
struct reference : host_reference<float> {};

/// Equal within `by`, and infinite or NaN in the same places.
bool alike(const std::vector<float>& a, const std::vector<float>& b, float by) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::isnan(a[i]) ? std::isnan(b[i]) : a[i] == b[i] || std::abs(a[i] - b[i]) <= by)) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE_TEMPLATE("rows of no tile are not touched, and rows of a tile that visits no keys see nothing", Kernel, plain,
                   tensor_cores<head_class<32>>) {
  for (state_out kind : {state_out::final, state_out::carry}) {
    small_call<bfloat16> c({2, 40, 30, 2, 1, 16, 24}, causal_mask(-20));
    c.queries.tiles = {{3, 9}, {17, 2}, {25, 11}};
    c.keys = lower_keys(runs{{0, 30, 1}}, c.queries, 64);
    REQUIRE(c.keys.first_range[1] == 0);  // the first tile
    c.call.out_kind = kind;
    small_call<bfloat16> want = c;
    c.run<Kernel>({0, 0, 2});
    want.run<reference>({0, 0, 2});
    CHECK(alike(c.out, want.out, 0.01f));
    CHECK(alike(c.lse, want.lse, 1e-5f));
    CHECK(alike(c.acc, want.acc, 0.05f));
    CHECK(alike(c.max, want.max, 1e-5f));
    CHECK(alike(c.sum, want.sum, 1e-4f));
  }
}

TEST_CASE_TEMPLATE("a member's heads may begin inside a group that shares keys", Kernel, plain,
                   tensor_cores<head_class<32>>) {
  small_call<bfloat16> c({1, 40, 40, 4, 2, 16, 16}, causal_mask());
  small_call<bfloat16> want = c;
  c.run<Kernel>({5, 1, 3});  // heads 5 … 8 of groups of 3: kv heads 1, 2, 2, 2
  want.run<reference>({5, 1, 3});
  CHECK(alike(c.out, want.out, 0.01f));
}

TEST_CASE_TEMPLATE("infinite scores do what they do in the reference", Kernel, plain, tensor_cores<head_class<32>>) {
  small_call<bfloat16> c({1, 40, 40, 1, 1, 8, 8}, causal_mask());
  for (std::size_t i = 0; i < 8; ++i) c.q[4 * 8 + i] = c.q[9 * 8 + i] = bfloat16(i == 0 ? 1e30f : 0.0f);
  for (std::size_t row = 0; row < 40; ++row) c.k[row * 8] = bfloat16(row == 2 || row == 3 ? -1e30f : 0.5f);
  for (std::size_t row = 0; row <= 4; ++row) c.k[row * 8] = bfloat16(-1e30f);  // query 4 sees −∞ alone
  c.k[6 * 8] = bfloat16(1e30f);                                                // query 9 sees +∞
  small_call<bfloat16> want = c;
  c.run<Kernel>();
  want.run<reference>();
  CHECK(std::isnan(want.out[9 * 8]));
  CHECK(want.lse[4] == -infinity);
  CHECK(alike(c.out, want.out, 0.01f));
  CHECK(alike(c.lse, want.lse, 1e-5f));
}

TEST_CASE_TEMPLATE("values and keys that no row sees may be NaN", Kernel, plain, tensor_cores<head_class<32>>) {
  small_call<bfloat16> c({1, 40, 60, 1, 1, 8, 32}, interval_form{[](index_t) { return make_intervals({3, 50}); }});
  for (std::size_t row : {0u, 2u, 50u, 59u}) {
    std::fill_n(c.k.begin() + static_cast<index_t>(row) * 8, 8, bfloat16(not_a_number));
    std::fill_n(c.v.begin() + static_cast<index_t>(row) * 32, 32, bfloat16(not_a_number));
  }
  small_call<bfloat16> want = c;
  c.run<Kernel>();
  want.run<reference>();
  CHECK(alike(c.out, want.out, 0.01f));
}

TEST_CASE_TEMPLATE("the order of threads and the number of blocks change no bit", Kernel, plain,
                   tensor_cores<head_class<32>>) {
  const dense_shape n{1, 150, 150, 2, 1, 32, 32};
  const inputs<bfloat16> in = recipe_inputs<bfloat16>(n);
  runs_so_far().seed = 1;
  const auto once = run_kernel<Kernel, float>(in, in_order(n), causal_mask());
  runs_so_far().seed = 1000;
  const auto again = run_kernel<Kernel, float>(in, in_order(n), causal_mask());
  CHECK(once.out == again.out);
  CHECK(once.lse == again.lse);
}
