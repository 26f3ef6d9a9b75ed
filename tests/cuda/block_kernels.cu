// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels of the space, for all that exchanges and attention ask of it.
// expect: copy_bodyILm16E ld.global.v4 st.global.v4
// expect: fill_bodyILm16E st.global.v4
// expect: store_body.*Lm[48]EE ld.global.v4 st.global.v4
// expect: row_dots_body.*Lm[48]EE ld.global.v4 shfl.sync
// machine: copy_bodyILm16E LDG.E.128 STG.E.128
// machine: store_body.*Lm[48]EE LDG.E.128 STG.E.128
// machine: row_dots_body.*Lm[48]EE LDG.E.128 SHFL
#include <seqpar/cuda/block_kernels.hpp>
#include <seqpar/cuda/loss_kernels.hpp>
#include <seqpar/cuda/merge_rows.hpp>
#include <tests/cuda/built.cuh>

using namespace seqpar;
using namespace seqpar::cuda;

struct not_ignored {
  const int* labels;
  SEQPAR_HD bool operator()(index_t i) const { return labels[i] != -100; }
};

template struct test::built<copy_body<1>, copy_body<2>, copy_body<4>, copy_body<8>, copy_body<16>>;
template struct test::built<fill_body<1>, fill_body<2>, fill_body<4>, fill_body<8>, fill_body<16>>;
template struct test::built<
    store_body<float, float, 4>, store_body<float, float, 1>, store_body<float, float16, 8>,
    store_body<float, float16, 1>, store_body<float, bfloat16, 8>, store_body<float, bfloat16, 1>,
    store_body<float16, float, 8>, store_body<float16, float, 1>, store_body<float16, float16, 8>,
    store_body<float16, float16, 1>, store_body<float16, bfloat16, 8>, store_body<float16, bfloat16, 1>,
    store_body<bfloat16, float, 8>, store_body<bfloat16, float, 1>, store_body<bfloat16, float16, 8>,
    store_body<bfloat16, float16, 1>, store_body<bfloat16, bfloat16, 8>, store_body<bfloat16, bfloat16, 1>,
    store_body<double, double, 1>, store_body<index_t, index_t, 1>>;
template struct test::built<row_dots_body<float, float, 4>, row_dots_body<float, float, 1>,
                            row_dots_body<float16, float16, 8>, row_dots_body<float16, float16, 1>,
                            row_dots_body<bfloat16, bfloat16, 8>, row_dots_body<bfloat16, bfloat16, 1>,
                            row_dots_body<float16, float, 8>, row_dots_body<float16, float, 1>,
                            row_dots_body<bfloat16, float, 8>, row_dots_body<bfloat16, float, 1>>;
template struct test::built<mean_body, mean_adjoint_body<float, not_ignored>, mean_adjoint_body<bfloat16, not_ignored>>;
template struct test::built<put_body>;
template struct test::built<merge_rows<float, float>, merge_rows<float16, float16>, merge_rows<bfloat16, bfloat16>>;
