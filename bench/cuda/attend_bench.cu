// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention by a plan of one rank on one GPU, as a user runs it: TFLOP/s forward and backward, counted as 4·D and 10·D
// operations for each pair that the mask lets see each other, beside a large matrix product in the same run. A few rows
// of each result are compared with fp64. attend_bench [seconds]: what does not fit in them is left out.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <seqpar/layout/contiguous.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <tests/support/any.hpp>

#include "bench/cuda/measure.cuh"

namespace {

using namespace seqpar;
using bench::array;
using bench::must;
using test::any_mask;
using kernel = cuda::attention_for<SEQPAR_BUILT_FOR, cuda::head_class<64>, cuda::head_class<128>>;

constexpr index_t width = 2048;  // heads × D

/// Documents of uneven lengths, from n / 4 down.
std::vector<index_t> document_bounds(index_t n) {
  std::vector<index_t> bounds(1, 0);
  for (index_t part = n / 4; bounds.back() < n; part = std::max<index_t>(part * 2 / 3, n / 64))
    bounds.push_back(std::min(bounds.back() + part + part / 7 % 13, n));
  return bounds;
}

/// One head of [tokens, heads, dim], on the host.
template <class T>
std::vector<float> head_of(const array<T>& a, index_t tokens, index_t dim, index_t head) {
  std::vector<T> raw(static_cast<std::size_t>(tokens * dim));
  const auto size = sizeof(T);
  must(cudaMemcpy2D(raw.data(), static_cast<std::size_t>(dim) * size, a.data() + head * dim,
                    static_cast<std::size_t>(width) * size, static_cast<std::size_t>(dim) * size,
                    static_cast<std::size_t>(tokens), cudaMemcpyDeviceToHost));
  std::vector<float> wide;
  for (const T& x : raw) wide.push_back(static_cast<float>(x));
  return wide;
}

/// ‖got − want‖ / ‖want‖ over what it is told of; NaN stays.
struct distance {
  double difference = 0, size = 0;
  void see(double got, double want) {
    difference += (got - want) * (got - want);
    size += want * want;
  }
  double relative() const { return std::sqrt(difference / size); }
};

/// One problem's tensors on the device: several sets of inputs, so that no run finds its own in a cache.
struct tensors {
  static constexpr int sets = 3;
  explicit tensors(index_t n)
      : tokens(n), out(n * width), dq(n * width), dk(n * width), dv(n * width), lse(n * width / 64) {
    for (int i = 0; i < 4 * sets; ++i) {
      in.push_back(std::make_unique<array<bfloat16>>(n * width));
      bench::randomize(*in.back(), static_cast<unsigned long long>(i + 1));
    }
  }
  const array<bfloat16>& input(int which, int turn) const {
    return *in[static_cast<std::size_t>(4 * (turn % sets) + which)];
  }
  index_t tokens;
  std::vector<std::unique_ptr<array<bfloat16>>> in;
  array<bfloat16> out, dq, dk, dv;
  array<float> lse;
};

/// The worst of out, dq, dk, dv on a few rows of one head, inputs of turn 0.
double error_of(const tensors& t, const any_mask& mask, index_t dim) {
  const index_t n = t.tokens, heads = width / dim, head = (n / 64 + dim) % heads;
  const auto q = head_of(t.input(0, 0), n, dim, head), k = head_of(t.input(1, 0), n, dim, head),
             v = head_of(t.input(2, 0), n, dim, head), dout = head_of(t.input(3, 0), n, dim, head),
             out = head_of(t.out, n, dim, head), dq = head_of(t.dq, n, dim, head), dk = head_of(t.dk, n, dim, head),
             dv = head_of(t.dv, n, dim, head);
  std::vector<float> lse(static_cast<std::size_t>(n));
  must(cudaMemcpy(lse.data(), t.lse.data() + head * n, lse.size() * sizeof(float), cudaMemcpyDeviceToHost));
  const auto row = [&](const std::vector<float>& x, index_t i) { return x.data() + i * dim; };
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0;
    for (index_t d = 0; d < dim; ++d) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    return sum;
  };
  const auto scale = static_cast<double>(1 / std::sqrt(static_cast<float>(dim)));
  const auto size = static_cast<std::size_t>(dim);
  distance of_out, of_lse, of_dq, of_dk, of_dv;
  for (const index_t i : {index_t{0}, index_t{1}, n / 3 + 5, n / 2, n / 2 + 77, n - 1}) {
    std::vector<double> s(static_cast<std::size_t>(n));
    double most = -1e300, sum = 0;
    for (index_t j = 0; j < n; ++j)
      if (mask.allows(i, j)) most = std::max(most, s[static_cast<std::size_t>(j)] = scale * dot(row(q, i), row(k, j)));
    std::vector<double> o(size), d_q(size);
    for (index_t j = 0; j < n; ++j)
      if (mask.allows(i, j)) {
        const double p = std::exp(s[static_cast<std::size_t>(j)] - most);
        sum += p;
        for (index_t d = 0; d < dim; ++d) o[static_cast<std::size_t>(d)] += p * static_cast<double>(row(v, j)[d]);
      }
    const double want_lse = most + std::log(sum), delta = dot(row(dout, i), row(out, i));
    for (index_t j = 0; j < n; ++j)
      if (mask.allows(i, j)) {
        const double p = std::exp(s[static_cast<std::size_t>(j)] - want_lse);
        const double ds = scale * p * (dot(row(dout, i), row(v, j)) - delta);
        for (index_t d = 0; d < dim; ++d) d_q[static_cast<std::size_t>(d)] += ds * static_cast<double>(row(k, j)[d]);
      }
    of_lse.see(static_cast<double>(lse[static_cast<std::size_t>(i)]), want_lse);
    for (index_t d = 0; d < dim; ++d) {
      of_out.see(static_cast<double>(row(out, i)[d]), o[static_cast<std::size_t>(d)] / sum);
      of_dq.see(static_cast<double>(row(dq, i)[d]), d_q[static_cast<std::size_t>(d)]);
    }
  }
  for (const index_t j : {index_t{0}, index_t{1}, n / 3 + 5, n / 2, n / 2 + 77, n - 1}) {
    std::vector<double> d_k(size), d_v(size);
    for (index_t i = 0; i < n; ++i)
      if (mask.allows(i, j)) {
        const double p =
            std::exp(scale * dot(row(q, i), row(k, j)) - static_cast<double>(lse[static_cast<std::size_t>(i)]));
        const double ds = scale * p * (dot(row(dout, i), row(v, j)) - dot(row(dout, i), row(out, i)));
        for (index_t d = 0; d < dim; ++d) {
          d_k[static_cast<std::size_t>(d)] += ds * static_cast<double>(row(q, i)[d]);
          d_v[static_cast<std::size_t>(d)] += p * static_cast<double>(row(dout, i)[d]);
        }
      }
    for (index_t d = 0; d < dim; ++d) {
      of_dk.see(static_cast<double>(row(dk, j)[d]), d_k[static_cast<std::size_t>(d)]);
      of_dv.see(static_cast<double>(row(dv, j)[d]), d_v[static_cast<std::size_t>(d)]);
    }
  }
  double worst = 100 * of_lse.relative();  // lse is fp32
  for (const auto* x : {&of_out, &of_dq, &of_dk, &of_dv})
    if (!(x->relative() <= worst)) worst = x->relative();
  for (const auto* x : {&out, &dq, &dk, &dv})
    for (const float e : *x)
      if (std::isnan(e)) return std::nan("");
  return worst;
}

