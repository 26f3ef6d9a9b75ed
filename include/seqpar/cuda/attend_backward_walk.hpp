// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two walks of the backward pass: from a key tile over the queries that see it, from a query tile over its keys.
#pragma once

#include <cstdint>
#include <type_traits>

#include <seqpar/cuda/sight.hpp>
#include <seqpar/cuda/tiles.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {
namespace backward {

inline constexpr float log2e = 1.44269504088896341f;

/// backward_call, as all bodies are given it. of() takes at most most_segments segments, from `first` on.
template <class T, class Mask>
struct arguments {
  rows<const T> q, dout;
  rows<float> dq;
  numbers<const float> lse, delta;
  query_list queries;
  index_t batch, key_tiles;
  std::int32_t heads, kv_heads, qk_dim, v_dim, segment_count;
  std::int32_t q_first, kv_first, heads_per_kv;
  float scale;
  Mask mask;
  segment<T> segments[most_segments];

  static arguments of(const backward_call<T>& call, const Mask& mask, std::size_t first = 0) {
    const auto number = [](index_t n) { return static_cast<std::int32_t>(n); };
    const auto given = call.segments.subspan(first < call.segments.size() ? first : call.segments.size());
    arguments a{rows<const T>::of(call.q),
                rows<const T>::of(call.dout),
                rows<float>::of(call.dq),
                numbers<const float>::of(call.lse),
                numbers<const float>::of(call.delta),
                query_list::of(call.queries),
                call.q.batch(),
                0,
                number(call.q.heads()),
                given.empty() ? 0 : number(given[0].k.heads()),
                number(call.q.dim()),
                number(call.dout.dim()),
                0,
                number(call.heads.q_first),
                number(call.heads.kv_first),
                number(call.heads.heads_per_kv),
                call.scale,
                mask,
                {}};
    for (const kv_segment<T>& s : given) {
      if (a.segment_count == most_segments) break;
      a.segments[a.segment_count] = segment<T>::of(s);
      a.key_tiles += a.segments[a.segment_count++].keys.count;
    }
    return a;
  }

  /// The query heads that use a kv head are first_head(kv) … first_head(kv + 1) − 1.
  SEQPAR_HD std::int32_t first_head(std::int32_t kv) const {
    const std::int32_t h = (kv + kv_first) * heads_per_kv - q_first;
    return h < 0 ? 0 : h < heads ? h : heads;
  }
};

/// lse in base 2; p = exp2(score − lse). A row with lse = −∞, or that is not there, has p = 0.
struct alignas(8) row_numbers {
  float lse, delta;
  SEQPAR_HD bool adds() const { return lse != __builtin_huge_valf(); }
  template <class Arguments>
  SEQPAR_HD static row_numbers of(const Arguments& p, index_t b, index_t head, index_t row, bool there, float lift) {
    constexpr float infinity = __builtin_huge_valf();
    if (!there) return {infinity, 0};
    const float lse = p.lse.at(b, head, row);
    return {lse == -infinity ? infinity : lse * log2e - lift, p.delta.at(b, head, row)};
  }
};

/// Holds a key tile of one kv head and batch item; walks over the heads of its group and the queries that see it, at
/// most Step rows at a time. It keeps as little as it can: registers are dear.
template <class T, class Mask, int Rows, int Step>
class keys_side {
  using seer = sight<Mask>;

 public:
  using args = arguments<T, Mask>;
  using held = typename seer::key;
  using walked = typename seer::row;
  SEQPAR_HD static index_t work(const args& p) { return p.key_tiles * p.kv_heads * p.batch; }

  SEQPAR_HD keys_side(const args& p, index_t w) : p_(p) {
    index_t tile = w % p.key_tiles;
    w /= p.key_tiles;
    kv_ = static_cast<std::int32_t>(w % p.kv_heads);
    batch_ = static_cast<std::int32_t>(w / p.kv_heads);
    while (tile >= keys().count) {
      tile -= keys().count;
      ++segment_;
    }
    tile_ = static_cast<std::int32_t>(tile);
    held_row_ = keys().tiles[tile_].row;
    held_rows_ = keys().tiles[tile_].rows;
    head_ = p.first_head(kv_);
    open_head();
  }

