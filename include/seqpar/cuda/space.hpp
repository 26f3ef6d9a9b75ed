// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device memory, worked on by kernels: the executor launched_by<Launcher> and its space. Plain C++: what starts a
// kernel is the launcher's affair.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>

#include <seqpar/cuda/block_kernels.hpp>
#include <seqpar/cuda/merge_rows.hpp>
#include <seqpar/space/cuda.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// What starts kernels. Static, without state; legal while a stream is captured.
///
///   launch<Body>(blocks, params, stream)   1 ≤ blocks < 2^31
///   multiprocessors()                      of the current device
template <class L>
concept launcher = requires(const typename fill_body<16>::params& p, cudaStream_t stream) {
  { L::template launch<fill_body<16>>(index_t{}, p, stream) } -> std::same_as<cudaError_t>;
  { L::multiprocessors() } -> std::convertible_to<int>;
};

/// Of the current device.
inline int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) == cudaSuccess) cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

namespace detail {
/// What exchanges ask of the space, but for sums.
constexpr auto space_bodies() {
  return bodies<copy_body<1>, copy_body<2>, copy_body<4>, copy_body<8>, copy_body<16>>{} +
         bodies<fill_body<1>, fill_body<2>, fill_body<4>, fill_body<8>, fill_body<16>>{};
}
template <class To, class From>
constexpr auto store_bodies() {
  return bodies<store_body<To, From, wide<To, From>>, store_body<To, From, 1>>{};
}
/// What attention asks of it.
template <class T, class Out, class Grad>
constexpr auto space_bodies() {
  return space_bodies() +
         bodies<row_dots_body<T, Out, wide<T, Out>>, row_dots_body<T, Out, 1>, merge_rows<float, float>, put_body>{} +
         store_bodies<float, float>() + store_bodies<Grad, float>() + store_bodies<Grad, Grad>();
}

template <class Launcher, class... Bodies>
cudaError_t load_all(bodies<Bodies...>) {
  if constexpr (requires { Launcher::template load<Bodies...>(); })
    return Launcher::template load<Bodies...>();
  else
    return cudaSuccess;
}
}  // namespace detail

/// Two streams whose kernels `Launcher` starts: on_device of <seqpar/cuda.cuh> on a GPU.
template <class Launcher>
struct launched_by : on_stream {
  launched_by(const on_stream& s = {}) : on_stream(s) { pack = &copy; }
  /// Gives `compute` the kernel with blocks for `work` items, as many as the device takes. With a margin they are what
  /// fills the other multiprocessors at once, so that the exchange finds room whenever it comes.
  template <kernel_body Body>
  cudaError_t launch(index_t work, const typename Body::params& p) const {
    if (work <= 0) return cudaSuccess;
    index_t most = INT32_MAX;
    if (sm_margin > 0)
      most = std::max<index_t>(index_t{Launcher::multiprocessors()} - sm_margin, 1) * Body::blocks_per_sm;
    return Launcher::template launch<Body>(std::min(work, most), p, compute);
  }
  /// Puts what plans of these types ask of the space on the device, before it stands in a capture or beside a kernel
  /// that waits for a peer. For prepare.
  template <class... Elements>
  status load() const {
    const auto all = [] {
      if constexpr (sizeof...(Elements) == 0)
        return detail::space_bodies();
      else
        return detail::space_bodies<Elements...>();
    };
    return status_of(detail::load_all<Launcher>(all()), "cuda: the kernels are not built for this device");
  }

 private:
  static cudaError_t copy(const block& to, const block& from, cudaStream_t stream) {
    const auto work = space_of(launched_by({.compute = stream}));
    work.copy(to, from);
    return work.first_error();
  }
};

/// What `compute` is given in the order of the calls. Whole pieces of memory are copied and zeroed by the runtime.
template <class Launcher>
class kernel_space : public stream_space {
 public:
  explicit kernel_space(const launched_by<Launcher>& exec) : stream_space(exec), exec_(exec) {}