struct measured {
  double forward = 0, backward = 0, error = 0;  ///< seconds
};

measured measure(const threads::transport& alone, tensors& t, const any_mask& mask, index_t dim) {
  const index_t n = t.tokens, heads = width / dim;
  cuda::on_device exec;
  must(cudaStreamCreateWithFlags(&exec.compute, cudaStreamNonBlocking));
  exec.exchange = exec.compute;
  measured r;
  {
    auto plan = plan_attention<bfloat16>(ring(threads::device_transport(alone)), contiguous{.tokens = n, .ranks = 1},
                                         mask, {.batch = 1, .heads = heads, .kv_heads = heads, .head_dim = dim},
                                         {.passes = forward_backward}, kernel{});
    const bench::device_memory memory(plan.memory());
    plan.prepare(memory, exec);
    const auto view = [&](const array<bfloat16>& a) { return dense_view(a.data(), {1, n, heads, dim}); };
    const heads_view<float> lse = dense_heads(t.lse.data(), {1, heads, n});
    const auto forward = [&](int turn) {
      check(plan.forward({.q = view(t.input(0, turn)),
                          .k = view(t.input(1, turn)),
                          .v = view(t.input(2, turn)),
                          .out = view(t.out),
                          .lse = lse},
                         memory, exec));
    };
    const auto backward = [&](int turn) {
      check(plan.backward({.q = view(t.input(0, turn)),
                           .k = view(t.input(1, turn)),
                           .v = view(t.input(2, turn)),
                           .out = view(t.out),
                           .lse = lse,
                           .dout = view(t.input(3, turn)),
                           .dq = view(t.dq),
                           .dk = view(t.dk),
                           .dv = view(t.dv)},
                          memory, exec));
    };
    for (auto* x : {&t.out, &t.dq, &t.dk, &t.dv}) x->poison();
    t.lse.poison();
    must(cudaDeviceSynchronize());
    forward(0);
    backward(0);
    must(cudaStreamSynchronize(exec.compute));
    r.error = error_of(t, mask, dim);
    r.forward = bench::median(exec.compute, forward);
    r.backward = bench::median(exec.compute, backward);
  }
  must(cudaStreamDestroy(exec.compute));
  return r;
}

}  // namespace