  SEQPAR_HD bool more() const { return left_ > 0; }
  SEQPAR_HD void next() {
    row_ += Step;
    left_ -= Step;
    if (left_ > 0) return;
    if (++query_tile_ < end_) return open_tile();
    if (++range_ < keys().first_query_range[tile_ + 1]) return open_range();
    ++head_;
    open_head();
  }
  /// Does every pair of this step see each other?
  SEQPAR_HD bool whole() const { return kind_ == cover::all && held_rows_ == Rows; }

  SEQPAR_HD int held_rows() const { return held_rows_; }
  SEQPAR_HD const T* held1() const { return seg().k.at(batch_, held_row_, kv_); }
  SEQPAR_HD const T* held2() const { return seg().v.at(batch_, held_row_, kv_); }
  SEQPAR_HD index_t held_stride1() const { return seg().k.token; }
  SEQPAR_HD index_t held_stride2() const { return seg().v.token; }
  SEQPAR_DEVICE held held_of(int i) const {
    return seer::key_of(keys().position_of(keys().tiles[tile_], i < held_rows_ ? i : 0), p_.mask);
  }
  SEQPAR_HD float* sums1(int row) const { return seg().dk.at(batch_, held_row_ + row, kv_); }
  SEQPAR_HD float* sums2(int row) const { return seg().dv.at(batch_, held_row_ + row, kv_); }
  SEQPAR_HD index_t sums_stride1() const { return seg().dk.token; }
  SEQPAR_HD index_t sums_stride2() const { return seg().dv.token; }

  SEQPAR_HD int walked_rows() const { return left_; }
  SEQPAR_HD const T* walked1() const { return p_.q.at(batch_, row_, head_); }
  SEQPAR_HD const T* walked2() const { return p_.dout.at(batch_, row_, head_); }
  SEQPAR_HD index_t walked_stride1() const { return p_.q.token; }
  SEQPAR_HD index_t walked_stride2() const { return p_.dout.token; }
  SEQPAR_DEVICE walked walked_of(int i) const { return seer::row_of(p_.queries, row_ + (i < left_ ? i : 0), p_.mask); }
  /// Of walked rows.
  SEQPAR_HD row_numbers numbers_of(int i, float lift) const {
    return row_numbers::of(p_, batch_, head_, row_ + i, i < left_, lift);
  }
  SEQPAR_DEVICE static bool see(const held& key, const walked& row, const Mask& mask) {
    return seer::see(row, key, mask);
  }

 private:
  SEQPAR_HD const segment<T>& seg() const { return p_.segments[segment_]; }
  SEQPAR_HD const key_list& keys() const { return seg().keys; }
  SEQPAR_HD void open_head() {
    range_ = keys().first_query_range[tile_];
    if (head_ < p_.first_head(kv_ + 1) && range_ < keys().first_query_range[tile_ + 1])
      open_range();
    else
      left_ = 0;
  }
  SEQPAR_HD void open_range() {
    const tile_range r = keys().query_ranges[range_];
    query_tile_ = r.first;
    end_ = r.first + r.count;
    kind_ = r.kind;
    open_tile();
  }
  SEQPAR_HD void open_tile() {
    row_ = p_.queries.tiles[query_tile_].row;
    left_ = p_.queries.tiles[query_tile_].rows;
  }
  const args& p_;
  int segment_ = 0;
  std::int32_t tile_ = 0, kv_ = 0, batch_ = 0, held_row_ = 0, held_rows_ = 0;
  std::int32_t head_ = 0, range_ = 0, query_tile_ = 0, end_ = 0, row_ = 0, left_ = 0;
  cover kind_ = cover::some;
};

/// Holds Rows rows of a query tile of one head and batch item; walks over the keys that it sees, at most Step rows at a
/// time.
template <class T, class Mask, int Rows, int Step>
class queries_side {
  using seer = sight<Mask>;

