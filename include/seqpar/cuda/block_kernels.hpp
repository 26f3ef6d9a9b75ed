// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a run asks of device memory, as kernel bodies: copy, fill, store, row_dots, put. Bound by memory: accesses of
// 16 bytes where pointers, strides and widths allow, several under way in each thread.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include <seqpar/cuda/arguments.hpp>
#include <seqpar/cuda/concept.hpp>
#include <seqpar/cuda/divider.hpp>
#include <seqpar/space/host.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// A block cut into units of so many bytes: unit k, counted row by row, column by column, is at(k).
class unit_walk {
 public:
  unit_walk(const block& b, index_t unit)
      : pointer_(static_cast<std::byte*>(b.pointer)),
        row_stride_(b.row_stride),
        column_stride_(b.column_stride),
        unit_(unit),
        in_piece_(b.column_bytes / unit),
        columns_(b.columns) {}
  SEQPAR_HD std::byte* at(index_t k) const {
    const index_t piece = in_piece_.quotient(k), row = columns_.quotient(piece);
    return pointer_ + row * row_stride_ + (piece - row * columns_.by()) * column_stride_ +
           (k - piece * in_piece_.by()) * unit_;
  }

 private:
  std::byte* pointer_;
  index_t row_stride_, column_stride_, unit_;
  divider in_piece_, columns_;
};

/// The common part of the bodies here: each thread has `Together` units in hand, loaded before the first is stored.
template <std::size_t Together>
struct unit_body {
  static constexpr int threads = 256, blocks_per_sm = 4, shared_bytes = 0;
  static constexpr std::size_t together = Together;
  static constexpr index_t units_of_block = threads * index_t{Together};
  /// How many blocks a launch has work for.
  SEQPAR_HD static index_t work_of(index_t units) { return (units + units_of_block - 1) / units_of_block; }
  /// f(i, k): the thread's i-th unit in hand is unit k.
  template <class F>
  SEQPAR_DEVICE static void for_own(index_t work, int thread, index_t units, F&& f) {
    index_t k = work * units_of_block + thread;
    for (std::size_t i = 0; i < together; ++i, k += threads)
      if (k < units) f(i, k);
  }
};

namespace detail {

/// Can `b` be read by units of `unit` bytes, each in accesses of up to 16 bytes?
inline bool cut_by(const block& b, index_t unit) {
  const index_t access = unit < 16 ? unit : 16,
                start = static_cast<index_t>(reinterpret_cast<std::uintptr_t>(b.pointer));
  return b.column_bytes % unit == 0 && start % access == 0 && (b.rows <= 1 || b.row_stride % access == 0) &&
         (b.columns <= 1 || b.column_stride % access == 0);
}

/// Bytes on their way, one access wide.
template <std::size_t Bytes>
using word = std::conditional_t<
    Bytes == 16, quad,
    std::conditional_t<
        Bytes == 8, std::uint64_t,
        std::conditional_t<Bytes == 4, std::uint32_t, std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>>;

template <std::size_t Bytes, class Hw>
SEQPAR_DEVICE word<Bytes> get(Hw& hw, const std::byte* p) {
  if constexpr (Bytes == 16) {
    return hw.load(reinterpret_cast<const quad*>(p));
  } else {
    word<Bytes> x;
    std::memcpy(&x, __builtin_assume_aligned(p, Bytes), Bytes);
    return x;
  }
}
template <std::size_t Bytes, class Hw>
SEQPAR_DEVICE void put(Hw& hw, std::byte* p, const word<Bytes>& x) {
  if constexpr (Bytes == 16)
    hw.store(reinterpret_cast<quad*>(p), x);
  else
    std::memcpy(__builtin_assume_aligned(p, Bytes), &x, Bytes);
}

template <class T>
inline constexpr bool is_half = std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// Elements are added in fp32, double and integers in their own type.
template <class To, class From>
using sum_of = std::conditional_t<element<To> && element<From>, float, To>;

/// How many elements of two arrays are best read at a time: 16 bytes of the narrower.
template <class A, class B>
inline constexpr std::size_t wide = !(element<A> && element<B>) ? 1
                                    : is_half<A> || is_half<B>  ? 8
                                                                : 4;

/// x[i] = element i at p.
template <class T, std::size_t N, class Sum, class Hw>
SEQPAR_DEVICE void get_elements(Hw& hw, const std::byte* p, Sum (&x)[N]) {
  constexpr std::size_t at_once = N == 1 ? 1 : 16 / sizeof(T);
  for (std::size_t i = 0; i < N; i += at_once) {
    const auto bits = get<at_once * sizeof(T)>(hw, p + i * sizeof(T));
    T value[at_once];
    std::memcpy(static_cast<void*>(value), &bits, sizeof(value));
    for (std::size_t j = 0; j < at_once; ++j)
      if constexpr (is_half<T>)
        x[i + j] = hw.widen(value[j]);
      else
        x[i + j] = static_cast<Sum>(value[j]);
  }
}
/// Element i at p = x[i], rounded once.
template <class T, std::size_t N, class Sum, class Hw>
SEQPAR_DEVICE void put_elements(Hw& hw, std::byte* p, const Sum (&x)[N]) {
  constexpr std::size_t at_once = N == 1 ? 1 : 16 / sizeof(T);
  for (std::size_t i = 0; i < N; i += at_once) {
    word<at_once * sizeof(T)> bits;
    if constexpr (is_half<T> && N > 1) {
      for (std::size_t j = 0; j < 4; ++j) bits.word[j] = hw.template pack<T>(x[i + 2 * j], x[i + 2 * j + 1]);
    } else if constexpr (is_half<T>) {
      const T value = hw.template narrow<T>(x[i]);
      std::memcpy(&bits, &value, sizeof(T));
    } else {
      std::memcpy(&bits, x + i, sizeof(bits));
    }
    put<at_once * sizeof(T)>(hw, p + i * sizeof(T), bits);
  }
}

}  // namespace detail