int main(int count, char** words) try {
  if (!bench::gpu_here()) return 0;
  const double seconds = count > 1 ? std::atof(words[1]) : 150;
  const auto start = std::chrono::steady_clock::now();
  const auto over = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds;
  };
  const double ceiling = bench::product_ceiling(nullptr);
  std::printf(ceiling > 0 ? "bf16 matrix product of 8192: %.0f TFLOP/s\n" : "no cuBLAS here: no ceiling\n",
              ceiling / 1e12);
  std::puts("\nbf16, heads x D = 2048, batch 1; % of the product\n");
  std::printf("%-16s %4s %7s %10s %8s %4s %10s %8s %4s %9s\n", "mask", "D", "tokens", "forward", "TFLOP/s", "%",
              "backward", "TFLOP/s", "%", "error");
  bool right = true;
  run_ranks({.ranks = 1}, [&](const threads::transport& alone) {
    for (const index_t n : {4096, 16384, 65536}) {
      tensors t(n);
      const std::vector<index_t> bounds = document_bounds(n);
      for (const index_t dim : {128, 64})
        for (const any_mask& unbound : {any_mask(full{}, "full"), any_mask(causal{}, "causal"),
                                        any_mask(teacher_forcing{.clean = n / 2, .block = 512}, "teacher forcing"),
                                        any_mask(within{documents{bounds}, causal{}}, "causal documents")}) {
          const any_mask mask = bound(unbound, n, n);
          if (over()) {
            std::printf("%-16s %4lld %7lld left out: no time\n", mask.name().c_str(), static_cast<long long>(dim),
                        static_cast<long long>(n));
            continue;
          }
          double pairs = 0;
          for (index_t q = 0; q < n; ++q) {
            const interval_pair keys = *mask.try_key_intervals(q);
            for (const interval& part : {keys.first, keys.second})
              pairs += static_cast<double>(intersection(part, {0, n}).size());
          }
          const measured r = measure(alone, t, mask, dim);
          const bool fine = r.error < 2e-2;
          right = right && fine;
          const double forward = 4 * pairs * width / r.forward, backward = 10 * pairs * width / r.backward;
          const auto percent = [&](double rate) { return ceiling > 0 ? 100 * rate / ceiling : 0; };
          std::printf("%-16s %4lld %7lld %7.3f ms %8.1f %4.0f %7.3f ms %8.1f %4.0f %9.1e%s\n", mask.name().c_str(),
                      static_cast<long long>(dim), static_cast<long long>(n), 1e3 * r.forward, forward / 1e12,
                      percent(forward), 1e3 * r.backward, backward / 1e12, percent(backward), r.error,
                      fine ? "" : "  WRONG");
          std::fflush(stdout);
        }
    }
  });
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::printf("%s\n", e.what());
  return 1;
}
