// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuDNN's attention as a block kernel. Needs <cudnn.h> and libcudnn (target seqpar::cudnn), no nvcc.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <seqpar/cuda/by_rectangles.hpp>
#include <seqpar/cuda/cudnn_graph.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// cuDNN's SDPA, forward. Its plans are built by prepare, one for each shape, and kept; a copy starts with none. What
/// cuDNN refuses it is asked once.
/// Host: a run looks its plan up; cuDNN's variant packs are host objects of cuDNN's, made in every run. Device memory:
/// none but the workspace given. Capture: after prepare, the first run too.
/// Determinism: cuDNN's; cudnn_on_gpu compares two runs bit by bit. Results are T, lse is fp32.
class cudnn_sdpa {
 public:
  static constexpr index_t workspace_bytes = index_t{1} << 20;  ///< engines that need more are not taken

  cudnn_sdpa() = default;
  cudnn_sdpa(const cudnn_sdpa&) {}
  cudnn_sdpa(cudnn_sdpa&& other) noexcept { swap(other); }
  cudnn_sdpa& operator=(cudnn_sdpa other) noexcept {
    swap(other);
    return *this;
  }
  ~cudnn_sdpa() {
    plans_.clear();
    if (handle_) cudnnDestroy(handle_);
  }

  template <class T, class Exec>
  void prepare(const sdpa_call<T>& call, const Exec&) {
    const sdpa_shape shape = shape_of(call);
    if (!aligned(call) || find(shape)) return;
    if (!handle_)
      if (const cudnnStatus_t s = cudnnCreate(&handle_); s != CUDNN_STATUS_SUCCESS) handle_ = nullptr;
    sdpa_plan plan = handle_ ? build_sdpa({handle_}, shape, workspace_bytes) : sdpa_plan{{}, "cuDNN finds no device"};
    if (!plan.plan.ok()) refused_ = plan.refused;
    plans_.push_back({shape, std::move(plan)});
  }
  template <class T, class Exec>
  bool ready(const sdpa_call<T>& call, const Exec&) const {
    const sdpa_plan* found = aligned(call) ? find(shape_of(call)) : nullptr;
    return found && found->plan.ok();
  }
  template <class T, class Exec>
  status run(const sdpa_call<T>& call, const Exec& exec) const {
    // By-value tensors are read before cudnnBackendExecute returns.
    float scale = call.scale, nothing = -std::numeric_limits<float>::infinity();
    std::int32_t right = call.right;
    float left = static_cast<float>(call.left) + 1;
    std::array<std::int64_t, 9> names{q_uid, k_uid, v_uid, out_uid, lse_uid, scale_uid};
    std::array<void*, 9> pointers{const_cast<T*>(call.q.pointer),
                                  const_cast<T*>(call.k.pointer),
                                  const_cast<T*>(call.v.pointer),
                                  call.out.pointer,
                                  call.lse,
                                  &scale};
    std::size_t count = 6;
    const auto add = [&](std::int64_t name, void* pointer) {
      names[count] = name;
      pointers[count++] = pointer;
    };
    const bool on_left = call.left != rectangle::open, on_right = call.right != rectangle::open;
    if (on_left || on_right) add(nothing_uid, &nothing);
    if (on_right && right > 0) add(right_uid, &right);
    if (on_left) add(left_uid, &left);
    cudnn_descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(names).first(count));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers).first(count));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, call.workspace.pointer);
    pack.finalize();
    pack.note(cudnnSetStream(handle_, exec.compute));
    if (pack.ok()) pack.note(cudnnBackendExecute(handle_, find(shape_of(call))->plan.get(), pack.get()));
    return pack.ok()
               ? status{}
               : status{errc::transport_failed, "cuda: cuDNN's attention failed", -1, cudnnGetErrorString(pack.said())};
  }
  /// Of how many shapes it has asked cuDNN.
  std::size_t asked() const { return plans_.size(); }
  /// Why cuDNN refused the last shape that it refused.
  const std::string& refused() const { return refused_; }

 private:
  template <class T>
  static sdpa_shape shape_of(const sdpa_call<T>& c) {
    const auto strides = [](const auto& v) { return std::array<index_t, 3>{v.stride[0], v.stride[1], v.stride[2]}; };
    return {std::is_same_v<T, bfloat16> ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
            c.q.batch(),
            c.q.heads(),
            c.k.heads(),
            c.q.tokens(),
            c.k.tokens(),
            c.q.dim(),
            c.v.dim(),
            strides(c.q),
            strides(c.k),
            strides(c.v),
            strides(c.out),
            c.left,
            c.right};
  }
  template <class T>
  static bool aligned(const sdpa_call<T>& c) {
    return rows<const T>::of(c.q).aligned() && rows<const T>::of(c.k).aligned() && rows<const T>::of(c.v).aligned() &&
           rows<T>::of(c.out).aligned();
  }
  const sdpa_plan* find(const sdpa_shape& shape) const {
    for (const built& b : plans_)
      if (b.shape == shape) return &b.plan;
    return nullptr;
  }
  void swap(cudnn_sdpa& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(plans_, other.plans_);
    std::swap(refused_, other.refused_);
  }

  struct built {
    sdpa_shape shape;
    sdpa_plan plan;
  };
  cudnnHandle_t handle_ = nullptr;
  std::vector<built> plans_;
  std::string refused_;
};

/// Attention by cuDNN where the mask falls into few rectangles, else by Fallback (cuda::attention<…>).
template <class Fallback>
using cudnn_attention = by_rectangles<cudnn_sdpa, Fallback>;

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
