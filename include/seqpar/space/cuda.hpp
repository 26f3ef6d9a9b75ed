// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device memory, worked on by streams. A plain C++ compiler and cuda_runtime_api.h are enough.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include <seqpar/space/concept.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// ok, or what the runtime says, about `what`.
inline status status_of(cudaError_t e, const char* what) {
  return e == cudaSuccess ? status{} : status{errc::transport_failed, what, -1, cudaGetErrorString(e)};
}

/// to[k] = from[k] in stream order.
using block_copier = cudaError_t(const block& to, const block& from, cudaStream_t);
inline block_copier copy_block;

/// Where a call runs: kernels and copies on `compute`, messages on `exchange`, both of the current device; the call
/// returns when its work is given to them. The two may be one stream, and then nothing overlaps.
struct on_stream {
  cudaStream_t compute = nullptr, exchange = nullptr;
  int sm_margin = 0;                 ///< multiprocessors that kernels leave to the exchange
  block_copier* pack = &copy_block;  ///< how a transport packs blocks that are not one piece
};

/// A mark in a stream's work. Made on the current device, without timing.
class event {
 public:
  event() = default;
  event(event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  event& operator=(event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~event() {
    if (handle_) cudaEventDestroy(handle_);
  }
  cudaError_t create() noexcept {
    return handle_ ? cudaSuccess : cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming);
  }
  cudaError_t record(cudaStream_t s) const noexcept { return cudaEventRecord(handle_, s); }
  /// What is given to `s` from now on comes behind the mark.
  cudaError_t hold(cudaStream_t s) const noexcept { return cudaStreamWaitEvent(s, handle_, 0); }
  cudaError_t query() const noexcept { return cudaEventQuery(handle_); }
  cudaError_t finish() const noexcept { return cudaEventSynchronize(handle_); }

 private:
  cudaEvent_t handle_ = nullptr;
};

/// How an exchange leaves a run and comes back: it starts behind all that compute was given so far, and compute goes on
/// behind it. So a launch sees every write that the program made before it, a slot that an earlier kernel read is free,
/// and what is computed between launch and wait runs beside the messages.
class crossing {
 public:
  cudaError_t create() noexcept {
    const cudaError_t e = forked_.create();
    return e == cudaSuccess ? done_.create() : e;
  }
  cudaError_t fork(const on_stream& s) const noexcept {
    const cudaError_t e = forked_.record(s.compute);
    return e == cudaSuccess ? forked_.hold(s.exchange) : e;
  }
  cudaError_t done(const on_stream& s) const noexcept { return done_.record(s.exchange); }
  cudaError_t join(const on_stream& s) const noexcept { return done_.hold(s.compute); }
  cudaError_t query() const noexcept { return done_.query(); }

 private:
  event forked_, done_;
};

namespace detail {
/// May rows lie so for the runtime's 2-D copies? Their pitch has 31 bits (cudaDevAttrMaxPitch).
inline bool pitched(const block& b) {
  return b.row_stride >= b.column_bytes && b.row_stride < index_t{1} << 31;
}
}  // namespace detail

/// to[k] = from[k] in stream order. The copy is cut into as few 1-D or 2-D copies as the strides allow.
inline cudaError_t copy_block(const block& to, const block& from, cudaStream_t stream) {
  if (from.bytes() == 0) return cudaSuccess;
  const auto flat = [&](const block& t, const block& f) {  // both: rows of one piece, at even distances
    const auto width = static_cast<std::size_t>(f.column_bytes), rows = static_cast<std::size_t>(f.rows);
    if (t.rows == 1 || (t.row_stride == f.column_bytes && f.row_stride == f.column_bytes))
      return cudaMemcpyAsync(t.pointer, f.pointer, width * rows, cudaMemcpyDefault, stream);
    if (detail::pitched(t) && detail::pitched(f))
      return cudaMemcpy2DAsync(t.pointer, static_cast<std::size_t>(t.row_stride), f.pointer,
                               static_cast<std::size_t>(f.row_stride), width, rows, cudaMemcpyDefault, stream);
    for (index_t r = 0; r < f.rows; ++r)  // a stride that goes backwards, or far
      if (const cudaError_t e =
              cudaMemcpyAsync(seqpar::detail::byte_at(t, r * t.row_stride),
                              seqpar::detail::byte_at(f, r * f.row_stride), width, cudaMemcpyDefault, stream);
          e != cudaSuccess)
        return e;
    return cudaSuccess;
  };
  block t = seqpar::detail::merged(to), f = seqpar::detail::merged(from);
  t = seqpar::detail::cut_like(t, f);
  f = seqpar::detail::cut_like(f, t);
  if (t.rows != f.rows || t.columns != f.columns || t.column_bytes != f.column_bytes) {
    // Pieces that do not line up: one copy for each stretch in which neither ends.
    seqpar::detail::piece_walk a(t), b(f);
    for (index_t left = f.bytes(); left > 0;) {
      const index_t bytes = std::min(a.left_in_piece(), b.left_in_piece());
      if (const cudaError_t e =
              cudaMemcpyAsync(a.pointer(), b.pointer(), static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream);
          e != cudaSuccess)
        return e;
      a.advance(bytes);
      b.advance(bytes);
      left -= bytes;
    }
    return cudaSuccess;
  }
  if (t.columns == 1) return flat(t, f);
  // rows × columns of pieces: the longer axis goes into the 2-D copies
  const bool by_row = f.rows <= f.columns;
  const auto slice = [&](const block& b, index_t i) {
    return by_row
               ? block{seqpar::detail::byte_at(b, i * b.row_stride), b.columns, b.column_stride, 1, 0, b.column_bytes}
               : block{seqpar::detail::byte_at(b, i * b.column_stride), b.rows, b.row_stride, 1, 0, b.column_bytes};
  };
  for (index_t i = 0; i < (by_row ? f.rows : f.columns); ++i)
    if (const cudaError_t e = flat(slice(t, i), slice(f, i)); e != cudaSuccess) return e;
  return cudaSuccess;
}

/// What `compute` is given in the order of the calls. Copies and zeros come from the runtime; sums need kernels.
class stream_space {
 public:
  explicit stream_space(const on_stream& s) : stream_(s.compute), exchange_(s.exchange) {}

