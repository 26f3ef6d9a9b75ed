// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention forward, by key intervals and by a functor.
// expect: attend_forwardI mma.sync.aligned.m16n8k16 ldmatrix.sync cp.async.cg st.global.v4 ex2.approx
// machine: attend_forwardI HMMA.16816.F32 LDSM.16.M88.4 LDSM.16.MT88.4 LDGSTS.E.BYPASS.128 STG.E.128 MUFU.EX2
#include <seqpar/cuda/attend_forward.hpp>
#include <seqpar/cuda/attend_forward_plain.hpp>
#include <tests/cuda/built.cuh>

using namespace seqpar;
using namespace seqpar::cuda;

template <class T, class Class, class Mask = by_intervals>
using forward_of = attend_forward<T, T, Class, Mask, SEQPAR_BUILT_FOR>;

struct near {
  SEQPAR_HD bool allows(index_t q, index_t k) const { return q - k < 9 && k - q < 9; }
};

template struct test::built<forward_of<bfloat16, head_class<32>>, forward_of<bfloat16, head_class<64>>,
                            forward_of<bfloat16, head_class<96>>, forward_of<bfloat16, head_class<128>>,
                            forward_of<bfloat16, head_class<192, 128>>, forward_of<bfloat16, head_class<256>>,
                            forward_of<bfloat16, head_class<128>, near>>;
template struct test::built<forward_of<float16, head_class<64>>, forward_of<float16, head_class<128>>>;
template struct test::built<attend_forward_plain<float, float, by_intervals>,
                            attend_forward_plain<bfloat16, bfloat16, by_intervals>>;
