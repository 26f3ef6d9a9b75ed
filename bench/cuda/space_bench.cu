// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What exchanges ask of device memory, beside a copy of the runtime: bytes read and written in a second, and their
// ratio.
#include "bench/cuda/measure.cuh"

namespace {

using namespace seqpar;
using bench::array;

constexpr index_t tokens = index_t{1} << 18, width = 2048;  // of bf16: 1 GiB, larger than any cache

/// `bytes` of each token's row, from byte `at` on.
block slice(void* p, index_t bytes, index_t at) {
  return {static_cast<std::byte*>(p) + at, tokens, width * 2, 1, 0, bytes};
}
block dense(void* p, index_t bytes) {
  return {p, tokens, bytes, 1, 0, bytes};
}

}  // namespace

int main() try {
  if (!bench::gpu_here()) return 0;
  cuda::on_device exec;
  bench::must(cudaStreamCreateWithFlags(&exec.compute, cudaStreamNonBlocking));
  const auto space = space_of(exec);
  const double ceiling = bench::copy_ceiling(exec.compute);
  std::printf("\n%-44s %8s %10s\n%-44s %8.0f\n", "", "GB/s", "of a copy", "copy of 1 GiB by the runtime",
              ceiling / 1e9);

  const array<bfloat16> sequence(tokens * width), packed(tokens * width);
  bench::randomize(sequence, 1);
  const auto show = [&](const char* name, double bytes, auto&& work) {
    const double rate = bytes / bench::median(exec.compute, work);
    check(space.finish());
    std::printf("%-44s %8.0f %9.0f %%\n", name, rate / 1e9, 100 * rate / ceiling);
  };
  for (const index_t bytes : {128, 512, 2048}) {
    const double moved = 2.0 * static_cast<double>(tokens * bytes);
    const index_t parts = width * 2 / bytes;
    const std::string rows = std::to_string(bytes) + " of 4096 bytes of each token";
    show(("pack " + rows).c_str(), moved, [&](int turn) {
      const index_t part = turn % parts;
      space.copy(dense(packed.data() + part * tokens * bytes / 2, bytes), slice(sequence.data(), bytes, part * bytes));
    });
    show(("unpack " + rows).c_str(), moved, [&](int turn) {
      const index_t part = turn % parts;
      space.copy(slice(packed.data(), bytes, part * bytes), dense(sequence.data() + part * tokens * bytes / 2, bytes));
    });
  }
  const array<float> sums(tokens * width / 4), terms(tokens * width / 4);
  bench::randomize(sums, 2);
  bench::randomize(terms, 3);
  const auto all = static_cast<double>(sums.size());
  const auto row = [](index_t size) { return width / 4 * size; };
  show("add fp32 to fp32", 12 * all,
       [&](int) { space.store<float, float>(dense(sums.data(), row(4)), dense(terms.data(), row(4)), write::add); });
  show("store fp32 as bf16", 6 * all, [&](int) {
    space.store<bfloat16, float>(dense(packed.data(), row(2)), dense(terms.data(), row(4)), write::assign);
  });
  show("add fp32 to bf16", 8 * all, [&](int) {
    space.store<bfloat16, float>(dense(packed.data(), row(2)), dense(terms.data(), row(4)), write::add);
  });
  const auto rows = dense_view<const bfloat16>(sequence.data(), {1, tokens, width / 128, 128});
  show("row_dots of 128 bf16", 4 * static_cast<double>(sequence.size()), [&](int) {
    space.row_dots<bfloat16, bfloat16>(rows, dense_view<const bfloat16>(packed.data(), rows.shape), {},
                                       dense_heads(sums.data(), {1, width / 128, tokens}));
  });
  bench::must(cudaStreamDestroy(exec.compute));
} catch (const std::exception& e) {
  std::printf("%s\n", e.what());
  return 1;
}
