// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks made of masks: all_of and any_of.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/mask/intervals.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {
/// A mask that contains any_of, and so is the union of simpler ones.
template <class M>
concept has_alternatives = requires {
  requires bool{M::alternatives};
};

/// g(a) for masks a whose union is `mask`.
template <class M, class G>
constexpr void for_each_alternative(const M& mask, G&& g) {
  if constexpr (has_alternatives<M>)
    mask.for_each_alternative(g);
  else
    g(mask);
}

/// The keys of one part of an all_of; a part without intervals narrows nothing.
template <class M>
constexpr auto list_or_all(const M& mask, index_t q) {
  if constexpr (listed_mask<M>) {
    return seqpar::key_list(mask, q);
  } else {
    interval_list<1> all;
    all.add({0, unbounded});
    return all;
  }
}

/// The first part with something wrong, told by what it says itself.
template <class... Parts>
constexpr flaw first_problem(const Parts&... parts) {
  flaw found;
  ((found = found ? found : problem_of(parts)), ...);
  return found;
}
template <class... Parts>
std::string first_misfit(padded_length q, padded_length k, const Parts&... parts) {
  std::string found;
  ((found = found.empty() ? misfit_of(parts, q, k) : found), ...);
  return found;
}
template <class M>
constexpr void tell_padding_of(const M& mask, padded_length& q, padded_length& k) {
  if constexpr (requires { mask.tell_padding(q, k); }) mask.tell_padding(q, k);
}
}  // namespace detail

/// allows(q, k) = every part allows it.
///
/// Intervals: n parts of at most m₁ … mₙ intervals give at most Σm − (n − 1). Up to 2 there is key_intervals, beyond
/// that try_key_intervals, which answers for the queries that fit; with a part that has no intervals there is neither.
/// Reach is exact if all parts have intervals; else it is that of the parts that narrow it.
template <attention_mask... Parts>
struct all_of {
  std::tuple<Parts...> parts;
  constexpr explicit(sizeof...(Parts) == 1) all_of(Parts... given) : parts(given...) {}

  static constexpr bool listed = (listed_mask<Parts> && ...);
  static constexpr bool alternatives = (detail::has_alternatives<Parts> || ...);
  static constexpr int max_intervals = [] {
    if constexpr (listed)
      return (max_intervals_of<Parts> + ...) - (static_cast<int>(sizeof...(Parts)) - 1);
    else
      return 0;
  }();

  constexpr bool allows(index_t q, index_t k) const {
    return std::apply([&](const auto&... part) { return (part.allows(q, k) && ...); }, parts);
  }
  /// Lower ends' maximum and upper ends' minimum ascend as the parts' do.
  constexpr interval band(index_t q) const requires(detail::banded<Parts>&&...) {
    interval keys{0, unbounded};
    const auto narrow = [&](interval x) { keys = {detail::greater(keys.lo, x.lo), detail::lesser(keys.hi, x.hi)}; };
    std::apply([&](const auto&... part) { (narrow(part.band(q)), ...); }, parts);
    return keys;
  }
  constexpr auto key_list(index_t q) const requires listed { return narrowed(q); }
  constexpr interval_pair key_intervals(index_t q) const requires(listed&& max_intervals <= 2) {
    return *narrowed(q).pair();
  }
  constexpr std::optional<interval_pair> try_key_intervals(index_t q) const requires(listed && (max_intervals > 2)) {
    return narrowed(q).pair();
  }
  constexpr cover covers(interval q, interval k) const {
    cover whole = cover::all;
    const auto meet = [&](cover part) {
      if (part == cover::none) whole = cover::none;
      if (part == cover::some && whole == cover::all) whole = cover::some;
      return whole != cover::none;
    };
    std::apply([&](const auto&... part) { (meet(seqpar::covers(part, q, k)) && ...); }, parts);
    if constexpr ((detail::banded<Parts> && ...))
      return whole == cover::some ? detail::band_covers(*this, q, k) : whole;
    else
      return whole;
  }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    if constexpr (alternatives) {  // A ∩ (B ∪ C) = (A ∩ B) ∪ (A ∩ C), and the reach of a union is the union of reaches
      for_each_alternative([&](const auto& mask) { mask.reach(q, f); });
    } else if constexpr ((detail::banded<Parts> && ...)) {
      detail::band_reach(*this, q, f);
    } else {
      const auto list_of = [&](index_t i) { return narrowed(i); };
      if constexpr (opaque_with_reach()) {
        interval hull{unbounded, 0};
        detail::list_reach(q, list_of, [&](interval x) {
          hull = {detail::lesser(hull.lo, x.lo), detail::greater(hull.hi, x.hi)};
        });
        const auto clipped = [&](interval x) {
          if (!intersection(x, hull).empty()) f(intersection(x, hull));
        };
        bool done = false;
        std::apply([&](const auto&... part) { ((done = done || reach_of_opaque(part, q, clipped)), ...); }, parts);
      } else {
        detail::list_reach(q, list_of, f);
      }
    }
  }
  /// g(mask) for masks without any_of whose union is this one.
  template <class G>
  constexpr void for_each_alternative(G&& g) const {
    expand<0>(g);
  }

  constexpr auto bound(index_t q_tokens, index_t k_tokens) const {
    return std::apply([&](const auto&... part) { return seqpar::all_of(seqpar::bound(part, q_tokens, k_tokens)...); },
                      parts);
  }
  template <class Keep>
  constexpr auto rebound(Keep&& keep) const {
    return std::apply([&](const auto&... part) { return seqpar::all_of(seqpar::rebound(part, keep)...); }, parts);
  }
  constexpr flaw problem() const {
    return std::apply([](const auto&... part) { return detail::first_problem(part...); }, parts);
  }
  std::string misfit(padded_length q, padded_length k) const {
    tell_padding(q, k);
    return std::apply([&](const auto&... part) { return detail::first_misfit(q, k, part...); }, parts);
  }
  constexpr void tell_padding(padded_length& q, padded_length& k) const {
    std::apply([&](const auto&... part) { (detail::tell_padding_of(part, q, k), ...); }, parts);
  }
  friend constexpr bool operator==(const all_of&,
                                   const all_of&) requires(std::equality_comparable<Parts>&&...) = default;

 private:
  constexpr auto narrowed(index_t q) const {
    return std::apply([&](const auto&... part) { return (detail::list_or_all(part, q) & ...); }, parts);
  }
  template <std::size_t At, class G, class... Leaves>
  constexpr void expand(G& g, const Leaves&... leaves) const {
    if constexpr (At == sizeof...(Parts))
      g(all_of<Leaves...>(leaves...));
    else
      detail::for_each_alternative(std::get<At>(parts), [&](const auto& leaf) { expand<At + 1>(g, leaves..., leaf); });
  }
  template <class M>
  static constexpr bool opaque = !listed_mask<M> && has_reach<M>;
  static constexpr bool opaque_with_reach() { return (opaque<Parts> || ...); }
  template <class M, class F>
  static constexpr bool reach_of_opaque(const M& part, interval q, F& f) {
    if constexpr (opaque<M>) part.reach(q, f);
    return opaque<M>;
  }
};

