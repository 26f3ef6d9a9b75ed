// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A route carried out on memory: its legs as messages, its own rows as copies, its sums as additions.
#pragma once

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/detail/function_ref.hpp>
#include <seqpar/exchange/route.hpp>
#include <seqpar/space/concept.hpp>
#include <seqpar/views.hpp>

namespace seqpar {
inline namespace v0_1 {

/// Memory with rows: entry (b, row, column) is column_bytes bytes at b·batch_stride + row·row_stride +
/// column·column_stride.
struct row_array {
  void* pointer = nullptr;
  index_t batch = 1, batch_stride = 0, row_stride = 0, column_stride = 0, column_bytes = 0;

  block rows(index_t b, index_t first_row, index_t count, index_t step, index_t first_column, index_t columns) const {
    std::byte* base = static_cast<std::byte*>(pointer);
    if (base) base += b * batch_stride + first_row * row_stride + first_column * column_stride;
    return {base, count, step * row_stride, columns, column_stride, column_bytes};
  }
};

/// Rows are tokens, columns are heads.
template <class T>
row_array array_of(const rows_view<T>& v) {
  constexpr auto size = static_cast<index_t>(sizeof(T));
  return {const_cast<std::remove_const_t<T>*>(v.pointer),
          v.batch(),
          v.stride[0] * size,
          v.stride[1] * size,
          v.stride[2] * size,
          v.dim() * size};
}
template <class T>
row_array array_of(const heads_view<T>& v) {
  constexpr auto size = static_cast<index_t>(sizeof(T));
  return {const_cast<std::remove_const_t<T>*>(v.pointer),
          v.shape[0],
          v.stride[0] * size,
          v.stride[2] * size,
          v.stride[1] * size,
          size};
}

namespace detail {

/// Legs are posted as strided blocks.
template <class Transport>
constexpr bool moves_strided() {
  static_assert(Transport::access != transport_access::contiguous_only,
                "[seqpar] exchanges post strided blocks; a transport with access contiguous_only must pack them itself "
                "and say strided");
  return true;
}

/// Who holds a row's memory.
enum class holder { owner, wanter };

/// One line of a leg: `count` rows at even distances on both sides, in one item of the batch.
struct line {
  index_t batch, owner, owner_step, wanter, wanter_step, count;
};

template <class = when_used>
void for_each_line(const leg& l, index_t batch, function_ref<void(const line&)> f) {
  for (index_t b = 0; b < batch; ++b)
    for (const stretch& t : l.stretches)
      for (index_t o = 0; o < t.repeat; ++o)
        f(line{b, t.owner + o * t.owner_outer, t.owner_step, t.wanter + o * t.wanter_outer, t.wanter_step, t.count});
}

inline block owner_block(const row_array& a, const leg& l, const line& n) {
  return a.rows(n.batch, n.owner, n.count, n.owner_step, l.owner_column, l.columns.size());
}
inline block wanter_block(const row_array& a, const leg& l, const line& n) {
  return a.rows(n.batch, n.wanter, n.count, n.wanter_step, l.wanter_column, l.columns.size());
}
/// The line packed at `base`, which moves on behind it.
inline block packed_block(std::byte*& base, const leg& l, const line& n, index_t column_bytes) {
  const index_t row = l.columns.size() * column_bytes;
  const block b{base, n.count, row, l.columns.size(), column_bytes, column_bytes};
  base += n.count * row;
  return b;
}

inline index_t block_count(const std::vector<leg>& legs) {
  index_t n = 0;
  for (const leg& l : legs) n += l.blocks();
  return n;
}

/// f(block, rank) for each line that this side's memory gives or takes.
template <class = when_used>
void for_each_message(const route& way, holder side, const row_array& a, peer_ranks team,
                      function_ref<void(const block&, int)> f) {
  const bool owner = side == holder::owner;
  for (const leg& l : owner ? way.outgoing() : way.incoming())
    for_each_line(l, a.batch, [&](const line& n) {
      f(owner ? owner_block(a, l, n) : wanter_block(a, l, n), team.rank_of(l.peer));
    });
}
template <class Group>
void send(Group& group, peer_ranks team, const route& way, holder side, const row_array& a) {
  for_each_message(way, side, a, team, [&](const block& b, int rank) { group.send(b, rank); });
}
template <class Group>
void receive(Group& group, peer_ranks team, const route& way, holder side, const row_array& a) {
  for_each_message(way, side, a, team, [&](const block& b, int rank) { group.recv(b, rank); });
}
}  // namespace detail

/// The messages of `copy`: wanted rows go from their owner's memory to the wanter's.
template <class Group>
void post_copy(Group& group, peer_ranks team, const route& way, const row_array& owner, const row_array& wanter) {
  detail::send(group, team, way, detail::holder::owner, owner);
  detail::receive(group, team, way, detail::holder::wanter, wanter);
}

/// The messages of `inverse`: wanted rows go back to their owner, each entry from the one rank that wants it.
template <class Group>
void post_inverse(Group& group, peer_ranks team, const route& way, const row_array& owner, const row_array& wanter) {
  detail::send(group, team, way, detail::holder::wanter, wanter);
  detail::receive(group, team, way, detail::holder::owner, owner);
}

/// The messages of `add`: wanted rows go back to their owner and land packed in `staging`, wanter after wanter.
template <class Group>
void post_add(Group& group, peer_ranks team, const route& way, const row_array& wanter, void* staging) {
  detail::send(group, team, way, detail::holder::wanter, wanter);
  std::byte* base = static_cast<std::byte*>(staging);
  for (const leg& l : way.outgoing())
    detail::for_each_line(l, wanter.batch, [&](const detail::line& n) {
      group.recv(detail::packed_block(base, l, n, wanter.column_bytes), team.rank_of(l.peer));
    });
}

/// Bytes that a launch of this route asks a packing transport for, in the worst case of strides.
template <class = when_used>
index_t packed_bytes(const route& way, index_t batch, index_t column_bytes) {
  index_t bytes = 0;
  for (const auto* legs : {&way.incoming(), &way.outgoing()})
    for (const leg& l : *legs)
      detail::for_each_line(l, batch, [&](const detail::line& n) {
        bytes += round_up(n.count * l.columns.size() * column_bytes, pack_alignment);
      });
  return bytes;
}

/// The ranks that this member meets on the route.
template <class = when_used>
void add_peers(std::vector<int>& peers, peer_ranks team, const route& way) {
  for (const auto* legs : {&way.incoming(), &way.outgoing()})
    for (const leg& l : *legs) peers.push_back(team.rank_of(l.peer));
}

/// Bytes that post_add lands in.
inline index_t staging_bytes(const route& way, index_t batch, index_t column_bytes) {
  return way.entries_sent() * batch * column_bytes;
}

namespace detail {
/// The rows of a line, but for those that lie where they belong: peers may be reading them. Two lines of unequal step
/// meet in one row at most.
template <space Space>
void copy_line(const Space& work, const block& to, const block& from) {
  const index_t apart =
      static_cast<index_t>(reinterpret_cast<std::intptr_t>(to.pointer) - reinterpret_cast<std::intptr_t>(from.pointer));
  const index_t closing = from.row_stride - to.row_stride;
  if (apart == 0 && closing == 0) return;
  const bool meet = closing != 0 && apart % closing == 0 && apart / closing >= 0 && apart / closing < to.rows;
  if (!meet) return work.copy(to, from);
  const index_t still = apart / closing;
  const auto part = [](block b, index_t first, index_t rows) {
    b.pointer = static_cast<std::byte*>(b.pointer) + first * b.row_stride;
    b.rows = rows;
    return b;
  };
  work.copy(part(to, 0, still), part(from, 0, still));
  work.copy(part(to, still + 1, to.rows - still - 1), part(from, still + 1, to.rows - still - 1));
}

template <space Space>
void copy_lines(const Space& work, const route& way, const row_array& owner, const row_array& wanter, holder to) {
  for_each_line(way.own(), owner.batch, [&](const line& n) {
    const block o = owner_block(owner, way.own(), n), w = wanter_block(wanter, way.own(), n);
    to == holder::owner ? copy_line(work, o, w) : copy_line(work, w, o);
  });
}
}  // namespace detail

/// Rows that this rank owns and wants, owner → wanter.
template <space Space>
void copy_own(const Space& work, const route& way, const row_array& owner, const row_array& wanter) {
  detail::copy_lines(work, way, owner, wanter, detail::holder::wanter);
}

/// The same, wanter → owner.
template <space Space>
void copy_own_back(const Space& work, const route& way, const row_array& owner, const row_array& wanter) {
  detail::copy_lines(work, way, owner, wanter, detail::holder::owner);
}

/// owner += what post_add brought and this rank's own share, in ascending order of wanters: a fixed order.
/// Elements are From on the wire and in `wanter`, To in `owner`.
template <class To, class From, space Space>
void add_up(const Space& work, int me, const route& way, const row_array& owner, const row_array& wanter,
            const void* staging) {
  std::byte* base = static_cast<std::byte*>(const_cast<void*>(staging));
  const auto add = [&](const leg& l) {
    detail::for_each_line(l, owner.batch, [&](const detail::line& n) {
      work.template store<To, From>(
          detail::owner_block(owner, l, n),
          &l == &way.own() ? detail::wanter_block(wanter, l, n) : detail::packed_block(base, l, n, wanter.column_bytes),
          write::add);
    });
  };
  bool own_done = false;
  for (const leg& l : way.outgoing()) {
    if (!own_done && l.peer > me) {
      add(way.own());
      own_done = true;
    }
    add(l);
  }
  if (!own_done) add(way.own());
}

}  // namespace v0_1
}  // namespace seqpar
