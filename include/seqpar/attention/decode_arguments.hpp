// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a decode plan is told, and what its runs are given.
#pragma once

#include <limits>
#include <string>

#include <seqpar/attention/arguments.hpp>
#include <seqpar/attention/shape.hpp>
#include <seqpar/exchange/detail/plan_checks.hpp>
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
  index_t count() const { return positions_.count; }
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

/// New tokens' keys and values, whole on every rank, and this rank's cache [batch, cache_rows, kv_heads_here, …].
template <element T>
struct append_arguments {
  rows_view<const T> k{}, v{};  ///< [batch, new tokens, kv_heads, …]
  rows_view<T> k_cache{}, v_cache{};
};

namespace detail {

inline constexpr buffer_texts append_texts{
    "decode.append: a tensor is missing or has another shape than planned; append_arguments tells the shapes",
    "decode.append: the last dimension of a tensor must be dense; give stride 1",
    "",
    "decode.append: a tensor with elements is null",
    "decode.append: the strides of a cache give two elements one place",
    "decode.append: a cache overlaps another buffer; give separate memory"};
inline constexpr buffer_texts decode_texts{
    "decode.forward: a tensor is missing or has another shape than planned; decode_shape tells the shapes",
    "decode.forward: the last dimension of a tensor must be dense; give stride 1",
    "decode.forward: lse has another shape than planned; give [batch, heads, queries]",
    "decode.forward: a tensor with elements is null",
    "decode.forward: the strides of an output give two elements one place",
    "decode.forward: an output or work memory overlaps another buffer; give separate memory"};

/// The greatest position that tables hold; intervals end behind it.
inline constexpr index_t most_position = std::numeric_limits<std::int32_t>::max() - 1;

/// Do all positions lie in 0 … last? Whatever the run's numbers.
constexpr bool lies_within(run r, index_t last) {
  if (r.count == 0) return true;
  if (r.first < 0 || r.first > last) return false;
  return r.count == 1 || (r.step <= (last - r.first) / (r.count - 1) && r.step >= -r.first / (r.count - 1));
}

template <class = when_used>
failure check_decode_shape(const char* where, const decode_shape& shape, int members) {
  const attention_shape n = shape.attention();
  if (failure f = check_shape(where, n)) return f;
  if (shape.queries < 1 || shape.queries > most_position)
    return invalid(where, {"queries must be 1 to 2^31 - 2, got ", shape.queries});
  if (shape.cache_rows < 0 || shape.cache_rows > most_position)
    return invalid(where, {"cache_rows must be 0 to 2^31 - 2, got ", shape.cache_rows});
  for (index_t dim : {index_t{n.head_dim}, n.v_dim()})
    for (index_t rows : {shape.queries, shape.cache_rows})
      if (exceeds_64_bits({n.batch, rows, n.heads, dim + 1, members + 1, sizeof(float)}) ||
          exceeds_64_bits({shape.queries, shape.cache_rows, 16}))
        return invalid(where, "the tensors have more than 2^62 bytes; give smaller sizes");
  return {};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