/// allows(q, k) = some part allows it.
///
/// Intervals: parts of at most m₁ … mₙ intervals give at most Σm; see all_of for what follows from that.
/// Reach is exact if every part's is.
template <attention_mask... Parts>
struct any_of {
  std::tuple<Parts...> parts;
  constexpr explicit(sizeof...(Parts) == 1) any_of(Parts... given) : parts(given...) {}

  static constexpr bool listed = (listed_mask<Parts> && ...);
  static constexpr bool alternatives = true;
  static constexpr int max_intervals = [] {
    if constexpr (listed)
      return (max_intervals_of<Parts> + ...);
    else
      return 0;
  }();

  constexpr bool allows(index_t q, index_t k) const {
    return std::apply([&](const auto&... part) { return (part.allows(q, k) || ...); }, parts);
  }
  constexpr auto key_list(index_t q) const requires listed {
    return std::apply([&](const auto&... part) { return (seqpar::key_list(part, q) | ...); }, parts);
  }
  constexpr interval_pair key_intervals(index_t q) const requires(listed&& max_intervals <= 2) {
    return *key_list(q).pair();
  }
  constexpr std::optional<interval_pair> try_key_intervals(index_t q) const requires(listed && (max_intervals > 2)) {
    return key_list(q).pair();
  }
  constexpr cover covers(interval q, interval k) const {
    cover whole = cover::none;
    const auto join = [&](cover part) {
      if (part == cover::all) whole = cover::all;
      if (part == cover::some && whole == cover::none) whole = cover::some;
      return whole != cover::all;
    };
    std::apply([&](const auto&... part) { (join(seqpar::covers(part, q, k)) && ...); }, parts);
    return whole;
  }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    std::apply([&](const auto&... part) { (seqpar::reach(part, q, unbounded, f), ...); }, parts);
  }
  /// g(mask) for masks without any_of whose union is this one.
  template <class G>
  constexpr void for_each_alternative(G&& g) const {
    std::apply([&](const auto&... part) { (detail::for_each_alternative(part, g), ...); }, parts);
  }

  constexpr auto bound(index_t q_tokens, index_t k_tokens) const {
    return std::apply([&](const auto&... part) { return seqpar::any_of(seqpar::bound(part, q_tokens, k_tokens)...); },
                      parts);
  }
  template <class Keep>
  constexpr auto rebound(Keep&& keep) const {
    return std::apply([&](const auto&... part) { return seqpar::any_of(seqpar::rebound(part, keep)...); }, parts);
  }
  constexpr flaw problem() const {
    return std::apply([](const auto&... part) { return detail::first_problem(part...); }, parts);
  }
  /// What one part leaves out another may speak of: no position is one that a part has to know.
  std::string misfit(padded_length q, padded_length k) const {
    q.real = k.real = 0;
    return std::apply([&](const auto&... part) { return detail::first_misfit(q, k, part...); }, parts);
  }
  friend constexpr bool operator==(const any_of&,
                                   const any_of&) requires(std::equality_comparable<Parts>&&...) = default;
};

}  // namespace v0_1
}  // namespace seqpar