  void copy(const block& to, const block& from) const {
    if (from.bytes() == 0) return;
    const block t = seqpar::detail::merged(to), f = seqpar::detail::merged(from);
    if (one_piece(t) && one_piece(f)) return stream_space::copy(t, f);
    widest([&]<std::size_t Bytes>(bytes<Bytes>) {
      const bool fits = detail::cut_by(t, Bytes) && detail::cut_by(f, Bytes);
      if (fits) give<copy_body<Bytes>>(t, f);
      return fits;
    });
  }
  void zero(const block& at) const {
    if (at.bytes() == 0) return;
    const block b = seqpar::detail::merged(at);
    if (one_piece(b)) return stream_space::zero(b);
    widest([&]<std::size_t Bytes>(bytes<Bytes>) {
      const bool fits = detail::cut_by(b, Bytes);
      if (fits) give<fill_body<Bytes>>(b, detail::word<Bytes>{});
      return fits;
    });
  }
  template <class T>
  void fill(const block& at, const T& value) const {
    constexpr std::size_t size = sizeof(T);
    static_assert(size <= 16 && 16 % size == 0, "[seqpar] fill: an element must have 1, 2, 4, 8 or 16 bytes");
    if (at.bytes() == 0) return;
    const block b = seqpar::detail::merged(at);
    const auto of = [&]<std::size_t Bytes>(bytes<Bytes>) {
      detail::word<Bytes> pattern;
      for (std::size_t i = 0; i < Bytes; i += size)
        std::memcpy(reinterpret_cast<std::byte*>(&pattern) + i, &value, size);
      give<fill_body<Bytes>>(b, pattern);
    };
    if (detail::cut_by(b, 16))
      of(bytes<16>{});
    else
      of(bytes<size>{});
  }
  template <class To, class From>
  void store(const block& to, const block& from, write how) const {
    if (from.bytes() == 0) return;
    constexpr std::size_t n = detail::wide<To, From>;
    const block t = seqpar::detail::merged(to), f = seqpar::detail::merged(from);
    if (n > 1 && detail::cut_by(t, n * sizeof(To)) && detail::cut_by(f, n * sizeof(From)))
      give<store_body<To, From, n>>(t, f, how);
    else
      give<store_body<To, From, 1>>(t, f, how);
  }
  template <class X, class Y>
  void row_dots(const rows_view<const X>& x, const rows_view<const Y>& y, const heads_view<const float>& minus,
                const heads_view<float>& to) const {
    if (x.batch() * x.tokens() * x.heads() == 0) return;
    constexpr std::size_t n = detail::wide<X, Y>;
    if (rows<const X>::of(x).aligned() && rows<const Y>::of(y).aligned() && x.dim() % index_t{n} == 0)
      give<row_dots_body<X, Y, n>>(x, y, minus, to);
    else
      give<row_dots_body<X, Y, 1>>(x, y, minus, to);
  }
  void put(void* to, std::span<const placed_word> words) const {
    for (; !words.empty(); words = words.subspan(std::min(words.size(), put_body::most)))
      give<put_body>(to, words.first(std::min(words.size(), put_body::most)));
  }
  void merge(const state_rows& to, const state_rows& from) const {
    auto p = merge_rows<float, float>::params::of(to, merging::merge);
    p.part = rows<const float>::of(from.acc);
    p.part_max = numbers<const float>::of(from.max);
    p.part_sum = numbers<const float>::of(from.sum);
    note(exec_.template launch<merge_rows<float, float>>(p.work(), p));
  }

 private:
  template <std::size_t Bytes>
  struct bytes {};
  /// by(bytes<n>{}) with the largest n that it takes.
  template <class F>
  static void widest(F&& by) {
    by(bytes<16>{}) || by(bytes<8>{}) || by(bytes<4>{}) || by(bytes<2>{}) || by(bytes<1>{});
  }
  static bool one_piece(const block& b) { return b.rows == 1 && b.columns == 1; }

  template <class Body, class... Arguments>
  void give(const Arguments&... arguments) const {
    const typename Body::params p(arguments...);
    note(exec_.template launch<Body>(p.work(), p));
  }
  launched_by<Launcher> exec_;
};

template <class Launcher>
kernel_space<Launcher> space_of(const launched_by<Launcher>& exec) {
  return kernel_space<Launcher>(exec);
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
