// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The block kernel of the host, vectorised: queries lie across the lanes, so softmax never sums across a vector.
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/host_softmax.hpp>
#include <seqpar/kernel/host_tile.hpp>
#include <seqpar/kernel/micro_gemm.hpp>
#include <seqpar/memory.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Any dims ≥ 1; multiples of the lanes are the fast ones, and fp32 keys and values that are dense are then read where
/// they lie. Tiles of scores are held transposed, [key][query]: the products are K·Qᵀ and Pᵀ-strided·V, and maximum,
/// exponential and sum run down the keys. A few query tiles at a time meet one key tile after the other, so that its
/// rows stay in the second-level cache. Determinism: sums run in the order of the tables.
template <int Bytes>
struct basic_host_fast {
  static constexpr index_t query_tile_rows = host_tile<Bytes>::queries;
  static constexpr index_t key_tile_rows = host_tile<Bytes>::keys;

  static index_t workspace_bytes(index_t qk_dim, index_t v_dim) {
    carver forward, backward;
    forward_space(forward, qk_dim, v_dim);
    backward_space(backward, qk_dim, v_dim);
    return (std::max)(forward.bytes(), backward.bytes());
  }

  /// Per query tile and key tile: S = K·(scale·Q)ᵀ; m, P = exp(S − m), Σ; acc = acc·exp(m_old − m) + P·V.
  template <class T, class Out, class Mask>
  void forward(const forward_call<T, Out>& call, const Mask& mask) const {
    const index_t qk_dim = call.q.dim(), v_dim = call.segments.empty() ? call.out.dim() : call.segments[0].v.dim();
    const state_rows state = call.state.of(call.q.batch(), call.q.heads(), call.q.tokens(), v_dim);
    typename tile::sum_rows acc[forward_group];
    carver walk(region{call.workspace, 0});
    const forward_space space(walk, qk_dim, v_dim);
    masker<Bytes, Mask> masking[forward_group];
    for_each_group<forward_group>(call, [&](index_t b, index_t h, std::size_t first, std::size_t count, bool once) {
      const index_t kv = call.heads.kv_of(h);
      for (std::size_t i = 0; i < count; ++i) {
        const query_tile queries = call.queries.tiles[first + i];
        tile::copy(call.q, b, queries.row, queries.rows, h, nullptr, space.keys);
        tile::transpose(space.keys, tile::padded(qk_dim), queries.rows, call.scale, space.of[i].q_columns);
        acc[i] = begin_state(call, state, b, h, queries, space.of[i]);
        masking[i].start(call.queries, queries, mask);
      }
      for (const kv_segment<T>& segment : call.segments)
        for_each_tile<forward_group>(segment.table, first, count, [&](const key_tile& whole, const auto& kinds) {
          const auto k_rows = tile::rows_of(segment.k, b, whole, kv, once, space.keys);
          const auto v_rows = tile::rows_of(segment.v, b, whole, kv, once, space.values);
          for (std::size_t i = 0; i < count; ++i) {
            if (kinds[i] == cover::none) continue;
            const auto& at = space.of[i];
            const index_t rows = call.queries.tiles[first + i].rows;
            const key_tile keys = masking[i].trimmed(segment.table, whole, kinds[i]);
            if (keys.rows == 0) continue;
            const index_t skipped = keys.row - whole.row;
            gemm::template multiply<into::set>(keys.rows, rows, qk_dim, k_rows.from(skipped), k_rows.row, 1,
                                               at.q_columns, query_tile_rows, space.scores, query_tile_rows);
            masking[i].apply(segment.table, keys, kinds[i], space.scores);
            if (softmax::raise_max(rows, keys.rows, space.scores, at.state))
              for (index_t q = 0; q < rows; ++q) tile::scale_row(acc[i].from(q), v_dim, at.state.shrink[q]);
            softmax::exponentiate(rows, keys.rows, space.scores, at.state);
            masking[i].for_seen(keys.rows, [&](index_t key, index_t n) {
              gemm::template multiply<into::add>(rows, v_dim, n, space.scores + key * query_tile_rows, 1,
                                                 query_tile_rows, v_rows.from(skipped + key), v_rows.row,
                                                 acc[i].pointer, acc[i].row);
            });
          }
        });
      for (std::size_t i = 0; i < count; ++i)
        end_state(call, state, acc[i], b, h, call.queries.tiles[first + i], v_dim, space.of[i]);
    });
  }

