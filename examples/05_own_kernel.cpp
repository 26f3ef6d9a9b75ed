// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Your own block kernel in plain loops: the whole contract, forward and backward. Returns 0 when it agrees with
// host_reference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include <seqpar/kernel/explain.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <seqpar/kernel/tables.hpp>
#include <seqpar/kernel/visit.hpp>

// [snippet]
struct my_kernel {
  static constexpr seqpar::index_t query_tile_rows = 16, key_tile_rows = 32;
  static seqpar::index_t workspace_bytes(seqpar::index_t, seqpar::index_t) { return 0; }

  template <class T, class Out, class Mask>
  void forward(const seqpar::forward_call<T, Out>& call, const Mask& mask) const {
    each_row(call, [&](auto b, auto h, auto row, auto tile) {
      const auto width = call.segments.empty() ? call.out.dim() : call.segments[0].v.dim();
      const bool carried = call.in == seqpar::state_in::carry, goes_on = call.out_kind == seqpar::state_out::carry;
      const auto at = (b * call.q.heads() + h) * call.q.tokens() + row;
      float max = carried ? call.state.max[at] : -std::numeric_limits<float>::infinity();
      float sum = carried ? call.state.sum[at] : 0;
      std::vector<float> acc(static_cast<std::size_t>(width));  // a real kernel takes this from call.workspace
      if (carried) acc.assign(call.state.acc + at * width, call.state.acc + (at + 1) * width);
      each_key(call, mask, h, row, tile, [&](const auto& segment, auto key, auto kv) {
        const float s = call.scale * dot(call.q.row(b, row, h), segment.k.row(b, key, kv), call.q.dim());
        const float top = s > max ? s : max, shrink = std::exp(max - top), p = std::exp(s - top);
        max = top;
        sum = sum * shrink + p;
        const T* v = segment.v.row(b, key, kv);
        for (float& a : acc) a = a * shrink + p * static_cast<float>(*v++);
      });
      if (goes_on) {
        call.state.max[at] = max;
        call.state.sum[at] = sum;
        std::copy(acc.begin(), acc.end(), call.state.acc + at * width);
      } else {
        Out* out = call.out.row(b, row, h);
        for (float a : acc) *out++ = Out(sum > 0 ? a / sum : 0.0f);
        call.lse.at(b, h, row) = max + std::log(sum);
      }
    });
  }

  template <class T, class Mask>
  void backward(const seqpar::backward_call<T>& call, const Mask& mask) const {
    const auto qk_dim = call.q.dim(), v_dim = call.dout.dim();
    each_row(call, [&](auto b, auto h, auto row, auto tile) {
      const float lse = call.lse.at(b, h, row), delta = call.delta.at(b, h, row);
      if (lse == -std::numeric_limits<float>::infinity()) return;
      const T *q = call.q.row(b, row, h), *dout = call.dout.row(b, row, h);
      each_key(call, mask, h, row, tile, [&](const auto& segment, auto key, auto kv) {
        const T* k = segment.k.row(b, key, kv);
        const float p = std::exp(call.scale * dot(q, k, qk_dim) - lse);
        const float ds = call.scale * p * (dot(dout, segment.v.row(b, key, kv), v_dim) - delta);
        for (seqpar::index_t d = 0; d < v_dim; ++d) segment.dv.row(b, key, kv)[d] += p * static_cast<float>(dout[d]);
        for (seqpar::index_t d = 0; d < qk_dim; ++d) {
          call.dq.row(b, row, h)[d] += ds * static_cast<float>(k[d]);
          segment.dk.row(b, key, kv)[d] += ds * static_cast<float>(q[d]);
        }
      });
    });
  }

 private:
  template <class T>
  static float dot(const T* a, const T* b, seqpar::index_t n) {
    float sum = 0;
    for (seqpar::index_t d = 0; d < n; ++d) sum += static_cast<float>(a[d]) * static_cast<float>(b[d]);
    return sum;
  }

  // Only the rows that a tile names …
  template <class Call, class F>
  static void each_row(const Call& call, F&& f) {
    for (seqpar::index_t b = 0; b < call.q.batch(); ++b)
      for (seqpar::index_t h = 0; h < call.q.heads(); ++h)
        for (std::size_t t = 0; t < call.queries.tiles.size(); ++t)
          for (std::int32_t i = 0; i < call.queries.tiles[t].rows; ++i)
            f(b, h, seqpar::index_t{call.queries.tiles[t].row} + i, t);
  }

  // … and only the keys that the tables let them see. A tile of kind `all` needs no test.
  template <class Call, class Mask, class F>
  static void each_key(const Call& call, const Mask& mask, seqpar::index_t h, seqpar::index_t row, std::size_t t,
                       F&& f) {
    for (const auto& segment : call.segments)
      seqpar::for_each_tile(segment.table, t, [&](const seqpar::key_tile& tile, seqpar::cover kind) {
        for (std::int32_t j = 0; j < tile.rows; ++j)
          if (kind == seqpar::cover::all ||
              seqpar::may_see(call.queries, row, segment.table.position_of(tile, j), mask))
            f(segment, seqpar::index_t{tile.row} + j, call.heads.kv_of(h));
      });
  }
};

