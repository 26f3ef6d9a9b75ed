// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the space of kernels must do, against the host's space: byte for byte, and nothing beside it.
//
// A Site says whose space: `space(margin)`, and memory that both it and the host touch. Numbers are such that every
// order of a sum gives the same bits.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <random>
#include <type_traits>
#include <vector>

#include <seqpar/cuda/space.hpp>

namespace seqpar::test {

inline constexpr index_t room = 6000;

template <class T>
T number(std::uint64_t dice) {
  if constexpr (std::integral<T>)
    return static_cast<T>(dice % 256);
  else
    return T(static_cast<float>(dice % 256) / 64.f - 2);
}

/// Memory in which blocks lie, on 16 bytes.
struct buffer {
  std::pmr::vector<std::byte> data;
  template <class T>
  static buffer of(std::uint64_t seed, std::pmr::memory_resource* memory) {
    buffer b{std::pmr::vector<std::byte>(room, memory)};
    REQUIRE(reinterpret_cast<std::uintptr_t>(b.data.data()) % 16 == 0);
    std::mt19937_64 dice(seed);
    for (std::size_t i = 0; i + sizeof(T) <= b.data.size(); i += sizeof(T)) {
      const T x = number<T>(dice());
      std::memcpy(b.data.data() + i, &x, sizeof(T));
    }
    return b;
  }
};

struct form {
  index_t rows, row_stride, columns, column_stride, column_bytes, offset;
  block in(const buffer& b) const {
    return {const_cast<std::byte*>(b.data.data()) + offset, rows, row_stride, columns, column_stride, column_bytes};
  }
};

/// Any block of rows × columns pieces whose addresses are multiples of `unit` bytes: rows inside columns or the other
/// way round, packed or not, sometimes backwards.
inline form any_form(std::mt19937_64& dice, index_t rows, index_t columns, index_t bytes, index_t unit) {
  const auto some = [&](index_t n) { return static_cast<index_t>(dice() % static_cast<std::uint64_t>(n)); };
  form f{rows, 0, columns, 0, bytes, 0};
  index_t inner = bytes + (some(2) ? some(3) * unit : 0);
  inner = (inner + unit - 1) / unit * unit;
  const bool by_row = some(3) != 0;
  index_t outer = inner * (by_row ? columns : rows) + (some(2) ? some(3) * unit : 0);
  f.column_stride = by_row ? inner : outer;
  f.row_stride = by_row ? outer : inner;
  f.offset = some(4) * unit;
  if (some(4) == 0) {
    f.offset += (rows - 1) * f.row_stride;
    f.row_stride = -f.row_stride;
  }
  return f;
}

template <class Site>
class space_laws {
 public:
  explicit space_laws(Site& site) : site_(site) {}

  void copies() {
    std::mt19937_64 dice(11);
    const auto some = [&](index_t n) { return static_cast<index_t>(dice() % static_cast<std::uint64_t>(n)); };
    const buffer from = random<std::uint8_t>(5);
    for (const index_t unit : {1, 2, 4, 8, 16, 24})
      for (int i = 0; i < 25; ++i) {
        const index_t a = 1 + some(4), b = 1 + some(4), c = 1 + some(3), bytes = (1 + some(4)) * unit;
        const form f = any_form(dice, a * b, c, bytes, unit);
        form t = f;  // as many bytes, cut in another way
        switch (some(4)) {
          case 0:
            t = any_form(dice, a, b * c, bytes, unit);
            break;
          case 1:
            t = any_form(dice, c, b, a * bytes, unit);
            break;
          case 2:
            t = any_form(dice, a * b * c, bytes / unit, unit, unit);
            break;
          default:
            t = any_form(dice, a * b, c, bytes, unit);
        }
        CAPTURE(unit);
        CAPTURE(i);
        CHECK(same<std::uint8_t>(17, [&](const auto& space, const buffer& to) { space.copy(t.in(to), f.in(from)); }));
      }
    // a row that is there once, wanted often; nothing at all
    const form once{7, 0, 1, 0, 48, 16}, often{7, 64, 1, 0, 48, 0}, none{0, 16, 3, 16, 16, 0};
    CHECK(
        same<std::uint8_t>(18, [&](const auto& space, const buffer& to) { space.copy(often.in(to), once.in(from)); }));
    CHECK(same<std::uint8_t>(18, [&](const auto& space, const buffer& to) {
      space.copy(none.in(to), none.in(from));
      space.copy({}, {});
    }));
  }

  void fills() {
    std::mt19937_64 dice(12);
    const auto check = [&](auto value) {
      for (int i = 0; i < 12; ++i) {
        constexpr index_t size = sizeof(value);
        const auto n = static_cast<index_t>(1 + dice() % 9);
        const form f = any_form(dice, 1 + i, 2, (i % 3 ? n : 16 / size) * size, i % 3 ? size : 16);
        CHECK(same<std::uint8_t>(19, [&](const auto& space, const buffer& to) { space.fill(f.in(to), value); }));
        if (const buffer any = random<std::uint8_t>(20); !f.in(any).dense())
          CHECK(same<std::uint8_t>(20, [&](const auto& space, const buffer& to) { space.zero(f.in(to)); }));
      }
    };
    check(std::uint8_t{0xA7});
    check(bfloat16(1.5f));
    check(-100);
    check(index_t{-100});
    check(cuda::quad{{1, 2, 3, 4}});
  }

  void stores() {
    std::mt19937_64 dice(13);
    const auto both = [&]<class To>(To) {
      check_store<To, float>(dice);
      check_store<To, float16>(dice);
      check_store<To, bfloat16>(dice);
    };
    both(float{});
    both(float16{});
    both(bfloat16{});
    check_store<double, double>(dice);
    check_store<index_t, index_t>(dice);
  }