  /// Per query tile and key tile: P = exp(S − lse), dP = V·dOᵀ, dS = scale·P∘(dP − delta);
  /// dV += P·dO, dK += dS·Q, dQ += dSᵀ·K.
  template <class T, class Mask>
  void backward(const backward_call<T>& call, const Mask& mask) const {
    const index_t qk_dim = call.q.dim(), v_dim = call.dout.dim();
    const index_t qk_row = tile::padded(qk_dim), v_row = tile::padded(v_dim);
    carver walk(region{call.workspace, 0});
    const backward_space space(walk, qk_dim, v_dim);
    typename tile::sum_rows dq[backward_group];
    masker<Bytes, Mask> masking[backward_group];
    for_each_group<backward_group>(call, [&](index_t b, index_t h, std::size_t first, std::size_t count, bool once) {
      const index_t kv = call.heads.kv_of(h);
      for (std::size_t i = 0; i < count; ++i) {
        const query_tile queries = call.queries.tiles[first + i];
        const auto& at = space.of[i];
        // A row that saw nothing adds nothing, whatever its q, dout and delta hold: zeros, and exp(s − ∞) = 0.
        bool dead[std::size_t{query_tile_rows}];
        for (index_t q = 0; q < query_tile_rows; ++q) {
          const float lse = q < queries.rows ? call.lse.at(b, h, queries.row + q) : -infinity;
          dead[q] = lse == -infinity;
          at.loss.lse[q] = dead[q] ? infinity : lse;
          at.loss.scaled_delta[q] = dead[q] ? 0 : call.scale * call.delta.at(b, h, queries.row + q);
        }
        tile::copy(call.q, b, queries.row, queries.rows, h, dead, at.q_rows);
        tile::copy(call.dout, b, queries.row, queries.rows, h, dead, at.dout_rows);
        tile::transpose(at.q_rows, qk_row, queries.rows, call.scale, at.q_columns);
        tile::transpose(at.dout_rows, v_row, queries.rows, 1, at.dout_columns);
        dq[i] = tile::borrow(call.dq, b, queries.row, queries.rows, h, once, at.dq);
        masking[i].start(call.queries, queries, mask);
      }
      for (const kv_segment<T>& segment : call.segments)
        for_each_tile<backward_group>(segment.table, first, count, [&](const key_tile& whole, const auto& kinds) {
          const auto k_rows = tile::rows_of(segment.k, b, whole, kv, once, space.keys);
          const auto v_rows = tile::rows_of(segment.v, b, whole, kv, once, space.values);
          const auto dk = tile::borrow(segment.dk, b, whole.row, whole.rows, kv, once, space.dk);
          const auto dv = tile::borrow(segment.dv, b, whole.row, whole.rows, kv, once, space.dv);
          for (std::size_t i = 0; i < count; ++i) {
            if (kinds[i] == cover::none) continue;
            const auto& at = space.of[i];
            const index_t rows = call.queries.tiles[first + i].rows;
            const key_tile keys = masking[i].trimmed(segment.table, whole, kinds[i]);
            if (keys.rows == 0) continue;
            const index_t skipped = keys.row - whole.row;
            gemm::template multiply<into::set>(keys.rows, rows, qk_dim, k_rows.from(skipped), k_rows.row, 1,
                                               at.q_columns, query_tile_rows, space.scores, query_tile_rows);
            masking[i].apply(segment.table, keys, kinds[i], space.scores);
            gemm::template multiply<into::set>(keys.rows, rows, v_dim, v_rows.from(skipped), v_rows.row, 1,
                                               at.dout_columns, query_tile_rows, space.dscores, query_tile_rows);
            softmax::gradient(rows, keys.rows, space.scores, space.dscores, call.scale, at.loss);
            gemm::template multiply<into::add>(keys.rows, v_dim, rows, space.scores, query_tile_rows, 1, at.dout_rows,
                                               v_row, dv.from(skipped), dv.row);
            gemm::template multiply<into::add>(keys.rows, qk_dim, rows, space.dscores, query_tile_rows, 1, at.q_rows,
                                               qk_row, dk.from(skipped), dk.row);
            masking[i].for_seen(keys.rows, [&](index_t key, index_t n) {
              gemm::template multiply<into::add>(rows, qk_dim, n, space.dscores + key * query_tile_rows, 1,
                                                 query_tile_rows, k_rows.from(skipped + key), k_rows.row, dq[i].pointer,
                                                 dq[i].row);
            });
          }
          tile::give_back(dk, segment.dk, b, whole.row, whole.rows, kv);
          tile::give_back(dv, segment.dv, b, whole.row, whole.rows, kv);
        });
      for (std::size_t i = 0; i < count; ++i) {
        const query_tile queries = call.queries.tiles[first + i];
        tile::give_back(dq[i], call.dq, b, queries.row, queries.rows, h);
      }
    });
  }

 private:
  using V = vectors<Bytes>;
  using tile = host_tile<Bytes>;
  using softmax = host_softmax<Bytes>;
  using gemm = micro_gemm<Bytes>;
  using into = typename gemm::into;
  using floats = typename V::floats;
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  // Query tiles at a time: more of them read the keys less often, fewer leave more of the second-level cache to them.
  static constexpr std::size_t forward_group = 4, backward_group = 4;

