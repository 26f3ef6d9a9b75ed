// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan in plain C++ whose kernels are those of apart.cu.
#include <doctest/doctest.h>

#include <seqpar/cuda/apart.hpp>
#include <seqpar/seqpar.hpp>
#include <seqpar/transport/threads_cuda.hpp>
#include <tests/streams/engine.hpp>
#include <tests/support/guarded_memory.hpp>

using namespace seqpar;

TEST_CASE("on a GPU a plan in plain C++ runs kernels that are compiled apart") {
  const test::device_threads<cuda::on_device_apart> engine;
  engine.run({.ranks = 2}, [&](threads::device_transport t) {
    auto plan = plan_attention<bfloat16>(ring(t), zigzag{.tokens = 300, .ranks = 2}, causal{},
                                         {.batch = 1, .heads = 2, .kv_heads = 1, .head_dim = 64},
                                         {.passes = forward_backward}, cuda::attention<cuda::head_class<64>>{});
    const auto site = engine.site(t);
    test::guarded_memory memory(plan.memory(), site.memory);
    plan.prepare(memory, site.exec);
    const index_t n = plan.q_rows();
    std::list<std::pmr::vector<bfloat16>> tensors;
    const auto tensor = [&](index_t heads, float value) {
      tensors.emplace_back(static_cast<std::size_t>(n * heads * 64), bfloat16(value), site.memory);
      return dense_view(tensors.back().data(), {1, n, heads, 64});
    };
    const auto q = tensor(2, 1), k = tensor(1, 1), v = tensor(1, 1), out = tensor(2, 0), dout = tensor(2, 1),
               dq = tensor(2, 7), dk = tensor(1, 7), dv = tensor(1, 7);
    std::pmr::vector<float> sums(static_cast<std::size_t>(2 * n), site.memory);
    const auto lse = dense_heads(sums.data(), {1, 2, n});
    check(plan.forward({.q = q, .k = k, .v = v, .out = out, .lse = lse}, memory, site.exec));
    check(plan.backward({.q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
                        memory, site.exec));
    site.settle();
    for (index_t i = 0; i < out.elements(); ++i)
      if (static_cast<float>(out.pointer[i]) != 1 || static_cast<float>(dq.pointer[i]) != 0)
        raise(error(errc::invalid_argument, "test: one of the values is wrong"));
  });
}
