// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention.hpp for programs that link what apart.cpp compiles of it.
#pragma once

#include <tests/support/apart.hpp>
#include <tests/support/attention.hpp>

namespace seqpar::test {

using traced_threads = traced<threads::transport>;
extern template outcome<float> run_problem<float, host_fast>(const problem&, const tensors&, host_fast);
extern template outcome<bfloat16> run_problem<bfloat16, host_fast>(const problem&, const tensors&, host_fast);
extern template dense_result definition<float>(const problem&, const tensors&);
extern template dense_result definition<float16>(const problem&, const tensors&);
extern template dense_result definition<bfloat16>(const problem&, const tensors&);
extern template std::string fault_of<float>(const problem&, const outcome<float>&, dense_result, double);
extern template std::string fault_of<float16>(const problem&, const outcome<float16>&, dense_result, double);
extern template std::string fault_of<bfloat16>(const problem&, const outcome<bfloat16>&, dense_result, double);

}  // namespace seqpar::test

namespace seqpar {
extern template struct attention_apart<float, test::traced_threads, on_host, host_fast, float, float, test::any_mask>;
extern template struct attention_apart<bfloat16, test::traced_threads, on_host, host_fast, bfloat16, bfloat16,
                                       test::any_mask>;
}  // namespace seqpar
