// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding where the plan's kernel does not compute.
// expect: [seqpar] this plan's kernel does not compute on this executor
#include <seqpar/attention/decode.hpp>
#include <seqpar/transport/self.hpp>

struct on_my_device {};
seqpar::host_space space_of(on_my_device) {
  return {};
}
#ifdef TWIN
using exec = seqpar::on_host;
#else
using exec = on_my_device;
#endif

int main() {
  const auto plan = seqpar::plan_decode<float>(seqpar::ring(seqpar::self{}),
                                               {.heads = 1, .kv_heads = 1, .head_dim = 4, .cache_rows = 8});
  return plan.forward({}, seqpar::memory{}, exec{}).ok();
}
