// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block kernel as its equations say, in plain loops: what other kernels are compared with.
#pragma once

#include <cmath>
#include <limits>

#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/visit.hpp>
#include <seqpar/memory.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Computes in Accum (float or double); what outlives a call is fp32. Any dims ≥ 1. Deterministic.
template <class Accum = float>
struct host_reference {
  static constexpr index_t query_tile_rows = 64;
  static constexpr index_t key_tile_rows = 64;

  /// One accumulator row, of the wider of the two.
  static index_t workspace_bytes(index_t qk_dim, index_t v_dim) {
    carver walk;
    walk.take<Accum>(qk_dim > v_dim ? qk_dim : v_dim);
    return walk.bytes();
  }

  /// Per row, over the keys it sees: m ← max(m, s), and sum and acc rescaled by exp(m_old − m) whenever m grows.
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask) const {
    Accum* acc = static_cast<Accum*>(call.workspace);
    for_each_row(call, [&](index_t b, index_t h, index_t row, std::size_t t) {
      const index_t v_dim = width_of(call);
      const index_t place = (b * call.q.heads() + h) * call.q.tokens() + row;
      Accum max = -std::numeric_limits<Accum>::infinity(), sum = 0;
      for (index_t d = 0; d < v_dim; ++d) acc[d] = 0;
      if (call.in == state_in::carry) {
        max = static_cast<Accum>(call.state.max[place]);
        sum = static_cast<Accum>(call.state.sum[place]);
        for (index_t d = 0; d < v_dim; ++d) acc[d] = static_cast<Accum>(call.state.acc[place * v_dim + d]);
      }
      const T* q = call.q.row(b, row, h);
      for_each_key(call, mask, h, row, t, [&](const kv_segment<T>& segment, index_t key, index_t kv) {
        const T* v = segment.v.row(b, key, kv);
        const Accum s = static_cast<Accum>(call.scale) * dot(q, segment.k.row(b, key, kv), call.q.dim());
        if (s > max) {
          const Accum shrink = std::exp(max - s);
          sum *= shrink;
          for (index_t d = 0; d < v_dim; ++d) acc[d] *= shrink;
          max = s;
        }
        const Accum p = s == -std::numeric_limits<Accum>::infinity() ? Accum(0) : std::exp(s - max);
        sum += p;
        for (index_t d = 0; d < v_dim; ++d) acc[d] += p * static_cast<Accum>(static_cast<float>(v[d]));
      });
      if (call.out_kind == state_out::carry) {
        call.state.max[place] = static_cast<float>(max);
        call.state.sum[place] = static_cast<float>(sum);
        for (index_t d = 0; d < v_dim; ++d) call.state.acc[place * v_dim + d] = static_cast<float>(acc[d]);
      } else {
        Out* out = call.out.row(b, row, h);
        for (index_t d = 0; d < v_dim; ++d) out[d] = Out(static_cast<float>(sum == 0 ? Accum(0) : acc[d] / sum));
        call.lse.at(b, h, row) = static_cast<float>(max + std::log(sum));  // nothing seen: −∞ + −∞
      }
    });
  }

  template <class T, class Mask>
  void backward(const backward_call<T>& call, const Mask& mask) const {
    Accum* dq = static_cast<Accum*>(call.workspace);
    const index_t qk_dim = call.q.dim(), v_dim = call.dout.dim();
    for_each_row(call, [&](index_t b, index_t h, index_t row, std::size_t t) {
      const Accum lse = static_cast<Accum>(call.lse.at(b, h, row)), scale = static_cast<Accum>(call.scale);
      if (lse == -std::numeric_limits<Accum>::infinity()) return;
      const Accum delta = static_cast<Accum>(call.delta.at(b, h, row));
      const T* q = call.q.row(b, row, h);
      const T* dout = call.dout.row(b, row, h);
      for (index_t d = 0; d < qk_dim; ++d) dq[d] = 0;
      for_each_key(call, mask, h, row, t, [&](const kv_segment<T>& segment, index_t key, index_t kv) {
        const T* k = segment.k.row(b, key, kv);
        float* dk = segment.dk.row(b, key, kv);
        float* dv = segment.dv.row(b, key, kv);
        const Accum p = std::exp(scale * dot(q, k, qk_dim) - lse);
        const Accum ds = scale * p * (dot(dout, segment.v.row(b, key, kv), v_dim) - delta);
        for (index_t d = 0; d < v_dim; ++d) dv[d] += static_cast<float>(p * value(dout[d]));
        for (index_t d = 0; d < qk_dim; ++d) {
          dk[d] += static_cast<float>(ds * value(q[d]));
          dq[d] += ds * value(k[d]);
        }
      });
      for (index_t d = 0; d < qk_dim; ++d) call.dq.row(b, row, h)[d] += static_cast<float>(dq[d]);
    });
  }

 private:
  template <class T>
  static Accum value(T x) {
    return static_cast<Accum>(static_cast<float>(x));
  }

  template <class T>
  static Accum dot(const T* a, const T* b, index_t n) {
    Accum sum = 0;
    for (index_t i = 0; i < n; ++i) sum += value(a[i]) * value(b[i]);
    return sum;
  }

  /// The width of v is known from out, or from the segments when out is not written.
  template <class T, class Out>
  static index_t width_of(const forward_call<T, Out>& call) {
    return call.segments.empty() ? call.out.dim() : call.segments.front().v.dim();
  }

  /// f(batch, head, row, query tile) for every row that a tile names.
  template <class Call, class F>
  static void for_each_row(const Call& call, F&& f) {
    for (index_t b = 0; b < call.q.batch(); ++b)
      for (index_t h = 0; h < call.q.heads(); ++h)
        for (std::size_t t = 0; t < call.queries.tiles.size(); ++t)
          for (std::int32_t i = 0; i < call.queries.tiles[t].rows; ++i)
            f(b, h, index_t{call.queries.tiles[t].row} + i, t);
  }

  /// f(segment, key row, kv head) for every key that the row sees, in order.
  template <class Call, class Mask, class F>
  static void for_each_key(const Call& call, const Mask& mask, index_t h, index_t row, std::size_t t, F&& f) {
    for (const auto& segment : call.segments)
      for_each_tile(segment.table, t, [&](const key_tile& tile, cover kind) {
        for (std::int32_t j = 0; j < tile.rows; ++j)
          if (kind == cover::all || may_see(call.queries, row, segment.table.position_of(tile, j), mask))
            f(segment, index_t{tile.row} + j, call.heads.kv_of(h));
      });
  }
};

}  // namespace v0_1
}  // namespace seqpar