/// to[k] = from[k] for the k-th byte of each block, `Bytes` at a time. The blocks may be of other shapes.
template <std::size_t Bytes>
struct copy_body : unit_body<4> {
  struct params {
    unit_walk to, from;
    index_t words;
    params(const block& t, const block& f) : to(t, Bytes), from(f, Bytes), words(f.bytes() / index_t{Bytes}) {}
    index_t work() const { return work_of(words); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = work_of(p.words); w < n; w += hw.blocks()) {
      detail::word<Bytes> x[together];
      for_own(w, hw.thread(), p.words, [&](std::size_t i, index_t k) { x[i] = detail::get<Bytes>(hw, p.from.at(k)); });
      for_own(w, hw.thread(), p.words, [&](std::size_t i, index_t k) { detail::put<Bytes>(hw, p.to.at(k), x[i]); });
    }
  }
};

/// Every `Bytes` bytes of a block = `value`.
template <std::size_t Bytes>
struct fill_body : unit_body<4> {
  struct params {
    unit_walk to;
    index_t words;
    detail::word<Bytes> value;
    params(const block& t, const detail::word<Bytes>& v) : to(t, Bytes), words(t.bytes() / index_t{Bytes}), value(v) {}
    index_t work() const { return work_of(words); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = work_of(p.words); w < n; w += hw.blocks())
      for_own(w, hw.thread(), p.words, [&](std::size_t, index_t k) { detail::put<Bytes>(hw, p.to.at(k), p.value); });
  }
};

/// to[i] = from[i], or to[i] += from[i], for the i-th element of each block, N at a time.
template <class To, class From, std::size_t N>
struct store_body : unit_body<N == 1 ? 4 : 2> {
  using base = unit_body<N == 1 ? 4 : 2>;
  using sum = detail::sum_of<To, From>;
  static constexpr index_t to_unit = N * sizeof(To), from_unit = N * sizeof(From);
  static_assert(element<From> || std::same_as<To, From>, "[seqpar] only fp32 and 16-bit elements are converted");
  struct params {
    unit_walk to, from;
    index_t units;
    write how;
    params(const block& t, const block& f, write h)
        : to(t, to_unit), from(f, from_unit), units(f.bytes() / from_unit), how(h) {}
    index_t work() const { return base::work_of(units); }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = base::work_of(p.units); w < n; w += hw.blocks()) {
      sum x[base::together][N], old[base::together][N];
      const bool add = p.how == write::add;
      base::for_own(w, hw.thread(), p.units, [&](std::size_t i, index_t k) {
        detail::get_elements<From>(hw, p.from.at(k), x[i]);
        if (add) detail::get_elements<To>(hw, p.to.at(k), old[i]);
      });
      base::for_own(w, hw.thread(), p.units, [&](std::size_t i, index_t k) {
        if (add)
          for (std::size_t j = 0; j < N; ++j) x[i][j] = old[i][j] + x[i][j];
        detail::put_elements<To>(hw, p.to.at(k), x[i]);
      });
    }
  }
};

