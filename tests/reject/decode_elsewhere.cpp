// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding on a stream, which has no decoding yet.
// expect: [seqpar] this call reads or writes its values on the host: give it on_host{} and host memory
#include <seqpar/attention/decode.hpp>
#include <seqpar/transport/self.hpp>

struct on_a_stream {};
#ifdef TWIN
using exec = seqpar::on_host;
#else
using exec = on_a_stream;
#endif

int main() {
  const auto plan = seqpar::plan_decode<float>(seqpar::ring(seqpar::self{}),
                                               {.heads = 1, .kv_heads = 1, .head_dim = 4, .cache_rows = 8});
  return plan.forward({}, seqpar::memory{}, exec{}).ok();
}
