// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Losses that the host reads, said to be on a stream.
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
  const auto plan = seqpar::plan_token_mean(seqpar::ring(seqpar::self{}));
  seqpar::mean mean;
  return plan
      .forward(
          std::span<const float>(), [](seqpar::index_t) { return true; }, mean, seqpar::memory{}, exec{})
      .ok();
}
