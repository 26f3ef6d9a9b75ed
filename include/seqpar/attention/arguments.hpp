// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a run of an attention plan is given, and the checks on it that come before anything is posted.
#pragma once

#include <seqpar/attention/shape.hpp>
#include <seqpar/exchange/detail/run_checks.hpp>
#include <seqpar/memory.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

/// The replicated tokens' tensors, whole on every rank: q, out [batch, joint_q, heads, …], k, v [batch, joint_kv, …].
template <element T, element Out = T>
struct joint_forward {
  rows_view<const T> q{}, k{}, v{};
  rows_view<Out> out{};
  heads_view<float> lse{};
};

/// This rank's rows: q [batch, q rows, heads, head_dim] and so on (attention_shape has all shapes).
template <element T, element Out = T>
struct forward_arguments {
  rows_view<const T> q{}, k{}, v{};
  rows_view<Out> out{};
  heads_view<float> lse{};
  joint_forward<T, Out> joint{};
};

/// dout and dlse of joint tokens are the complete gradients, alike on every rank.
template <element T, element Out = T, element Grad = T>
struct joint_backward {
  rows_view<const T> q{}, k{}, v{};
  rows_view<const Out> out{};
  heads_view<const float> lse{};
  rows_view<const T> dout{};
  heads_view<const float> dlse{};  ///< may be empty: zero
  rows_view<Grad> dq{}, dk{}, dv{};
};

template <element T, element Out = T, element Grad = T>
struct backward_arguments {
  rows_view<const T> q{}, k{}, v{};
  rows_view<const Out> out{};
  heads_view<const float> lse{};
  rows_view<const T> dout{};
  heads_view<const float> dlse{};  ///< may be empty: zero
  rows_view<Grad> dq{}, dk{}, dv{};
  joint_backward<T, Out, Grad> joint{};
};

namespace detail {

/// The shapes of a member's tensors.
struct tensor_shapes {
  using four = std::array<index_t, 4>;
  using three = std::array<index_t, 3>;
  tensor_shapes(const attention_shape& n, index_t q_rows, index_t kv_rows)
      : q{n.batch, q_rows, n.heads, n.head_dim},
        k{n.batch, kv_rows, n.kv_heads, n.head_dim},
        v{n.batch, kv_rows, n.kv_heads, n.v_dim()},
        out{n.batch, q_rows, n.heads, n.v_dim()},
        lse{n.batch, n.heads, q_rows} {}
  four q, k, v, out;
  three lse;
};

/// What is said of a wrong buffer. Literals, since a run allocates nothing.
struct buffer_texts {
  const char *shape, *dense, *numbers, *null, *places, *overlap;
};
inline constexpr buffer_texts attention_texts{
    "attention: a tensor is missing or has another shape than planned; attention_shape tells the shapes, and the "
    "plan's "
    "q_rows() and kv_rows() the rows",
    "attention: the last dimension of a tensor must be dense; give stride 1",
    "attention: lse or dlse is missing or has another shape than planned; give [batch, heads, rows]",
    "attention: a tensor with elements is null",
    "attention: the strides of an output give two elements one place",
    "attention: an output or work memory overlaps another buffer; give separate memory"};

/// Collects the buffers of one run; the first thing wrong with them is its status, which names the buffer.
class buffer_checks {
 public:
  explicit buffer_checks(const buffer_texts& texts = attention_texts) : texts_(texts) {}

  template <class T>
  void input(const char* name, const rows_view<T>& v, const std::array<index_t, 4>& shape) {
    rows(name, v, shape, false);
  }
  template <class T>
  void output(const char* name, const rows_view<T>& v, const std::array<index_t, 4>& shape) {
    rows(name, v, shape, true);
  }
  template <class T>
  void input(const char* name, const heads_view<T>& v, const std::array<index_t, 3>& shape) {
    numbers(name, v, shape, false);
  }
  template <class T>
  void output(const char* name, const heads_view<T>& v, const std::array<index_t, 3>& shape) {
    numbers(name, v, shape, true);
  }
  void memory(const char* name, const region& r, index_t used) {
    add(name, {{r.pointer, 1, used, used, used, used}, 1, 1}, true);
  }
  /// May what is given to this space touch the buffers?
  template <class Space>
  void lie_in(const Space& work) {
    for (int i = 0; i < count_; ++i)
      if (const char* text = problem_of_memory(work, seen_[i].array.pointer))
        return fail(errc::invalid_argument, text, names_[i]);
  }
  const status& outcome() const { return status_; }

 private:
  template <class T>
  void rows(const char* name, const rows_view<T>& v, const std::array<index_t, 4>& shape, bool written) {
    if (v.shape != shape) {
      if (shape[0] * shape[1] * shape[2] * shape[3] != 0 || v.pointer != nullptr)
        fail(errc::invalid_argument, texts_.shape, name,
             first_difference(shape, v.shape, {" items", " rows", " heads", " numbers a head"}));
      return;
    }
    if (v.shape[3] > 1 && v.stride[3] != 1) fail(errc::invalid_argument, texts_.dense, name);
    add(name, {array_of(v), shape[1], shape[2]}, written);
  }
  template <class T>
  void numbers(const char* name, const heads_view<T>& v, const std::array<index_t, 3>& shape, bool written) {
    if (v.shape != shape) {
      if (shape[0] * shape[1] * shape[2] != 0 || v.pointer != nullptr)
        fail(errc::invalid_argument, texts_.numbers, name,
             first_difference(shape, v.shape, {" items", " heads", " rows"}));
      return;
    }
    add(name, {array_of(v), shape[2], shape[1]}, written);
  }
  template <class = when_used>
  void add(const char* name, const placed_array& a, bool written) {
    if (!a.has_bytes()) return;
    if (a.array.pointer == nullptr) return fail(errc::invalid_argument, texts_.null, name);
    if (written && !one_place_each(a)) return fail(errc::overlapping_buffers, texts_.places, name);
    for (int i = 0; i < count_; ++i)
      if ((written || written_[i]) && may_share(a, seen_[i]))
        return fail(errc::overlapping_buffers, texts_.overlap, name);
    if (count_ == most) return;
    written_[count_] = written;
    names_[count_] = name;
    seen_[count_++] = a;
  }
  void fail(errc code, const char* text, const char* name, const amounts& n = {}) {
    if (status_.ok()) status_ = {code, text, -1, name, n};
  }

  const buffer_texts& texts_;
  static constexpr int most = 32;
  placed_array seen_[most];
  bool written_[most] = {};
  const char* names_[most] = {};
  int count_ = 0;
  status status_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
