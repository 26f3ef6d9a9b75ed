// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that compiles what apart.hpp and attention_apart.hpp declare.
#include <tests/support/attention_apart.hpp>

template struct seqpar::planning_apart<>;
template struct seqpar::attention_apart<float, seqpar::threads::transport>;

namespace seqpar {
template struct attention_apart<float, test::traced_threads, on_host, host_fast, float, float, test::any_mask>;
template struct attention_apart<bfloat16, test::traced_threads, on_host, host_fast, bfloat16, bfloat16, test::any_mask>;

namespace test {
template outcome<float> run_problem<float, host_fast>(const problem&, const tensors&, host_fast);
template outcome<bfloat16> run_problem<bfloat16, host_fast>(const problem&, const tensors&, host_fast);
template dense_result definition<float>(const problem&, const tensors&);
template dense_result definition<float16>(const problem&, const tensors&);
template dense_result definition<bfloat16>(const problem&, const tensors&);
template std::string fault_of<float>(const problem&, const outcome<float>&, dense_result, double);
template std::string fault_of<float16>(const problem&, const outcome<float16>&, dense_result, double);
template std::string fault_of<bfloat16>(const problem&, const outcome<bfloat16>&, dense_result, double);
}  // namespace test
}  // namespace seqpar
