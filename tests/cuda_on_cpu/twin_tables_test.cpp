// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a warp does together. The maps below go from matrix elements to lanes, the other way than the twin's own.
#include <limits>
#include <vector>

#include "tests/cuda_on_cpu/twin_support.hpp"

namespace seqpar::twin {
namespace {

struct held {
  int lane, element;  // element i is half i % 2 of register i / 2, or a whole sum
};
held of_a(int row, int column) {
  return {row % 8 * 4 + column % 8 / 2, column % 2 + 2 * (row >= 8) + 4 * (column >= 8)};
}
held of_b(int row, int column) {
  return {column * 4 + row % 8 / 2, row % 2 + 2 * (row >= 8)};
}
held of_sums(int row, int column) {
  return {row % 8 * 4 + column / 2, column % 2 + 2 * (row >= 8)};
}

// Small numbers, different enough.
int a_at(int row, int column) {
  return (row * 5 + column * 3 + row * column) % 17 - 8;
}
int b_at(int row, int column) {
  return (row * 7 + column * 11 + row * row) % 13 - 6;
}
int sum_at(int row, int column) {
  return row - 10 * column;
}
int product_at(int row, int column) {
  int all = sum_at(row, column);
  for (int k = 0; k < 16; ++k) all += a_at(row, k) * b_at(k, column);
  return all;
}

struct fragments {
  std::uint32_t a[32][4], b[32][2];
  float sums[32][4];
};

template <class T>
void put(std::uint32_t* registers, int element, int value) {
  auto& word = registers[element / 2];
  const int shift = 16 * (element % 2);
  word = (word & ~(0xffffu << shift)) | static_cast<std::uint32_t>(T(static_cast<float>(value)).bits) << shift;
}

template <class T>
struct multiply {
  template <class Hw>
  void operator()(Hw& hw, void* p) const {
    auto& f = *static_cast<fragments*>(p);
    const int l = hw.lane();
    if (hw.warp() == 0) hw.template mma<T>(f.sums[l], f.a[l], f.b[l]);
  }
};

template <class T>
void check_product() {
  fragments f{};
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) put<T>(f.a[of_a(i, k).lane], of_a(i, k).element, a_at(i, k));
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j) put<T>(f.b[of_b(k, j).lane], of_b(k, j).element, b_at(k, j));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) f.sums[of_sums(i, j).lane][of_sums(i, j).element] = static_cast<float>(sum_at(i, j));
  CHECK(found(multiply<T>{}, {}, &f) == "");
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      CHECK(f.sums[of_sums(i, j).lane][of_sums(i, j).element] == static_cast<float>(product_at(i, j)));
}

TEST_CASE("mma multiplies the matrices that its fragments hold") {
  check_product<float16>();
  check_product<bfloat16>();
}

TEST_CASE("load_matrices gives lane 4r + c/2 the elements c, c+1 of row r; transposed, those of column r") {
  std::vector<std::uint32_t> got(2 * 32 * 4);
  const auto load = [](auto& hw, void* p) {
    auto rows = hw.template shared<float16>(0);
    // Row r of matrix m lies at 8·(31 − (8m + r)); its element c is 100m + 10r + c.
    for (int n = hw.thread(); n < 256; n += 64) {
      float16 x;
      x.bits = static_cast<std::uint16_t>(n / 64 * 100 + n / 8 % 8 * 10 + n % 8);
      rows[8 * (31 - n / 8) + n % 8] = x;
    }
    hw.sync();
    std::uint32_t r[4];
    if (hw.warp() == 0)
      hw.load_matrices(r, rows + 8 * (31 - hw.lane()));
    else
      hw.load_matrices_transposed(r, rows + 8 * (31 - hw.lane()));
    for (int m = 0; m < 4; ++m) static_cast<std::uint32_t*>(p)[hw.thread() * 4 + m] = r[m];
  };
  CHECK(found(load, {}, got.data()) == "");
  for (int m = 0; m < 4; ++m)
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; column += 2) {
        const auto at = static_cast<std::size_t>((row * 4 + column / 2) * 4 + m);
        const auto word = [&](int first, int second) {
          return static_cast<std::uint32_t>(m * 100 + first) | static_cast<std::uint32_t>(m * 100 + second) << 16;
        };
        CHECK(got[at] == word(row * 10 + column, row * 10 + column + 1));
        CHECK(got[128 + at] == word(column * 10 + row, column * 10 + 10 + row));
      }
}