/// to[b, h, t] = Σ_d x[b, t, h, d]·y[b, t, h, d] − minus[b, h, t] in fp32; minus may be null. A row has `lanes` lanes:
/// each adds its elements in ascending order, N at a time, then the lanes add in pairs.
template <class X, class Y, std::size_t N>
struct row_dots_body {
  static constexpr int threads = 256, blocks_per_sm = 4, shared_bytes = 0, unit = N;
  struct params {
    rows<const X> x;
    rows<const Y> y;
    numbers<const float> minus;
    numbers<float> to;
    divider heads, tokens;
    index_t count;
    int dim, lane_bits = 0;
    params(const rows_view<const X>& a, const rows_view<const Y>& b, const heads_view<const float>& m,
           const heads_view<float>& z)
        : x(rows<const X>::of(a)),
          y(rows<const Y>::of(b)),
          minus(numbers<const float>::of(m)),
          to(numbers<float>::of(z)),
          heads(a.heads()),
          tokens(a.tokens()),
          count(a.batch() * a.tokens() * a.heads()),
          dim(static_cast<int>(a.dim())) {
      while (lane_bits < 5 && (unit << lane_bits) < dim) ++lane_bits;
    }
    SEQPAR_HD int lanes() const { return 1 << lane_bits; }
    SEQPAR_HD index_t work() const { return ((count << lane_bits) + threads - 1) / threads; }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    const int lane = hw.thread() & (p.lanes() - 1);
    for (index_t w = hw.block(), n = p.work(); w < n; w += hw.blocks()) {
      const index_t row = (w * threads + hw.thread()) >> p.lane_bits;
      const index_t bt = p.heads.quotient(row), h = row - bt * p.heads.by();
      const index_t b = p.tokens.quotient(bt), t = bt - b * p.tokens.by();
      float sum = 0;
      if (row < p.count)
        for (int d = lane * unit; d < p.dim; d += unit << p.lane_bits) {
          float x[N], y[N];
          detail::get_elements<X>(hw, reinterpret_cast<const std::byte*>(p.x.at(b, t, h) + d), x);
          detail::get_elements<Y>(hw, reinterpret_cast<const std::byte*>(p.y.at(b, t, h) + d), y);
          for (std::size_t j = 0; j < N; ++j) sum += x[j] * y[j];
        }
      for (int mask = p.lanes() / 2; mask > 0; mask /= 2) sum += hw.shuffle_xor(sum, mask);
      if (row < p.count && lane == 0) p.to.at(b, h, t) = p.minus.pointer ? sum - p.minus.at(b, h, t) : sum;
    }
  }
};

/// Words of the host's, carried by the kernel's arguments: each goes to its place.
struct put_body {
  static constexpr int threads = 256, blocks_per_sm = 4, shared_bytes = 0;
  static constexpr std::size_t most = 500;
  struct params {
    std::uint32_t* to;
    index_t count;
    placed_word words[most]{};
    /// At most `most` words.
    params(void* t, std::span<const placed_word> w)
        : to(static_cast<std::uint32_t*>(t)), count(static_cast<index_t>(w.size())) {
      std::copy(w.begin(), w.end(), words);
    }
    SEQPAR_HD index_t work() const { return (count + threads - 1) / threads; }
  };
  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    for (index_t w = hw.block(), n = p.work(); w < n; w += hw.blocks())
      if (const index_t k = w * threads + hw.thread(); k < p.count) p.to[p.words[k].at] = p.words[k].value;
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
