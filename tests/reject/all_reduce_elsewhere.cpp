// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sum that the host adds up, asked for on a stream.
// expect: [seqpar] this call reads or writes its values on the host: give it on_host{} and host memory
#include <seqpar/exchange/sums.hpp>
#include <seqpar/transport/self.hpp>

struct on_a_stream {};
#ifdef TWIN
using exec = seqpar::on_host;
#else
using exec = on_a_stream;
#endif

int main() {
  const auto plan = seqpar::plan_all_reduce<float>(seqpar::ring(seqpar::self{}), 4);
  return plan.forward({}, {}, seqpar::memory{}, exec{}).ok();
}