  void row_dots() {
    check_row_dots<float, float>();
    check_row_dots<bfloat16, bfloat16>();
    check_row_dots<float16, float16>();
    check_row_dots<bfloat16, float>();
    check_row_dots<float16, float>();
  }

  void merges() {
    const buffer from = random<float>(11);
    const float none = -std::numeric_limits<float>::infinity();
    const auto floats = [](const buffer& b) {
      return reinterpret_cast<float*>(const_cast<std::byte*>(b.data.data())) + 1;
    };
    // Two items, two heads; 4 rows of 13 at even distances, and 4 rows as they come over a wire.
    for (const index_t step : {1, 3, -2})
      for (const bool apart : {false, true}) {  // with maxima that differ, exponentials are rounded
        const auto merged = [&](const auto& space, const buffer& b) {
          float *to = floats(b), *part = floats(from);
          const auto maxima = [&](float* x, int seed) {
            for (int i = 0; i < 52; ++i)
              x[i] = (i + seed) % 3 == 0 ? none : apart ? static_cast<float>(i % 7) - 3.f : 1.f;
          };
          maxima(to + 400, 0);
          maxima(part + 400, 1);
          const auto number = [](float* x) { return heads_view<float>{x, {2, 2, 4}, {8, 1, 2}}; };
          space.merge(state_view{to, to + 400, to + 500}.of(2, 2, 13, 7).line(step < 0 ? 11 : 1, step, 4),
                      {dense_view(part, {2, 4, 2, 7}), number(part + 400), number(part + 500)});
        };
        CAPTURE(step);
        if (!apart) {
          CHECK(same<float>(23, merged));
          continue;
        }
        buffer here = random<float>(23), there = random<float>(23);
        merged(host_space{}, here);
        const auto device = site_.space(2);
        merged(device, there);
        CHECK(device.finish().ok());
        for (int i = 0; i < 600; ++i) {
          const float want = floats(here)[i], got = floats(there)[i];
          if (!(want == got || std::abs(want - got) <= 1e-6f * (1 + std::abs(want))))
            FAIL_CHECK("number " << i << " is " << got << " for " << want);
        }
      }
  }

 private:
  template <class T>
  buffer random(std::uint64_t seed) {
    return buffer::of<T>(seed, site_.memory);
  }
  /// f(space, to): the same calls on both spaces leave the same bytes in all of `to`.
  template <class To, class F>
  bool same(std::uint64_t seed, F&& f, int margin = 2) {
    buffer here = random<To>(seed), there = random<To>(seed);
    f(host_space{}, here);
    const auto device = site_.space(margin);
    f(device, there);
    CHECK(device.finish().ok());
    return here.data == there.data;
  }
  template <class To, class From>
  void check_store(std::mt19937_64& dice) {
    const auto some = [&](index_t n) { return static_cast<index_t>(dice() % static_cast<std::uint64_t>(n)); };
    const buffer from = random<From>(6);
    constexpr index_t to_size = sizeof(To), from_size = sizeof(From);
    for (int i = 0; i < 16; ++i) {
      const bool wide = i % 2 == 0;
      const index_t rows = 1 + some(5), columns = 1 + some(3), n = wide ? 8 * (1 + some(3)) : 1 + some(11);
      const form t = any_form(dice, rows, columns, n * to_size, wide ? 16 : to_size);
      const form f = any_form(dice, rows, columns, n * from_size, wide ? 16 : from_size);
      CAPTURE(i);
      for (const auto how : {seqpar::write::assign, seqpar::write::add})
        CHECK(same<To>(21, [&](const auto& space, const buffer& to) {
          space.template store<To, From>(t.in(to), f.in(from), how);
        }));
    }
  }

  template <class X, class Y>
  void check_row_dots() {
    const buffer xs = random<X>(7), ys = random<Y>(8), ms = random<float>(9);
    struct shape {
      index_t batch, tokens, heads, dim, pad, shift;
    };
    for (const shape& s :
         {shape{1, 3, 2, 8, 0, 0}, shape{2, 3, 2, 24, 8, 8}, shape{1, 2, 3, 64, 0, 0}, shape{1, 1, 1, 256, 0, 0},
          shape{2, 2, 2, 7, 1, 0}, shape{1, 3, 2, 1, 0, 3}, shape{1, 2, 2, 128, 0, 1}, shape{1, 2, 2, 100, 3, 1},
          shape{1, 40, 3, 2, 0, 0}, shape{2, 0, 3, 8, 0, 0}, shape{1, 2, 2, 0, 0, 0}}) {
      CAPTURE(s.dim);
      const index_t token = s.heads * (s.dim + s.pad) + (s.pad ? 8 : 0), item = s.tokens * token;
      const auto view = [&]<class T>(const T* p) {
        return rows_view<const T>{p + s.shift, {s.batch, s.tokens, s.heads, s.dim}, {item, token, s.dim + s.pad, 1}};
      };
      const auto x = view(reinterpret_cast<const X*>(xs.data.data()));
      const auto y = view(reinterpret_cast<const Y*>(ys.data.data()));
      const auto sums = [&](const std::byte* p) {
        return dense_heads(reinterpret_cast<float*>(const_cast<std::byte*>(p)) + 1, {s.batch, s.heads, s.tokens});
      };
      for (const bool less : {false, true})
        for (const int margin : {0, 1, 2, 99}) {
          const heads_view<const float> minus = less ? sums(ms.data.data()) : heads_view<float>{};
          CHECK(same<float>(
              22,
              [&](const auto& space, const buffer& to) {
                space.template row_dots<X, Y>(x, y, minus, sums(to.data.data()));
              },
              margin));
        }
    }
  }

  Site& site_;
};

}  // namespace seqpar::test