  struct forward_space {
    struct query_side {
      float *q_columns, *acc;
      typename softmax::state state;
    };
    query_side of[forward_group];
    float *scores, *keys, *values;
    forward_space(carver& walk, index_t qk_dim, index_t v_dim) {
      for (query_side& at : of)
        at = {
            walk.take<float>(tile::padded(qk_dim) * query_tile_rows),
            walk.take<float>(query_tile_rows * tile::padded(v_dim)),
            {walk.take<float>(query_tile_rows), walk.take<float>(query_tile_rows), walk.take<float>(query_tile_rows)}};
      scores = walk.take<float>(key_tile_rows * query_tile_rows);
      keys = walk.take<float>(key_tile_rows * tile::padded(qk_dim));
      values = walk.take<float>(key_tile_rows * tile::padded(v_dim));
    }
  };

  struct backward_space {
    struct query_side {
      float *q_columns, *dout_columns, *q_rows, *dout_rows, *dq;
      typename softmax::loss loss;
    };
    query_side of[backward_group];
    float *scores, *dscores, *keys, *values, *dk, *dv;
    backward_space(carver& walk, index_t qk_dim, index_t v_dim) {
      const index_t qk = tile::padded(qk_dim), v = tile::padded(v_dim);
      for (query_side& at : of)
        at = {walk.take<float>(qk * query_tile_rows),
              walk.take<float>(v * query_tile_rows),
              walk.take<float>(query_tile_rows * qk),
              walk.take<float>(query_tile_rows * v),
              walk.take<float>(query_tile_rows * qk),
              {walk.take<float>(query_tile_rows), walk.take<float>(query_tile_rows)}};
      scores = walk.take<float>(key_tile_rows * query_tile_rows);
      dscores = walk.take<float>(key_tile_rows * query_tile_rows);
      keys = walk.take<float>(key_tile_rows * qk);
      values = walk.take<float>(key_tile_rows * v);
      dk = walk.take<float>(key_tile_rows * qk);
      dv = walk.take<float>(key_tile_rows * v);
    }
  };
  using forward_side = typename forward_space::query_side;
  using backward_side = typename backward_space::query_side;

  /// f(batch, head, first query tile, how many, are they so few rows that a key is used about once?)
  template <std::size_t Most, class Call, class F>
  static void for_each_group(const Call& call, F&& f) {
    const std::span<const query_tile> tiles = call.queries.tiles;
    for (index_t b = 0; b < call.q.batch(); ++b)
      for (index_t h = 0; h < call.q.heads(); ++h)
        for (std::size_t first = 0; first < tiles.size(); first += Most) {
          const std::size_t count = (std::min)(Most, tiles.size() - first);
          f(b, h, first, count, count == 1 && tiles[first].rows <= V::lanes);
        }
  }

  /// Where the tile's acc lies: in the state itself if that is going on or may be, else in the workspace.
  template <class Call>
  static typename tile::sum_rows begin_state(const Call& call, const state_rows& state, index_t b, index_t h,
                                             query_tile queries, const forward_side& at) {
    const index_t dim = state.acc.dim();
    std::fill(at.state.max, at.state.max + query_tile_rows, -infinity);
    std::fill(at.state.sum, at.state.sum + query_tile_rows, 0.0f);
    if (call.in == state_in::carry) {
      for (index_t i = 0; i < queries.rows; ++i) {
        at.state.max[i] = state.max.at(b, h, queries.row + i);
        at.state.sum[i] = state.sum.at(b, h, queries.row + i);
      }
      return tile::borrow(state.acc, b, queries.row, queries.rows, h, true, at.acc);
    }
    typename tile::sum_rows acc{at.acc, tile::padded(dim)};
    if (call.out_kind == state_out::carry && tile::lie_well(state.acc, true))
      acc = {state.acc.row(b, queries.row, h), dim};
    std::fill(acc.pointer, acc.pointer + queries.rows * acc.row, 0.0f);
    return acc;
  }

  template <class T, class Out>
  static void end_state(const forward_call<T, Out>& call, const state_rows& state, const typename tile::sum_rows& acc,
                        index_t b, index_t h, query_tile queries, index_t v_dim, const forward_side& at) {
    if (call.out_kind == state_out::carry) {
      for (index_t i = 0; i < queries.rows; ++i) {
        state.max.at(b, h, queries.row + i) = at.state.max[i];
        state.sum.at(b, h, queries.row + i) = at.state.sum[i];
      }
      return tile::give_back(acc, state.acc, b, queries.row, queries.rows, h);
    }
    for (index_t i = 0; i < queries.rows; ++i) {
      const float sum = at.state.sum[i];
      const float* from = acc.from(i);
      Out* out = call.out.row(b, queries.row + i, h);
      for (index_t d = 0; d < v_dim; ++d) out[d] = Out(sum == 0 ? 0.0f : from[d] / sum);
      call.lse.at(b, h, queries.row + i) = at.state.max[i] + std::log(sum);  // nothing seen: −∞ + −∞
    }
  }
};

/// The host's fast kernel for the processor that this file is compiled for.
using host_fast = basic_host_fast<native_vector_bytes>;

}  // namespace v0_1
}  // namespace seqpar
