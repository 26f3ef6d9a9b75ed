// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tiles of the bodies on tensor cores: one table by architecture and widths.
#pragma once

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// What a multiprocessor offers a block. Architectures by their number: 80, 86, 89, 90, 100, …
struct shared_memory {
  int multiprocessor, block;
};
constexpr shared_memory shared_memory_of(int architecture) {
  constexpr int kib = 1024;
  if (architecture >= 120) return {100 * kib, 99 * kib};
  if (architecture >= 90) return {228 * kib, 227 * kib};
  if (architecture == 86 || architecture == 89) return {100 * kib, 99 * kib};
  return {164 * kib, 163 * kib};
}
/// Dynamic shared memory when so many blocks share a multiprocessor; each costs 1 KiB more than it asks for.
constexpr int shared_budget(int architecture, int blocks) {
  const shared_memory m = shared_memory_of(architecture);
  const int share = m.multiprocessor / blocks - 1024;
  return (share < m.block ? share : m.block) / 16 * 16;
}

/// A block of the forward pass.
///   atoms   16-row pieces to a warp: two let a fragment of keys or values serve 32 rows, if the registers hold it
///   warps   of a block, whose rows are 64 or 128
///   blocks  that share a multiprocessor
/// Keys and values have 2 to 4 slots, as many as the shared memory holds.
struct forward_choice {
  int atoms, warps, blocks;
  constexpr int rows() const { return atoms * warps * 16; }
};

/// A block of one pass of the backward: it holds `rows` rows, 16 to a warp, and walks over the others `step` at a time,
/// one step ahead; twice, for dV and then for dK, where the registers hold but one of them.
struct backward_choice {
  int rows, step, blocks, walks = 1;
};

/// For a kind of architecture (80, 86, 90 or 100) and heads of at most these widths, of 16-bit numbers.
struct choice {
  int kind, qk, v;
  forward_choice forward;
  backward_choice by_keys, by_queries;
};

/// Registers decide: 65536, of which a thread has at most 255, 168 where 3 blocks of 128 threads share them, 128 where
/// 2 of 256 do. Then shared memory, of which 86 has little. The compiler for 100 wants more registers: two atoms of 128
/// columns, or long steps by queries, do not fit.
inline constexpr choice choices[] = {
    // kind, widths, forward, by keys, by queries
    {80, 32, 32, {2, 4, 3}, {64, 64, 3}, {128, 64, 2}},       //
    {80, 64, 64, {2, 4, 2}, {64, 32, 3}, {128, 32, 2}},       //
    {80, 96, 96, {2, 4, 2}, {64, 32, 2}, {128, 32, 2}},       //
    {80, 128, 128, {2, 4, 2}, {64, 32, 2}, {128, 32, 1}},     //
    {80, 192, 128, {2, 4, 1}, {64, 32, 1, 2}, {64, 32, 1}},   //
    {80, 256, 256, {1, 8, 1}, {64, 32, 1, 2}, {64, 32, 1}},   //
    {86, 32, 32, {2, 4, 3}, {64, 64, 2}, {128, 64, 2}},       //
    {86, 64, 64, {2, 4, 2}, {64, 32, 2}, {128, 32, 1}},       //
    {86, 96, 96, {2, 4, 1}, {64, 32, 1}, {128, 32, 1}},       //
    {86, 128, 128, {2, 4, 1}, {64, 32, 1}, {128, 32, 1}},     //
    {86, 192, 128, {1, 4, 1}, {64, 32, 1, 2}, {64, 32, 1}},   //
    {86, 256, 256, {1, 4, 1}, {64, 16, 1, 2}, {64, 16, 1}},   //
    {90, 32, 32, {2, 4, 3}, {64, 64, 3}, {128, 64, 2}},       //
    {90, 64, 64, {2, 4, 2}, {64, 32, 3}, {128, 32, 2}},       //
    {90, 96, 96, {2, 4, 2}, {64, 32, 2}, {128, 32, 2}},       //
    {90, 128, 128, {2, 4, 2}, {64, 32, 2}, {128, 32, 1}},     //
    {90, 192, 128, {2, 4, 2}, {64, 32, 2, 2}, {64, 32, 2}},   //
    {90, 256, 256, {1, 8, 1}, {64, 32, 1, 2}, {64, 32, 1}},   //
    {100, 32, 32, {2, 4, 3}, {64, 64, 3}, {128, 32, 2}},      //
    {100, 64, 64, {2, 4, 2}, {64, 32, 3}, {128, 32, 2}},      //
    {100, 96, 96, {2, 4, 2}, {64, 32, 2}, {128, 32, 2}},      //
    {100, 128, 128, {1, 8, 1}, {64, 32, 2}, {128, 32, 1}},    //
    {100, 192, 128, {1, 8, 1}, {64, 32, 2, 2}, {64, 32, 2}},  //
    {100, 256, 256, {1, 8, 1}, {64, 32, 1, 2}, {64, 32, 1}},  //
};

/// The first that is wide enough.
constexpr choice choice_of(int architecture, int qk, int v) {
  const bool little = shared_memory_of(architecture).block < 128 * 1024;
  const int kind = little ? 86 : architecture >= 100 ? 100 : architecture >= 90 ? 90 : 80;
  for (const choice& c : choices)
    if (c.kind == kind && qk <= c.qk && v <= c.v) return c;
  return {};  // no head_class is wider than 256
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
