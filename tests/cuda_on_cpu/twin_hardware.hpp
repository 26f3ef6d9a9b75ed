// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hardware that a body sees on the CPU: see seqpar/cuda/concept.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <seqpar/cuda/concept.hpp>

#include "tests/cuda_on_cpu/twin_block.hpp"
#include "tests/cuda_on_cpu/twin_tables.hpp"

namespace seqpar::twin {

/// One T of shared memory, read or written where it is named and not kept.
template <class T>
class cell {
 public:
  cell(strand& t, int offset) : thread_(t), offset_(offset) {}
  cell(const cell&) = delete;
  operator T() && { return get(); }
  void operator=(T x) && { set(x); }
  void operator=(cell&& from) && { set(from.get()); }
  void operator+=(T x) && { set(get() + x); }
  void operator-=(T x) && { set(get() - x); }
  void operator*=(T x) && { set(get() * x); }

 private:
  T get() const {
    T x;
    std::memcpy(static_cast<void*>(&x), thread_.touch(offset_, sizeof(T), false), sizeof(T));
    return x;
  }
  void set(T x) { std::memcpy(thread_.touch(offset_, sizeof(T), true), &x, sizeof(T)); }
  strand& thread_;
  int offset_;
};

/// A place in shared memory.
template <class T>
class shared {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) & (sizeof(T) - 1)) == 0 && sizeof(T) >= 2 &&
                sizeof(T) <= 16);

 public:
  shared(strand& t, int offset) : thread_(&t), offset_(offset) {}
  cell<T> operator[](int i) const { return {*thread_, (*this + i).offset_}; }
  cell<T> operator*() const { return (*this)[0]; }
  shared operator+(int i) const { return {*thread_, offset_ + i * static_cast<int>(sizeof(T))}; }
  shared operator-(int i) const { return *this + -i; }
  shared& operator+=(int i) { return *this = *this + i; }
  template <class U>
  shared<U> cast() const {
    return {*thread_, offset_};
  }
  int offset() const { return offset_; }

 private:
  strand* thread_;
  int offset_;
};

class hardware {
 public:
  explicit hardware(strand& t) : thread_(t) {}

  index_t block() const { return thread_.in->number; }
  index_t blocks() const { return thread_.in->of; }
  int thread() const { return thread_.number; }
  int warp() const { return thread_.number / 32; }
  int lane() const { return thread_.number % 32; }
  template <class T>
  twin::shared<T> shared(int bytes) {
    return {thread_, bytes};
  }

  void sync(place at = place::here()) { thread_.in->barrier(thread_, 0, thread_.in->threads(), "sync", at); }
  void sync_some(int id, int threads, place at = place::here()) {
    if (id == 0) thread_.fail("barrier 0 is that of sync()");
    thread_.in->barrier(thread_, id, threads, "sync_some", at);
  }
  void sync_warp(place at = place::here()) { thread_.in->gather(thread_, &met::run, nullptr, "sync_warp", at); }
  float shuffle_xor(float x, int mask, place at = place::here()) { return swap(x, lane() ^ mask, "shuffle_xor", at); }
  int shuffle_xor(int x, int mask, place at = place::here()) { return swap(x, lane() ^ mask, "shuffle_xor", at); }
  float shuffle(float x, int lane, place at = place::here()) { return swap(x, lane, "shuffle", at); }
  int shuffle(int x, int lane, place at = place::here()) { return swap(x, lane, "shuffle", at); }
  bool any(bool x, place at = place::here()) {
    voted v{x, false};
    thread_.in->gather(thread_, &voted::run, &v, "any", at);
    return v.got;
  }

  float widen(float x) { return x; }
  float widen(float16 x) { return x; }
  float widen(bfloat16 x) { return x; }
  template <element T>
  T narrow(float x) {
    return T(x);
  }
  template <class T>
  std::uint32_t pack(float lo, float hi) {
    return T(lo).bits | static_cast<std::uint32_t>(T(hi).bits) << 16;
  }
  float exp2(float x) {
    const float y = std::exp2(x);
    return y < std::numeric_limits<float>::min() ? 0.0f : y;  // the GPU flushes what is subnormal
  }

  cuda::quad load(const void* p, place at = place::here()) {
    note("load", at);
    thread_.check_global(p, "a load");
    cuda::quad x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  void store(void* p, cuda::quad x, place at = place::here()) {
    note("store", at);
    thread_.check_global(p, "a store");
    std::memcpy(p, &x, sizeof x);
  }

  template <class T>
  void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], place at = place::here()) {
    multiplied<T> m{d, a, b};
    thread_.in->gather(thread_, &multiplied<T>::run, &m, "mma", at);
  }
  template <class T>
  void load_matrices(std::uint32_t (&r)[4], twin::shared<T> p, place at = place::here()) {
    loaded m{r, p.offset()};
    thread_.in->gather(thread_, &loaded::run, &m, "load_matrices", at);
  }
  template <class T>
  void load_matrices_transposed(std::uint32_t (&r)[4], twin::shared<T> p, place at = place::here()) {
    loaded_transposed m{r, p.offset()};
    thread_.in->gather(thread_, &loaded_transposed::run, &m, "load_matrices_transposed", at);
  }

  template <class T>
  void copy_async(twin::shared<T> to, const void* from, bool there, place at = place::here()) {
    note("copy_async", at);
    thread_.begin_copy(to.offset(), from, there);
  }
  void commit_copies() { ++thread_.groups; }
  template <int N>
  void wait_copies() {
    thread_.finish_copies(N);
  }

 private:
  void note(const char* what, place at) {
    thread_.doing = what;
    thread_.at = at;
  }
  template <class T>
  T swap(T x, int from, const char* name, place at) {
    exchanged<T> e{x, {}, from};
    thread_.in->gather(thread_, &exchanged<T>::run, &e, name, at);
    return e.got;
  }
  strand& thread_;
};

static_assert(cuda::hardware<hardware>);

}  // namespace seqpar::twin