 public:
  using args = arguments<T, Mask>;
  using held = typename seer::row;
  using walked = typename seer::key;
  static constexpr int parts = (query_rows_of_tile + Rows - 1) / Rows;
  SEQPAR_HD static index_t work(const args& p) { return index_t{p.queries.count} * parts * p.heads * p.batch; }

  SEQPAR_HD queries_side(const args& p, index_t w) : p_(p), walk_(p.segments, 0, 0) {
    const int part = static_cast<int>(w % parts);
    w /= parts;
    // The last rows of a causal mask see most: they come first.
    tile_ = p.queries.count - 1 - static_cast<std::int32_t>(w % p.queries.count);
    w /= p.queries.count;
    head_ = static_cast<std::int32_t>(w % p.heads);
    batch_ = static_cast<std::int32_t>(w / p.heads);
    held_ = p.queries.tiles[tile_];
    held_.row += part * Rows;
    held_.rows -= part * Rows;
    if (held_.rows <= 0) return;
    walk_ = segment_walk<T>(p.segments, p.segment_count, tile_);
    if (walk_.more()) keys_ = walk_.tile();
  }

  SEQPAR_HD bool more() const { return walk_.more(); }
  SEQPAR_HD void next() {
    at_ += Step;
    if (at_ < keys_.rows) return;
    at_ = 0;
    walk_.next(tile_);
    if (walk_.more()) keys_ = walk_.tile();
  }
  SEQPAR_HD bool whole() const { return walk_.kind() == cover::all && keys_.rows - at_ >= Step; }

  SEQPAR_HD int held_rows() const { return held_.rows; }
  SEQPAR_HD const T* held1() const { return p_.q.at(batch_, held_.row, head_); }
  SEQPAR_HD const T* held2() const { return p_.dout.at(batch_, held_.row, head_); }
  SEQPAR_HD index_t held_stride1() const { return p_.q.token; }
  SEQPAR_HD index_t held_stride2() const { return p_.dout.token; }
  SEQPAR_DEVICE held held_of(int i) const {
    return seer::row_of(p_.queries, held_.row + (i < held_.rows ? i : 0), p_.mask);
  }
  SEQPAR_HD float* sums1(int row) const { return p_.dq.at(batch_, held_.row + row, head_); }
  SEQPAR_HD index_t sums_stride1() const { return p_.dq.token; }

  SEQPAR_HD int walked_rows() const { return keys_.rows - at_; }
  SEQPAR_HD const T* walked1() const { return seg().k.at(batch_, keys_.row + at_, kv()); }
  SEQPAR_HD const T* walked2() const { return seg().v.at(batch_, keys_.row + at_, kv()); }
  SEQPAR_HD index_t walked_stride1() const { return seg().k.token; }
  SEQPAR_HD index_t walked_stride2() const { return seg().v.token; }
  SEQPAR_DEVICE walked walked_of(int i) const {
    return seer::key_of(seg().keys.position_of(keys_, at_ + i < keys_.rows ? at_ + i : 0), p_.mask);
  }
  /// Of held rows.
  SEQPAR_HD row_numbers numbers_of(int i, float lift) const {
    return row_numbers::of(p_, batch_, head_, held_.row + i, i < held_.rows, lift);
  }
  SEQPAR_DEVICE static bool see(const held& row, const walked& key, const Mask& mask) {
    return seer::see(row, key, mask);
  }

 private:
  SEQPAR_HD const segment<T>& seg() const { return walk_.segment(); }
  SEQPAR_HD std::int32_t kv() const { return (p_.q_first + head_) / p_.heads_per_kv - p_.kv_first; }
  const args& p_;
  segment_walk<T> walk_;
  query_tile held_;
  key_tile keys_{};
  int at_ = 0;
  std::int32_t tile_, head_, batch_;
};

}  // namespace backward
}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