  void copy(const block& to, const block& from) const { note(copy_block(to, from, stream_)); }
  void zero(const block& at) const {
    if (at.bytes() == 0) return;
    const block b = seqpar::detail::merged(at);
    for (index_t c = 0; c < b.columns; ++c) {
      std::byte* first = seqpar::detail::byte_at(b, c * b.column_stride);
      const auto width = static_cast<std::size_t>(b.column_bytes), rows = static_cast<std::size_t>(b.rows);
      if (b.rows == 1)
        note(cudaMemsetAsync(first, 0, width, stream_));
      else if (detail::pitched(b))
        note(cudaMemset2DAsync(first, static_cast<std::size_t>(b.row_stride), 0, width, rows, stream_));
      else
        for (index_t r = 0; r < b.rows; ++r) note(cudaMemsetAsync(first + r * b.row_stride, 0, width, stream_));
    }
  }
  template <class T>
  void fill(const block&, const T&) const {
    needs_kernels<T>();
  }
  template <class To, class From>
  void store(const block&, const block&, write) const {
    needs_kernels<To>();
  }
  template <class X, class Y>
  void row_dots(const rows_view<const X>&, const rows_view<const Y>&, const heads_view<const float>&,
                const heads_view<float>&) const {
    needs_kernels<X>();
  }
  template <std::same_as<state_rows> States>
  void merge(const States&, const States&) const {
    needs_kernels<States>();
  }
  void upload(void* to, const void* from, index_t bytes) const {
    if (bytes > 0) note(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_));
  }
  /// Memory of the host alone is out of these streams' reach, unless the device reads through the host's page tables.
  /// Streams of another device than the current one are told from CUDA 12.8 on; before, by the first call that fails.
  const char* problem_of(const void* p) const {
    cudaPointerAttributes at{};
    int device = 0, reads_pageable = 0;
#if CUDART_VERSION >= 12080
    for (cudaStream_t s : {stream_, exchange_})
      if (int of = 0;
          s && cudaGetDevice(&device) == cudaSuccess && cudaStreamGetDevice(s, &of) == cudaSuccess && of != device)
        return "cuda: a stream belongs to another device than the current one; call cudaSetDevice before";
#endif
    if (cudaPointerGetAttributes(&at, p) != cudaSuccess || at.type != cudaMemoryTypeUnregistered) return nullptr;
    if (cudaGetDevice(&device) == cudaSuccess)
      cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess, device);
    return reads_pageable ? nullptr : "cuda: a buffer is host memory; give memory of the device";
  }
  status outcome() const {
    return status_of(first_, "cuda: a call of the runtime failed");
  }
  cudaError_t first_error() const {
    return first_;
  }
  status finish() const {
    note(cudaStreamSynchronize(stream_));
    return outcome();
  }

 protected:
  void note(cudaError_t e) const {
    if (first_ == cudaSuccess) first_ = e;
  }
  cudaStream_t stream_, exchange_;

 private:
  template <class T>
  static void needs_kernels() {
    static_assert(sizeof(T) == 0,
                  "[seqpar] this call adds or fills, which on a stream needs kernels: give it cuda::on_device of "
                  "<seqpar/cuda.cuh>, compiled by nvcc");
  }
  mutable cudaError_t first_ = cudaSuccess;
};

inline stream_space space_of(const on_stream& s) {
  return stream_space(s);
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
