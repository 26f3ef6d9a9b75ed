// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin_tables.hpp"

#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "tests/cuda_on_cpu/twin_banks.hpp"
#include "tests/cuda_on_cpu/twin_block.hpp"

namespace seqpar::twin {

namespace {

template <class T>
const T& of(lanes all, int lane) {
  return *static_cast<const T*>(all[static_cast<std::size_t>(lane)]);
}

template <class T>
float half_of(std::uint32_t word, int which) {
  T x;
  x.bits = static_cast<std::uint16_t>(word >> 16 * which);
  return x;
}

template <bool Transposed, class Lane>
void load(block& in, lanes all) {
  std::array<int, 32> rows;
  for (int i = 0; i < 32; ++i) {
    const int row = rows[static_cast<std::size_t>(i)] = of<Lane>(all, i).row;
    if (row < 0 || row % 16 != 0 || row + 16 > in.shared.bytes())
      in.lane(i).fail("names byte " + std::to_string(row) + " of shared memory, which has " +
                      std::to_string(in.shared.bytes()) + ", as a row; 16 bytes on 16");
  }
  in.did.bank_conflicts += bank_conflicts(rows, 16);
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m) {
      std::uint16_t x[2];
      for (int i = 0; i < 2; ++i) {
        const int row = Transposed ? 2 * (lane % 4) + i : lane / 4, column = Transposed ? lane / 4 : 2 * (lane % 4) + i;
        const int offset = rows[static_cast<std::size_t>(8 * m + row)] + 2 * column;
        in.lane(lane).check_shared(offset, 2, false);
        std::memcpy(x + i, in.shared.at(offset), 2);
      }
      of<Lane>(all, lane).r[m] = x[0] | static_cast<std::uint32_t>(x[1]) << 16;
    }
}

}  // namespace

template <class T>
void multiplied<T>::run(block& in, lanes all) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& m = of<multiplied>(all, lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < 4; ++r) a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + i] = half_of<T>(m.a[r], i);
      for (int r = 0; r < 2; ++r) b[2 * t + 8 * r + i][g] = half_of<T>(m.b[r], i);
    }
    for (int r = 0; r < 4; ++r) c[g + 8 * (r / 2)][2 * t + r % 2] = m.d[r];
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& m = of<multiplied>(all, lane);
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) m.d[r] = c[g + 8 * (r / 2)][2 * t + r % 2];
  }
  ++in.did.matrix_products;
}
template struct multiplied<float16>;
template struct multiplied<bfloat16>;

void loaded::run(block& in, lanes all) {
  load<false, loaded>(in, all);
}
void loaded_transposed::run(block& in, lanes all) {
  load<true, loaded_transposed>(in, all);
}

template <class T>
void exchanged<T>::run(block&, lanes all) {
  for (void* const lane : all) {
    auto& x = *static_cast<exchanged*>(lane);
    x.got = of<exchanged>(all, x.from & 31).given;
  }
}
template struct exchanged<float>;
template struct exchanged<int>;

void voted::run(block&, lanes all) {
  bool any = false;
  for (void* const lane : all) any |= static_cast<const voted*>(lane)->given;
  for (void* const lane : all) static_cast<voted*>(lane)->got = any;
}

void met::run(block& in, lanes) {
  std::array<int, 32> threads;
  std::iota(threads.begin(), threads.end(), in.lane(0).number);
  meet(in.shared.clocks, threads);
}

}  // namespace seqpar::twin
