// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums over ranks, in the order of the ranks: all_reduce and reduce_scatter of vectors, and the token mean of a loss.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include <seqpar/exchange/gather.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/space/overlap.hpp>

namespace seqpar {
inline namespace v0_1 {

/// What all_reduce can add: 16-bit and fp32 elements in fp32, double in double, integers as they are.
template <class T>
concept addable = summable<T> || std::same_as<T, index_t>;
template <addable T>
using sum_type = std::conditional_t<summable<T> && !std::same_as<T, double>, float, T>;

struct sum_options {
  gradient convention = gradient::sum;
  agreement check = agreement::checked;
};

/// out[e] = Σ_s in[e] of member s, on every member, added in ascending s: the same bits everywhere and in every run.
/// Meant for small vectors (counts, scalars, norms): every rank gets all contributions in one step.
///
/// Memory: scratch for the contributions. Runs allocate nothing. `in` and `out` are the same or lie apart, where exec
/// says: spans of device memory on a stream.
/// Adjoint: Σ_s d_out of member s where each rank used the sum for itself (gradient::sum), d_out where all ranks used
/// it alike (gradient::replicated).
template <addable T, transport Transport>
class all_reduce {
 public:
  all_reduce(mesh<Transport> team, exchange<Transport> gather, index_t elements, gradient convention)
      : team_(std::move(team)), gather_(std::move(gather)), elements_(elements), convention_(convention) {}

  index_t elements() const { return elements_; }
  index_t bytes_sent() const { return gather_.bytes_sent(); }
  memory_sizes memory() const {
    carver c;
    walk(c);
    return {.scratch = c.bytes()};
  }
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    if (failure f = try_prepare(given, exec)) raise(*f);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    if (status s = check_memory(given, memory()); !s.ok()) return error(fail(s));
    return gather_.try_prepare(given, exec);
  }

  template <class Exec>
  status forward(std::span<const T> in, std::span<T> out, const seqpar::memory& given, Exec exec) const {
    using Sum = sum_type<T>;
    const auto work = space_of(exec);
    if (status s = check(in, out, given, work); !s.ok()) return fail(s);
    carver c(given.scratch);
    const contributions mine = walk(c);
    if (status s = gather_.forward(in.data(), mine.parts, given, exec); !s.ok()) return s;
    const block result = bytes_of(out.data()), sums = std::same_as<Sum, T> ? result : bytes_of(mine.sums);
    work.zero(sums);
    for (int s = 0; s < team_.size(); ++s)
      work.template store<Sum, T>(sums, bytes_of(mine.parts + s * elements_), write::add);
    if constexpr (!std::same_as<Sum, T>) work.template store<T, Sum>(result, sums, write::assign);
    return work.outcome();
  }
  template <class Exec>
  status adjoint(std::span<const T> d_out, std::span<T> d_in, const seqpar::memory& given, Exec exec) const {
    if (convention_ == gradient::sum) return forward(d_out, d_in, given, exec);
    const auto work = space_of(exec);
    if (status s = check(d_out, d_in, given, work); !s.ok()) return fail(s);
    if (d_in.data() != d_out.data()) work.copy(bytes_of(d_in.data()), bytes_of(d_out.data()));
    return work.outcome();
  }
  /// Tells the peers that this rank does not come.
  status fail(status s) const {
    team_.transport().abort(s);
    return s;
  }

 private:
  template <class Space>
  status check(std::span<const T> from, std::span<T> to, const seqpar::memory& given, const Space& work) const {
    if (status s = check_memory(given, memory()); !s.ok()) return s;
    for (std::size_t n : {from.size(), to.size()})
      if (static_cast<index_t>(n) != elements_)
        return {errc::invalid_argument,
                "all_reduce: in or out has other elements than were planned",
                {elements_, static_cast<index_t>(n), " elements"}};
    const block scratch = dense_block(given.scratch.pointer, memory().scratch);
    const block in = dense_block(from.data(), elements_ * static_cast<index_t>(sizeof(T))),
                out = dense_block(to.data(), elements_ * static_cast<index_t>(sizeof(T)));
    if (overlap(in, scratch) || overlap(out, scratch))
      return {errc::overlapping_buffers, "all_reduce: memory.scratch overlaps in or out; give separate memory"};
    if (in.pointer != out.pointer && overlap(in, out))
      return {errc::overlapping_buffers, "all_reduce: in and out overlap in part; give one span as both, or two apart"};
    for (const auto& [name, b] : {std::pair{"in (d_out)", in}, {"out (d_in)", out}, {"memory.scratch", scratch}})
      if (const char* text = b.bytes() > 0 ? detail::problem_of_memory(work, b.pointer) : nullptr)
        return {errc::invalid_argument, text, -1, name};
    return {};
  }
  struct contributions {
    T* parts;           ///< of all members
    sum_type<T>* sums;  ///< where they are not of T
  };
  /// Behind the scratch of the gather itself.
  contributions walk(carver& c) const {
    c.take<std::byte>(gather_.memory().scratch);
    contributions s{};
    s.parts = c.take<T>(elements_ * team_.size());
    if constexpr (!std::same_as<sum_type<T>, T>) s.sums = c.take<sum_type<T>>(elements_);
    return s;
  }
  template <class E>
  block bytes_of(const E* array) const {
    return dense_block(array, elements_ * static_cast<index_t>(sizeof(E)));
  }

  mesh<Transport> team_;
  exchange<Transport> gather_;  ///< element e of member s is row s·elements + e
  index_t elements_;
  gradient convention_;
};

/// Fails: a negative number of elements.
template <addable T, transport Transport>
result<all_reduce<T, Transport>> try_plan_all_reduce(const mesh<Transport>& team, index_t elements,
                                                     const sum_options& options = {}) {
  const char* where = "plan_all_reduce";
  if (elements < 0) return detail::invalid(where, {"elements must be 0 or more, got ", elements});
  if (detail::exceeds_64_bits({elements, team.size(), sizeof(T), 8}))
    return detail::invalid(where, "the contributions of all ranks have more than 2^62 bytes; give smaller sizes");
  const contiguous parts{.tokens = elements * team.size(), .ranks = team.size()};
  detail::statement said(where);
  said.add("the number of elements", elements);
  const exchange_options moves{
      .row_bytes = sizeof(T), .convention = options.convention, .passes = forward_only, .check = options.check};
  auto gather = detail::make_exchange(
      team, [&](int r) { return holding_of(parts, r); }, [&](int) { return all_rows(parts.tokens); }, moves,
      std::move(said), team.size() == 1);
  if (!gather) return gather.failure();
  gather.value().also_said("the element type", detail::type_code<T>());
  return all_reduce<T, Transport>(team, std::move(gather.value()), elements, options.convention);
}
template <addable T, transport Transport>
all_reduce<T, Transport> plan_all_reduce(const mesh<Transport>& team, index_t elements,
                                         const sum_options& options = {}) {
  return try_plan_all_reduce<T>(team, elements, options).value();
}

/// out[i] on member r = Σ_s in[layout.global_of(r, i)] of member s, which has all rows. The transpose of a gather, and
/// nothing else: Adjoint: gather to all. Sums are made in fp32 (double in double), in ascending s.
template <summable T, transport Transport>
class reduce_scatter {
 public:
  explicit reduce_scatter(exchange<Transport> gather) : gather_(std::move(gather)) {}

