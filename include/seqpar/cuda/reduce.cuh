// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The token mean of losses in device memory: CUB sums a rank's, all_reduce the ranks'. Needs nvcc.
#pragma once

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_reduce.cuh>
#include <initializer_list>
#include <utility>

#include <seqpar/cuda.cuh>
#include <seqpar/cuda/loss_kernels.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// The loss of a token that counts, as two sums.
template <element T, class Valid>
struct loss_of {
  const T* losses;
  Valid valid;
  __device__ loss_sums operator()(index_t i) const {
    if (!valid(i)) return {0, 0};
    gpu_hardware hw;
    return {static_cast<double>(hw.widen(losses[i])), 1};
  }
};
struct add_losses {
  __device__ loss_sums operator()(const loss_sums& a, const loss_sums& b) const {
    return {a.loss + b.loss, a.tokens + b.tokens};
  }
};

/// seqpar::token_mean of losses in device memory: mean = Σ loss over the valid tokens of all ranks / their number.
/// `valid(i)` says whether own token i counts: a trivially copyable functor with a default constructor, SEQPAR_HD.
///
/// Adjoint: d_losses[i] = d_mean / count for valid tokens, else 0 (gradient::replicated).
/// Stream: exec's, captured or not; `out` is in device memory, too. Memory: scratch, as much as CUB asks for on the
/// current device. Determinism: a rank's sum is made in double, in the same order in every run on one kind of device;
/// those of the ranks in their order.
template <element T, class Valid, transport Transport>
class token_mean {
 public:
  token_mean(all_reduce<double, Transport> sums, index_t most_tokens) : sums_(std::move(sums)), most_(most_tokens) {}

  /// Fails (by asking for 2^62 bytes): CUB has no answer for the current device.
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
    if (status s = check_memory(given, memory()); !s.ok()) return error(sums_.fail(s));
    return sums_.try_prepare(given, exec);
  }

  status forward(std::span<const T> losses, Valid valid, mean* out, const seqpar::memory& given,
                 const on_device& exec) const {
    if (status s = check(losses.size(), given); !s.ok()) return sums_.fail(s);
    if (status s = lie_there(exec, {{"losses", losses.data()}, {"out", out}}); !s.ok()) return sums_.fail(s);
    carver c(given.scratch);
    const places mine = walk(c);
    std::size_t bytes = static_cast<std::size_t>(temporary_bytes());
    if (status s = status_of(sum(mine.temporary, bytes, losses, valid, mine.sums, exec.compute), "token_mean: CUB");
        !s.ok())
      return sums_.fail(s);
    double* both = &mine.sums->loss;
    if (status s = sums_.forward(std::span<const double>(both, 2), std::span(both, 2), given, exec); !s.ok()) return s;
    return status_of(exec.template launch<mean_body>(1, {mine.sums, out}), "token_mean: a kernel was refused");
  }
  /// `of` is what forward wrote.
  status adjoint(double d_mean, const mean* of, Valid valid, std::span<T> d_losses, const on_device& exec) const {
    if (status s = lie_there(exec, {{"of", of}, {"d_losses", d_losses.data()}}); !s.ok()) return s;
    const typename mean_adjoint_body<T, Valid>::params p{of, d_losses.data(), static_cast<index_t>(d_losses.size()),
                                                         d_mean, valid};
    return status_of(exec.template launch<mean_adjoint_body<T, Valid>>(p.work(), p),
                     "token_mean: a kernel was refused");
  }

 private:
  struct places {
    loss_sums* sums;
    std::byte* temporary;
  };
  /// Behind the scratch of the sum over ranks.
  places walk(carver& c) const {
    c.take<std::byte>(sums_.memory().scratch);
    places p{};
    p.sums = c.take<loss_sums>(1);
    p.temporary = c.take<std::byte>(temporary_bytes());
    return p;
  }
  static cudaError_t sum(void* temporary, std::size_t& bytes, std::span<const T> losses, Valid valid, loss_sums* to,
                         cudaStream_t stream) {
    return ::cub::DeviceReduce::TransformReduce(temporary, bytes, ::thrust::counting_iterator<index_t>(0), to,
                                                static_cast<index_t>(losses.size()), add_losses{},
                                                loss_of<T, Valid>{losses.data(), valid}, loss_sums{0, 0}, stream);
  }
  index_t temporary_bytes() const {
    std::size_t bytes = 0;
    const std::span<const T> most(static_cast<const T*>(nullptr), static_cast<std::size_t>(most_));
    return sum(nullptr, bytes, most, Valid{}, nullptr, nullptr) == cudaSuccess ? static_cast<index_t>(bytes)
                                                                               : unbounded;
  }
  static status lie_there(const on_device& exec, std::initializer_list<std::pair<const char*, const void*>> arrays) {
    for (const auto& [name, array] : arrays)
      if (const char* text = array ? space_of(exec).problem_of(array) : nullptr)
        return {errc::invalid_argument, text, -1, name};
    return {};
  }
  status check(std::size_t tokens, const seqpar::memory& given) const {
    if (status s = check_memory(given, memory()); !s.ok()) return s;
    if (static_cast<index_t>(tokens) > most_)
      return {errc::invalid_argument, "token_mean: there are more losses than were planned"};
    return {};
  }

  all_reduce<double, Transport> sums_;
  index_t most_;
};

/// Fails (error): gradient::sum. Adjoints of ranks that went on with the mean for themselves need d_mean summed over
/// ranks on the host first (plan_all_reduce), for it is a number there.
template <element T, class Valid, transport Transport>
token_mean<T, Valid, Transport> plan_token_mean(const mesh<Transport>& team, index_t most_tokens,
                                                const sum_options& options = {.convention = gradient::replicated}) {
  if (options.convention == gradient::sum)
    raise(seqpar::detail::invalid("cuda::plan_token_mean",
                                  "gradient::sum is not done on a device; sum d_mean over the ranks with "
                                  "plan_all_reduce, and plan with gradient::replicated"));
  return {plan_all_reduce<double>(team, 2, options), most_tokens};
}

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
