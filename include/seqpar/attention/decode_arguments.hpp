// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a decode plan is told, and what its runs are given.
#pragma once

#include <seqpar/attention/shape.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

/// q, out [batch, queries, heads, …] whole on every rank; cache k, v [batch, cache_rows, kv heads, …], of which the
/// layout says how many rows are filled.
struct decode_shape {
  index_t batch = 1;
  extent heads;
  extent kv_heads;
  extent head_dim;        ///< 1 … 256
  index_t value_dim = 0;  ///< 0: as head_dim
  extent queries = 1;     ///< the most that one run brings
  extent cache_rows;      ///< room in every rank's cache; appended::rows_for(tokens) tells how much is needed

  attention_shape attention() const {
    return {.batch = batch, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .value_dim = value_dim};
  }
};

struct decode_options {
  std::optional<float> scale = {};  ///< unset: 1/√head_dim
  agreement check = agreement::checked;
};

/// The positions of a run's queries: the last `count` tokens of the cache, or any run of positions.
class decode_queries {
 public:
  template <std::integral Count>
  decode_queries(Count count) : positions_{0, static_cast<index_t>(count), 1}, last_(true) {}
  decode_queries(run positions) : positions_(positions) {}
  run of(index_t tokens) const { return last_ ? run{tokens - positions_.count, positions_.count, 1} : positions_; }

 private:
  run positions_;
  bool last_ = false;
};

/// The run's tensors. lse may be left out.
template <element T, element Out = T>
struct decode_arguments {
  rows_view<const T> q{}, k{}, v{};  ///< k, v: this rank's cache, cache_rows rows
  rows_view<Out> out{};
  heads_view<float> lse{};
};

/// New tokens' keys and values, whole on every rank, and this rank's cache.
template <element T>
struct append_arguments {
  rows_view<const T> k{}, v{};  ///< [batch, new tokens, kv_heads, …]
  rows_view<T> k_cache{}, v_cache{};
};

}  // namespace v0_1
}  // namespace seqpar
