// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradients of attention, by key intervals and by a functor.
// expect: 8backward4passI mma.sync.aligned.m16n8k16 ldmatrix.sync cp.async.cg ex2.approx
// machine: 8backward4passI HMMA.16816.F32 LDSM.16.M88.4 LDSM.16.MT88.4 LDGSTS.E.BYPASS.128 MUFU.EX2
#include <seqpar/cuda/attend_backward.hpp>
#include <seqpar/cuda/attend_backward_plain.hpp>
#include <tests/cuda/built.cuh>

using namespace seqpar;
using namespace seqpar::cuda;

template <class T, class Class, class Mask = by_intervals>
using keys_of = attend_backward_keys<T, Class, Mask, SEQPAR_BUILT_FOR>;
template <class T, class Class, class Mask = by_intervals>
using queries_of = attend_backward_queries<T, Class, Mask, SEQPAR_BUILT_FOR>;

struct near {
  SEQPAR_HD bool allows(index_t q, index_t k) const { return q - k < 9 && k - q < 9; }
};

template struct test::built<keys_of<bfloat16, head_class<32>>, keys_of<bfloat16, head_class<64>>,
                            keys_of<bfloat16, head_class<96>>, keys_of<bfloat16, head_class<128>>,
                            keys_of<bfloat16, head_class<192, 128>>, keys_of<bfloat16, head_class<256>>,
                            keys_of<bfloat16, head_class<128>, near>>;
template struct test::built<queries_of<bfloat16, head_class<32>>, queries_of<bfloat16, head_class<64>>,
                            queries_of<bfloat16, head_class<96>>, queries_of<bfloat16, head_class<128>>,
                            queries_of<bfloat16, head_class<192, 128>>, queries_of<bfloat16, head_class<256>>,
                            queries_of<bfloat16, head_class<128>, near>>;
template struct test::built<keys_of<float16, head_class<64>>, keys_of<float16, head_class<128>>,
                            queries_of<float16, head_class<64>>, queries_of<float16, head_class<128>>>;
template struct test::built<
    attend_backward_plain_keys<float, by_intervals>, attend_backward_plain_queries<float, by_intervals>,
    attend_backward_plain_keys<bfloat16, by_intervals>, attend_backward_plain_queries<bfloat16, by_intervals>>;
