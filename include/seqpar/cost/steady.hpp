// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How long a mask goes on as it began: what lets costs grow with a mask's runs, not with its queries.
#pragma once

#include <array>
#include <cstddef>

#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/intervals.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

/// until(mask, q) > q: for all queries below it the mask's key list has as many intervals as at q, and each of their
/// ends stays where it is or moves by one per query. A mask of the caller's own says so with a member steady_until(q).
template <class M>
struct steady {
  static constexpr bool known = requires(const M& mask, index_t q) { mask.steady_until(q); };
  static index_t until(const M& mask, index_t q) {
    if constexpr (known)
      return mask.steady_until(q);
    else
      return q + 1;
  }
};

struct known_steady {
  static constexpr bool known = true;
};
template <>
struct steady<full> : known_steady {
  static index_t until(const full&, index_t) { return unbounded; }
};
template <>
struct steady<first_keys> : known_steady {
  static index_t until(const first_keys&, index_t) { return unbounded; }
};
template <>
struct steady<valid> : known_steady {
  static index_t until(const valid& m, index_t q) { return q < m.queries ? m.queries : unbounded; }
};
template <>
struct steady<causal> : known_steady {  // empty up to −offset
  static index_t until(const causal& m, index_t q) { return q < -m.offset ? -m.offset : unbounded; }
};
template <>
struct steady<window> : known_steady {  // empty up to the first key, then cut off on the left up to `whole`
  static index_t until(const window& m, index_t q) {
    const index_t begins = -m.offset - lesser(m.right, unbounded), whole = lesser(m.left, unbounded) - m.offset;
    return q < begins ? begins : q < whole ? whole : unbounded;
  }
};
template <>
struct steady<block_causal> : known_steady {
  static index_t until(const block_causal& m, index_t q) { return (q / m.block + 1) * m.block; }
};
template <>
struct steady<prefix_lm> : known_steady {
  static index_t until(const prefix_lm& m, index_t q) { return q + 1 < m.prefix ? m.prefix - 1 : unbounded; }
};
template <>
struct steady<teacher_forcing> : known_steady {
  static index_t until(const teacher_forcing& m, index_t q) {
    const index_t copy = q < m.clean ? 0 : index_t{m.clean};
    return q >= 2 * m.clean ? unbounded : copy + lesser(((q - copy) / m.block + 1) * m.block, m.clean);
  }
};
template <>
struct steady<documents> : known_steady {
  static index_t until(const documents& m, index_t q) {
    const index_t d = m.of_query(q);
    return d < m.count() ? m.q_span(d).hi : unbounded;
  }
};

/// Ends of intervals at a query and at the next one. Their order lasts until a moving one meets a fixed one.
template <std::size_t Most>
class moving_ends {
 public:
  void add(index_t now, index_t next) { ends_[count_++] = {now, next != now}; }
  template <int N>
  void add(const interval_list<N>& now, const interval_list<N>& next) {
    for (int i = 0; i < now.count; ++i) {
      add(now.items[i].lo, next.items[i].lo);
      add(now.items[i].hi, next.items[i].hi);
    }
  }
  /// The first query after `q`, at most `end`, at which that order may have changed.
  index_t until(index_t q, index_t end) const {
    for (std::size_t m = 0; m < count_; ++m)
      for (std::size_t f = 0; ends_[m].moves && f < count_; ++f)
        if (const index_t apart = ends_[f].at - ends_[m].at; !ends_[f].moves && apart >= 0)
          end = lesser(end, q + greater(1, apart));
    return end;
  }

 private:
  struct one {
    index_t at;
    bool moves;
  };
  std::array<one, Most> ends_;
  std::size_t count_ = 0;
};

/// until() of a mask whose intervals are made of those of its parts.
template <class... Parts>
index_t combined_until(const std::tuple<Parts...>& parts, index_t q) {
  return std::apply(
      [q](const Parts&... part) {
        index_t end = unbounded;
        ((end = lesser(end, steady<Parts>::until(part, q))), ...);
        moving_ends<static_cast<std::size_t>(2 * (max_intervals_of<Parts> + ...))> ends;
        if (end > q + 1) (ends.add(seqpar::key_list(part, q), seqpar::key_list(part, q + 1)), ...);
        return ends.until(q, end);
      },
      parts);
}
template <class... Parts>
struct steady<all_of<Parts...>> {
  static constexpr bool known = (steady<Parts>::known && ...);
  static index_t until(const all_of<Parts...>& m, index_t q) { return combined_until(m.parts, q); }
};
template <class... Parts>
struct steady<any_of<Parts...>> {
  static constexpr bool known = (steady<Parts>::known && ...);
  static index_t until(const any_of<Parts...>& m, index_t q) { return combined_until(m.parts, q); }
};
template <class Inner>
struct steady<within<Inner>> {
  static constexpr bool known = steady<Inner>::known;
  static index_t until(const within<Inner>& m, index_t q) {
    const index_t d = m.docs.of_query(q);
    if (d >= m.docs.count()) return unbounded;
    const interval queries = m.docs.q_span(d);
    const auto inner = bound(m.inner, queries.size(), m.docs.k_span(d).size());
    const index_t at = q - queries.lo;
    const index_t end = lesser(queries.size(), steady<Inner>::until(inner, at));
    moving_ends<static_cast<std::size_t>(2 * max_intervals_of<Inner> + 2)> ends;
    ends.add(0, 0);
    ends.add(m.docs.k_span(d).size(), m.docs.k_span(d).size());
    if (end > at + 1) ends.add(seqpar::key_list(inner, at), seqpar::key_list(inner, at + 1));
    return queries.lo + ends.until(at, end);
  }
};

}  // namespace detail

/// The first query after q from which the mask's intervals may go on in another way: for a mask made of others that
/// has a member steady_until itself.
template <attention_mask M>
index_t steady_until(const M& mask, index_t q) {
  return detail::steady<M>::until(mask, q);
}

}  // namespace v0_1
}  // namespace seqpar