static_assert(seqpar::explain_kernel<my_kernel>());  // names a missing member
// [/snippet]

namespace {

using seqpar::index_t;

struct answer {
  std::vector<float> out, lse, dq, dk, dv;
};

/// Positions 0..29 in the order 0–9, 20–29, 10–19; a window of 12 keys; keys in two segments, the state carried.
template <class Kernel>
answer run(const Kernel& kernel) {
  constexpr index_t n = 30, heads = 2, dim = 6, half = 15 * dim;
  std::vector<float> q(n * heads * dim), k(n * dim), v(k), dout(q);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i)), dout[i] = std::cos(q[i] * 9);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::cos(static_cast<float>(i) * 3), v[i] = std::sin(k[i] * 5);
  answer a{std::vector<float>(q.size()), std::vector<float>(n * heads), std::vector<float>(q.size()),
           std::vector<float>(k.size()), std::vector<float>(k.size())};

  const std::vector<seqpar::run> query_runs{{0, 10, 1}, {20, 10, 1}, {10, 10, 1}};
  const auto window = [](index_t p) { return seqpar::make_intervals({p - 11, p + 1}); };
  const auto queries = seqpar::lower_intervals(query_runs, window, n, Kernel::query_tile_rows);
  std::vector<seqpar::key_rows> keys;
  std::vector<seqpar::kv_segment<float>> segments;
  for (index_t s : {0, 1})
    keys.push_back(seqpar::lower_keys(std::vector<seqpar::run>{{s * 15, 15, 1}}, queries, Kernel::key_tile_rows));
  for (index_t s : {0, 1})
    segments.push_back({seqpar::dense_view<const float>(k.data() + s * half, {1, 15, 1, dim}),
                        seqpar::dense_view<const float>(v.data() + s * half, {1, 15, 1, dim}),
                        keys[static_cast<std::size_t>(s)].table(),
                        seqpar::dense_view(a.dk.data() + s * half, {1, 15, 1, dim}),
                        seqpar::dense_view(a.dv.data() + s * half, {1, 15, 1, dim})});

  std::vector<float> acc(q.size()), max(a.lse.size()), sum(a.lse.size());
  const seqpar::host_memory workspace({.scratch = Kernel::workspace_bytes(dim, dim)});
  seqpar::forward_call<float, float> forward;
  forward.q = seqpar::dense_view<const float>(q.data(), {1, n, heads, dim});
  forward.queries = queries.table();
  forward.heads = {.heads_per_kv = 2};
  forward.state = {acc.data(), max.data(), sum.data()};
  forward.out = seqpar::dense_view(a.out.data(), {1, n, heads, dim});
  forward.lse = seqpar::dense_heads(a.lse.data(), {1, heads, n});
  forward.workspace = seqpar::memory(workspace).scratch.pointer;
  for (std::size_t s = 0; s < 2; ++s) {
    forward.segments = {&segments[s], 1};
    forward.in = s == 0 ? seqpar::state_in::none : seqpar::state_in::carry;
    forward.out_kind = s == 0 ? seqpar::state_out::carry : seqpar::state_out::final;
    kernel.forward(forward, seqpar::by_intervals{});
  }

  std::vector<float> delta(a.lse.size());  // rowsum(dout∘out), [heads][rows]
  for (std::size_t i = 0; i < q.size(); ++i) delta[i / dim % heads * n + i / dim / heads] += dout[i] * a.out[i];
  seqpar::backward_call<float> backward;
  backward.q = forward.q;
  backward.dout = seqpar::dense_view<const float>(dout.data(), {1, n, heads, dim});
  backward.queries = forward.queries;
  backward.segments = segments;
  backward.heads = forward.heads;
  backward.lse = forward.lse;
  backward.delta = seqpar::dense_heads<const float>(delta.data(), {1, heads, n});
  backward.dq = seqpar::dense_view(a.dq.data(), {1, n, heads, dim});
  backward.workspace = seqpar::memory(workspace).scratch.pointer;
  kernel.backward(backward, seqpar::by_intervals{});
  return a;
}

bool agree(const char* name, const std::vector<float>& mine, const std::vector<float>& theirs) {
  float worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) worst = std::max(worst, std::abs(mine[i] - theirs[i]));
  std::printf("%-4s largest difference %.1e\n", name, static_cast<double>(worst));
  return worst < 1e-5f;
}

}  // namespace

int main() {
  const answer mine = run(my_kernel{}), theirs = run(seqpar::host_reference<>{});
  bool good = agree("out", mine.out, theirs.out);
  good = agree("lse", mine.lse, theirs.lse) && good;
  good = agree("dq", mine.dq, theirs.dq) && good;
  good = agree("dk", mine.dk, theirs.dk) && good;
  good = agree("dv", mine.dv, theirs.dv) && good;
  return good ? 0 : 1;
}