TEST_CASE("A by rows, B by rows transposed and B by columns are loaded as mma wants them") {
  std::vector<float> got(2 * 16 * 8);
  const auto multiply_loaded = [](auto& hw, void* p) {
    auto a = hw.template shared<bfloat16>(0), b = a + 256, columns = a + 384;
    for (int n = hw.thread(); n < 256; n += 64)
      a[n] = hw.template narrow<bfloat16>(static_cast<float>(a_at(n / 16, n % 16)));
    for (int n = hw.thread(); n < 128; n += 64) {
      b[n] = hw.template narrow<bfloat16>(static_cast<float>(b_at(n / 8, n % 8)));
      columns[n] = hw.template narrow<bfloat16>(static_cast<float>(b_at(n % 16, n / 16)));
    }
    hw.sync();
    const int l = hw.lane();
    std::uint32_t ra[4], rb[4];
    hw.load_matrices(ra, a + (l % 16 * 16 + l / 16 * 8));
    if (hw.warp() == 0)
      hw.load_matrices_transposed(rb, b + l % 16 * 8);
    else
      hw.load_matrices(rb, columns + (l % 8 * 16 + l / 8 % 2 * 8));
    float sums[4] = {};
    const std::uint32_t first[2] = {rb[0], rb[1]};
    hw.template mma<bfloat16>(sums, ra, first);
    for (int i = 0; i < 4; ++i)
      static_cast<float*>(p)[hw.warp() * 128 + (l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2] = sums[i];
  };
  CHECK(found(multiply_loaded, {}, got.data()) == "");
  for (int n = 0; n < 256; ++n)
    CHECK(got[static_cast<std::size_t>(n)] ==
          static_cast<float>(product_at(n / 8 % 16, n % 8) - sum_at(n / 8 % 16, n % 8)));
}

TEST_CASE("Shuffles and votes stay within a warp") {
  std::vector<float> got(64 * 4);
  const auto exchange = [](auto& hw, void* p) {
    auto* to = static_cast<float*>(p) + hw.thread() * 4;
    to[0] = hw.shuffle_xor(static_cast<float>(hw.thread()), 5);
    to[1] = static_cast<float>(hw.shuffle(hw.thread() * 3, (hw.lane() + 1) % 32));
    to[2] = hw.any(hw.thread() == 40);
    to[3] = hw.any(hw.lane() < 0);
  };
  CHECK(found(exchange, {}, got.data()) == "");
  for (int t = 0; t < 64; ++t) {
    const float* to = got.data() + t * 4;
    CHECK(to[0] == static_cast<float>(t ^ 5));
    CHECK(to[1] == static_cast<float>(3 * (t / 32 * 32 + (t + 1) % 32)));
    CHECK(to[2] == (t >= 32 ? 1.0f : 0.0f));
    CHECK(to[3] == 0);
  }
}

TEST_CASE("Numbers are widened, narrowed and packed as the host rounds them, the low half first") {
  std::vector<float> got(8);
  const auto convert = [](auto& hw, void* p) {
    if (hw.thread() != 0) return;
    auto* to = static_cast<float*>(p);
    to[0] = hw.widen(hw.template narrow<bfloat16>(1.0f / 3));
    to[1] = hw.widen(hw.template narrow<float16>(1.0f / 3));
    to[2] = hw.widen(hw.template narrow<float>(1.0f / 3));
    float16 half;
    const std::uint32_t word = hw.template pack<float16>(2.5f, -1.0f);
    half.bits = static_cast<std::uint16_t>(word & 0xffff);
    to[3] = half;
    half.bits = static_cast<std::uint16_t>(word >> 16);
    to[4] = half;
    to[5] = hw.exp2(-std::numeric_limits<float>::infinity());
    to[6] = hw.exp2(-140.0f);
    to[7] = hw.exp2(0.5f);
  };
  CHECK(found(convert, {}, got.data()) == "");
  CHECK(got[0] == static_cast<float>(bfloat16(1.0f / 3)));
  CHECK(got[1] == static_cast<float>(float16(1.0f / 3)));
  CHECK(got[2] == 1.0f / 3);
  CHECK(got[3] == 2.5f);
  CHECK(got[4] == -1.0f);
  CHECK(got[5] == 0);
  CHECK(got[6] == 0);
  CHECK(got[7] == doctest::Approx(1.41421356));
}

// 8-row phases of 16 bytes; row r begins `Stride` bytes behind row r − 1.
template <int Stride>
struct load_strided {
  template <class Hw>
  void operator()(Hw& hw, void*) const {
    auto bytes = hw.template shared<cuda::quad>(0);
    for (int n = hw.thread(); n < 256; n += 64) bytes[n] = cuda::quad{};
    hw.sync();
    std::uint32_t r[4];
    hw.load_matrices(r, bytes.template cast<float16>() + hw.lane() % 8 * (Stride / 2));
  }
};

// Lane l writes and reads word l·Stride.
template <int Stride>
struct touch_strided {
  template <class Hw>
  void operator()(Hw& hw, void*) const {
    auto words = hw.template shared<float>(0);
    if (hw.warp() != 0) return;
    words[hw.lane() * Stride] = 1.0f;
    hw.sync_warp();
    const float x = words[hw.lane() * Stride];
    hw.any(x > 0);
  }
};

template <class Code>
report report_of(Code) {
  return run<body_of<Code>>(1, {nullptr});
}

TEST_CASE("Rows 16 bytes apart have no bank conflicts, rows 128 bytes apart have 7 in each of 4 phases") {
  CHECK(report_of(load_strided<16>{}).bank_conflicts == 0);
  CHECK(report_of(load_strided<144>{}).bank_conflicts == 0);
  CHECK(report_of(load_strided<32>{}).bank_conflicts == 2 * 4 * 1);
  CHECK(report_of(load_strided<128>{}).bank_conflicts == 2 * 4 * 7);
  CHECK(report_of(load_strided<128>{}).access_conflicts == 0);
  CHECK(report_of(load_strided<0>{}).bank_conflicts == 0);
  CHECK(report_of(touch_strided<1>{}).access_conflicts == 0);
  CHECK(report_of(touch_strided<2>{}).access_conflicts == 2 * 1);
  CHECK(report_of(touch_strided<32>{}).access_conflicts == 2 * 31);
}

}  // namespace
}  // namespace seqpar::twin
