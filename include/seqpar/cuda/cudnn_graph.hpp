// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scaled dot-product attention with a diagonal band as an execution plan of cuDNN's backend. Needs <cudnn.h>, no nvcc.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <seqpar/kernel/rectangles.hpp>

static_assert(CUDNN_VERSION >= 91300, "[seqpar] cudnn.hpp needs cuDNN 9.13 or later, which has the SDPA operation");

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// A descriptor of cuDNN's backend.
class cudnn_descriptor {
 public:
  cudnn_descriptor() = default;
  explicit cudnn_descriptor(cudnnBackendDescriptorType_t type) { note(cudnnBackendCreateDescriptor(type, &handle_)); }
  cudnn_descriptor(cudnn_descriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), said_(other.said_) {}
  cudnn_descriptor& operator=(cudnn_descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(said_, other.said_);
    return *this;
  }
  ~cudnn_descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  cudnnBackendDescriptor_t get() const { return handle_; }
  /// The first call that failed.
  cudnnStatus_t said() const { return said_; }
  bool ok() const { return handle_ && said_ == CUDNN_STATUS_SUCCESS; }

  template <class V>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
    note(cudnnBackendSetAttribute(handle_, name, type, 1, &value));
  }
  template <class V>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const V> values) {
    note(cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value);
  }
  void finalize() {
    if (said_ == CUDNN_STATUS_SUCCESS) note(cudnnBackendFinalize(handle_));
  }
  void note(cudnnStatus_t s) {
    if (said_ == CUDNN_STATUS_SUCCESS) said_ = s;
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
  cudnnStatus_t said_ = CUDNN_STATUS_SUCCESS;
};

/// What a plan is built for: the device of a handle, or one that is only described.
struct cudnn_target {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device = nullptr;
};

/// One call on dense rectangles of rows: out = softmax(scale·q·kᵀ | −left ≤ j − i ≤ right)·v, lse = log Σ exp, fp32.
/// Strides of batch, row and head in elements; lse is dense [batch][heads][q_rows]. Query head h uses kv head
/// h / (heads / kv_heads).
struct sdpa_shape {
  cudnnDataType_t type;  ///< CUDNN_DATA_HALF or CUDNN_DATA_BFLOAT16
  index_t batch, heads, kv_heads, q_rows, k_rows, qk_dim, v_dim;
  std::array<index_t, 3> q, k, v, out;
  std::int32_t left = rectangle::open, right = rectangle::open;
  friend bool operator==(const sdpa_shape&, const sdpa_shape&) = default;
};

/// What a variant pack names.
enum sdpa_uid : std::int64_t { q_uid = 1, k_uid, v_uid, out_uid, lse_uid, scale_uid, nothing_uid, right_uid, left_uid };

/// An execution plan, or why there is none.
struct sdpa_plan {
  cudnn_descriptor plan;
  std::string refused;
};

/// How a pointwise operation computes.
struct pointwise_math {
  cudnnDataType_t in = CUDNN_DATA_FLOAT;
  std::int64_t axis = -1;                     ///< of an index
  cudnnBackendDescriptor_t chosen = nullptr;  ///< where x is taken, else b
};