  index_t in_rows() const { return gather_.wanted_rows(); }
  index_t out_rows() const { return gather_.own_rows(); }
  index_t bytes_sent() const { return gather_.bytes_received(); }
  memory_sizes memory() const { return gather_.memory(); }
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    gather_.prepare(given, exec);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    return gather_.try_prepare(given, exec);
  }
  template <class Exec>
  status forward(row_buffer in, row_buffer out, const seqpar::memory& given, Exec exec) const {
    return gather_.template adjoint<T>(in, out, given, exec);
  }
  template <class Exec>
  status adjoint(row_buffer d_out, row_buffer d_in, const seqpar::memory& given, Exec exec) const {
    return gather_.forward(d_out, d_in, given, exec);
  }

 private:
  exchange<Transport> gather_;
};

/// Fails: gradient::replicated (there is nothing to choose: each rank has its own rows), what plan_gather refuses.
template <summable T, transport Transport, sequence_layout L>
result<reduce_scatter<T, Transport>> try_plan_reduce_scatter(const mesh<Transport>& team, const L& layout,
                                                             const exchange_options& options) {
  const char* where = "plan_reduce_scatter";
  if (options.convention != gradient::sum || options.passes == forward_only)
    return detail::invalid(where, "it is the adjoint of a gather under gradient::sum; plan it so");
  auto gather = detail::plan_gather_to(where, team, layout, -1, options);
  if (!gather) return gather.failure();
  gather.value().also_said("the element type", detail::type_code<T>());
  return reduce_scatter<T, Transport>(std::move(gather.value()));
}
template <summable T, transport Transport, sequence_layout L>
reduce_scatter<T, Transport> plan_reduce_scatter(const mesh<Transport>& team, const L& layout,
                                                 const exchange_options& options) {
  return try_plan_reduce_scatter<T>(team, layout, options).value();
}