/// The operation graph of a shape. A full rectangle is one SDPA operation (cuDNN ≥ 9.13); a band is spelled out in the
/// order in which cuDNN knows it: scores, scale, masks by row and column index, softmax, output.
class sdpa_graph {
 public:
  sdpa_graph(const cudnn_target& target, const sdpa_shape& n) : n_(n) {
    const handle q = rows_of(q_uid, n.heads, n.q_rows, n.qk_dim, n.q);
    const handle v = rows_of(v_uid, n.kv_heads, n.k_rows, n.v_dim, n.v);
    const handle out = rows_of(out_uid, n.heads, n.q_rows, n.v_dim, n.out);
    const handle lse = numbers(lse_uid, in_memory), scale = scalar(scale_uid, CUDNN_DATA_FLOAT);
    if (n.left == rectangle::open && n.right == rectangle::open) {
      cudnn_descriptor op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q);
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, rows_of(k_uid, n.kv_heads, n.k_rows, n.qk_dim, n.k));
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v);
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, out);
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, lse);
      op.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale);
      keep_operation(std::move(op));
    } else {
      const handle k_transposed =
          tensor(k_uid, n.type, {n.batch, n.kv_heads, n.qk_dim, n.k_rows}, {n.k[0], n.k[2], 1, n.k[1]}, in_memory);
      handle s = scores(CUDNN_DATA_FLOAT);
      matmul(q, k_transposed, s);
      s = new_scores(CUDNN_POINTWISE_MUL, s, scale);
      const handle nothing = scalar(nothing_uid, CUDNN_DATA_FLOAT);
      if (n.right != rectangle::open) {  // row + right ≥ column
        handle row = index_along(2, s);
        const handle column = index_along(3, s);
        if (n.right > 0)
          row = new_scores(CUDNN_POINTWISE_ADD, row, scalar(right_uid, CUDNN_DATA_INT32), {CUDNN_DATA_INT32},
                           CUDNN_DATA_INT32);
        s = where(CUDNN_POINTWISE_CMP_GE, row, column, s, nothing);
      }
      if (n.left != rectangle::open) {  // column + left + 1 > row
        const handle row = index_along(2, s);
        const handle column = new_scores(CUDNN_POINTWISE_ADD, index_along(3, s), scalar(left_uid, CUDNN_DATA_FLOAT));
        s = where(CUDNN_POINTWISE_CMP_GT, column, row, s, nothing);
      }
      const handle max = reduce(CUDNN_REDUCE_TENSOR_MAX, s);
      const handle p = new_scores(CUDNN_POINTWISE_EXP, new_scores(CUDNN_POINTWISE_SUB, s, max));
      const handle sum = reduce(CUDNN_REDUCE_TENSOR_ADD, p), log = numbers(next_++, inner);
      pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, log);
      pointwise(CUDNN_POINTWISE_ADD, max, log, lse);
      matmul(new_scores(CUDNN_POINTWISE_DIV, p, sum, {}, n.type), v, out);
    }
    graph_ = cudnn_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (const cudnn_descriptor& d : kept_) graph_.note(d.said());
    if (target.handle) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::span<const handle>(operations_));
    graph_.finalize();
  }
  const cudnn_descriptor& graph() const { return graph_; }

 private:
  using handle = cudnnBackendDescriptor_t;
  enum place { in_memory, inner, by_value };

  handle tensor(std::int64_t uid, cudnnDataType_t type, std::array<index_t, 4> dims, std::array<index_t, 4> strides,
                place at) {
    cudnn_descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const index_t>(dims));
    d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const index_t>(strides));
    d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, at == inner);
    d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, at == by_value);
    d.finalize();
    return keep(std::move(d));
  }
  handle rows_of(std::int64_t uid, index_t heads, index_t count, index_t dim, const std::array<index_t, 3>& s) {
    return tensor(uid, n_.type, {n_.batch, heads, count, dim}, {s[0], s[2], s[1], 1}, in_memory);
  }
  handle numbers(std::int64_t uid, place at) {
    return tensor(uid, CUDNN_DATA_FLOAT, {n_.batch, n_.heads, n_.q_rows, 1}, {n_.heads * n_.q_rows, n_.q_rows, 1, 1},
                  at);
  }
  handle scalar(std::int64_t uid, cudnnDataType_t type) {
    return tensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, by_value);
  }
  handle scores(cudnnDataType_t type) {
    return tensor(next_++, type, {n_.batch, n_.heads, n_.q_rows, n_.k_rows},
                  {n_.heads * n_.q_rows * n_.k_rows, n_.q_rows * n_.k_rows, n_.k_rows, 1}, inner);
  }

  handle keep(cudnn_descriptor d) {
    kept_.push_back(std::move(d));
    return kept_.back().get();
  }
  void keep_operation(cudnn_descriptor op, cudnn_descriptor how = {}) {
    op.finalize();
    if (how.get()) keep(std::move(how));
    operations_.push_back(keep(std::move(op)));
  }
  void matmul(handle a, handle b, handle c) {
    cudnn_descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR), op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how.get());
    op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    keep_operation(std::move(op), std::move(how));
  }
  handle reduce(cudnnReduceTensorOp_t what, handle x) {
    const handle y = numbers(next_++, inner);
    cudnn_descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, what);
    how.finalize();
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how.get());
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    keep_operation(std::move(op), std::move(how));
    return y;
  }
  void pointwise(cudnnPointwiseMode_t what, handle x, handle b, handle y, pointwise_math m = {}) {
    cudnn_descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, what);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, m.in);
    if (m.axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, m.axis);
    how.finalize();
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.get());
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (m.chosen) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, m.chosen);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    keep_operation(std::move(op), std::move(how));
  }
  /// The same into new scores of a type.
  handle new_scores(cudnnPointwiseMode_t what, handle x, handle b = nullptr, pointwise_math m = {},
                    cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const handle y = scores(type);
    pointwise(what, x, b, y, m);
    return y;
  }
  handle index_along(std::int64_t axis, handle like) {
    return new_scores(CUDNN_POINTWISE_GEN_INDEX, like, nullptr, {CUDNN_DATA_INT32, axis}, CUDNN_DATA_INT32);
  }
  /// x where a and b compare so, else nothing.
  handle where(cudnnPointwiseMode_t compare, handle a, handle b, handle x, handle nothing) {
    const handle seen = new_scores(compare, a, b, {CUDNN_DATA_BOOLEAN}, CUDNN_DATA_BOOLEAN);
    return new_scores(CUDNN_POINTWISE_BINARY_SELECT, x, nothing, {CUDNN_DATA_FLOAT, -1, seen});
  }

  sdpa_shape n_;
  cudnn_descriptor graph_;
  std::vector<cudnn_descriptor> kept_;
  std::vector<handle> operations_;
  std::int64_t next_ = 100;
};