/// A mean over the valid tokens of all ranks; 0 when there are none.
struct mean {
  double value = 0;
  index_t count = 0;
  /// d value / d loss of each valid token.
  double weight() const { return count > 0 ? 1 / static_cast<double>(count) : 0; }
};

/// mean = Σ loss over the valid tokens of all ranks / their number: not a mean of means, whatever each rank holds.
/// `valid(i)` says whether own token i counts; the loss of one that does not is not even read.
///
/// Adjoint: d_losses[i] = d_mean · weight() for valid tokens, else 0. gradient::replicated: the mean is one scalar that
/// all ranks have (the usual loss); gradient::sum: each rank went on with it for itself, d_mean is summed over ranks.
/// Sums are made in double, in the order of tokens, then of ranks: the same bits on every rank. Runs allocate nothing.
/// Losses are read on the host; those of device memory: cuda::token_mean.
template <transport Transport>
class token_mean {
 public:
  token_mean(all_reduce<double, Transport> sums, gradient convention)
      : sums_(std::move(sums)), convention_(convention) {}

  memory_sizes memory() const {
    carver c;
    (void)walk(c);
    return {.scratch = c.bytes()};
  }
  template <class Exec>
  void prepare(const seqpar::memory& given, Exec exec) {
    sums_.prepare(given, exec);
  }
  template <class Exec>
  [[nodiscard]] failure try_prepare(const seqpar::memory& given, Exec exec) {
    if (status s = check_memory(given, memory()); !s.ok()) return error(sums_.fail(s));
    return sums_.try_prepare(given, exec);
  }

  template <class T, class Valid, class Exec>
  status forward(std::span<const T> losses, Valid&& valid, mean& out, const seqpar::memory& given, Exec exec) const {
    runs_on_host<Exec>();
    double loss = 0, tokens = 0;
    for (std::size_t i = 0; i < losses.size(); ++i)
      if (valid(static_cast<index_t>(i))) {
        loss += static_cast<double>(losses[i]);
        ++tokens;
      }
    double sums[2] = {loss, tokens};
    if (status s = add_up(sums, given, exec); !s.ok()) return s;
    out.count = static_cast<index_t>(sums[1]);  // exact below 2^53
    out.value = out.count > 0 ? sums[0] / sums[1] : 0;
    return {};
  }
  template <class T, class Valid, class Exec>
  status adjoint(double d_mean, const mean& of, Valid&& valid, std::span<T> d_losses, const seqpar::memory& given,
                 Exec exec) const {
    runs_on_host<Exec>();
    if (convention_ == gradient::sum) {
      double sums[2] = {d_mean, 0};
      if (status s = add_up(sums, given, exec); !s.ok()) return s;
      d_mean = sums[0];
    }
    using Number = std::conditional_t<std::same_as<T, double>, double, float>;
    const T each(static_cast<Number>(d_mean * of.weight()));
    for (std::size_t i = 0; i < d_losses.size(); ++i) d_losses[i] = valid(static_cast<index_t>(i)) ? each : T(0);
    return {};
  }

 private:
  /// Where the two numbers lie while they travel: behind the scratch of the sum itself.
  std::span<double> walk(carver& c) const {
    c.take<std::byte>(sums_.memory().scratch);
    return detail::span_over(c.take<double>(2), 2);
  }
  template <class Exec>
  status add_up(std::span<double, 2> sums, const seqpar::memory& given, Exec exec) const {
    if (status s = check_memory(given, memory()); !s.ok()) return sums_.fail(s);
    carver c(given.scratch);
    const std::span<double> travelling = walk(c);
    std::copy(sums.begin(), sums.end(), travelling.begin());
    status s = sums_.forward(travelling, travelling, given, exec);
    std::copy(travelling.begin(), travelling.end(), sums.begin());
    return s;
  }

  all_reduce<double, Transport> sums_;  ///< of {loss, tokens}
  gradient convention_;
};

template <transport Transport>
token_mean<Transport> plan_token_mean(const mesh<Transport>& team,
                                      const sum_options& options = {.convention = gradient::replicated}) {
  return {plan_all_reduce<double>(team, 2, options), options.convention};
}

}  // namespace v0_1
}  // namespace seqpar