/// The first engine that cuDNN's heuristics name, that it can build, and that works in so many bytes.
inline sdpa_plan build_sdpa(const cudnn_target& target, const sdpa_shape& n, index_t most_workspace) {
  sdpa_plan built;
  const auto refused = [&](const char* why) {
    std::array<char, 512> text{};
    cudnnGetLastErrorString(text.data(), text.size());
    built.refused = std::string(why) + ": " + text.data();
  };
  const sdpa_graph graph(target, n);
  if (!graph.graph().ok()) return refused("cuDNN refuses the graph"), std::move(built);
  cudnn_descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph().get());
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
  heuristics.finalize();
  constexpr std::int64_t most_engines = 8;
  std::vector<cudnn_descriptor> engines;
  std::array<cudnnBackendDescriptor_t, most_engines> list;
  for (cudnnBackendDescriptor_t& e : list) e = engines.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get();
  std::int64_t count = 0;
  if (heuristics.ok())
    heuristics.note(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, most_engines, &count, list.data()));
  if (!heuristics.ok()) count = 0;
  refused("cuDNN has no engine");
  for (std::int64_t i = 0; i < count; ++i) {
    cudnn_descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    if (target.device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, list[static_cast<std::size_t>(i)]);
    plan.finalize();
    std::int64_t bytes = 0, one = 0;
    if (plan.ok())
      plan.note(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                         &one, &bytes));
    if (!plan.ok()) {
      refused("cuDNN cannot build its engine");
      if (plan.said() / 1000 * 1000 != CUDNN_STATUS_NOT_SUPPORTED) break;  // no other engine mends this
    } else if (bytes > most_workspace) {
      built.refused = "cuDNN's engine needs " + std::to_string(bytes) + " bytes of workspace";
    } else {
      return {std::move(plan), {}};
    }
  }
  return built;
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
